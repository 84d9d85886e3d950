"""Retries with exponential back-off, jitter and an optional deadline.

Only shells retry. If a component waits for something else between two attempts, such as an event, it uses `Backoff`.
All other code calls `retry`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Backoff:
    """A series of delays that double after each failure, with random variation.

    Args:
        first: First delay in real seconds. Each actual delay is between half and one and a half of its nominal value.
        most: Largest nominal delay in real seconds.
    """

    def __init__(self, first: float = 0.2, most: float = 30.0) -> None:
        self._first = first
        self._most = most
        self._next = first

    def reset(self) -> None:
        """Start again with the first delay. Call it after a success."""
        self._next = self._first

    def seconds(self, at_least: float | None = None) -> float:
        """Return the next delay in real seconds. The nominal delay after it is twice as long. `at_least`: Lower bound
        that the server requested (`Retry-After`); None if it did not.
        """
        delay = self._next * (0.5 + random.random())  # noqa: S311 - spreads load, not a secret
        self._next = min(self._most, self._next * 2)
        return delay if at_least is None else max(delay, at_least)

    async def wait(self, at_least: float | None = None) -> None:
        """Sleep for the next delay, at least `at_least` real seconds (None: no lower bound)."""
        await asyncio.sleep(self.seconds(at_least))


async def retry(
    call: Callable[[], Awaitable[T]],
    errors: type[Exception] | tuple[type[Exception], ...],
    *,
    backoff: Backoff | None = None,
    deadline_seconds: float | None = None,
    retry_if: Callable[[Exception], bool] | None = None,
    on_retry: Callable[[Exception, float], None] | None = None,
) -> T:
    """Call a function until it succeeds, and return its result. Wait longer after each failure.

    Args:
        call: Called without arguments; it must be safe to repeat.
        errors: Exceptions after which the call is repeated; all others are raised at once.
        backoff: Delays between two calls; None: 0.2 s, doubling up to 5 s.
        deadline_seconds: Real seconds after which the last error is raised; None: retry without end.
        retry_if: Called with an error of `errors`. If it returns False, the error is raised at once.
        on_retry: Called with the error and the delay in seconds before each delay, e.g. to log.

    Raises:
        Exception: The last error, after the deadline or if `retry_if` returns False.
    """
    delays = backoff or Backoff(0.2, 5.0)
    time = asyncio.get_running_loop().time
    end = None if deadline_seconds is None else time() + deadline_seconds
    while True:
        try:
            return await call()
        except errors as error:
            if (retry_if is not None and not retry_if(error)) or (end is not None and time() >= end):
                raise
            delay = delays.seconds()
            if on_retry is not None:
                on_retry(error, delay)
        await asyncio.sleep(delay)
