"""Wait for a condition with a deadline: `until` in coroutines, `until_blocking` elsewhere.

No test sleeps for a fixed time. The deadline only bounds a test that fails, so it is far beyond what a loaded machine
needs. To show that something does not happen, wait for a later event that is processed after it would have happened.
"""

import asyncio
import inspect
import reprlib
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, overload

DEADLINE_SECONDS: Final = 120.0
T = TypeVar("T")

_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 300


@overload
async def until(  # pyright: ignore[reportOverlappingOverload] - an awaitable is awaited, anything else is the answer
    condition: Callable[[], Awaitable[T | None]],
    what: str = "",
    *,
    seconds: float = DEADLINE_SECONDS,
    every: float = 0.01,
    check: Callable[[], object] | None = None,
) -> T: ...
@overload
async def until(
    condition: Callable[[], T | None],
    what: str = "",
    *,
    seconds: float = DEADLINE_SECONDS,
    every: float = 0.01,
    check: Callable[[], object] | None = None,
) -> T: ...
async def until(
    condition: Callable[[], object],
    what: str = "",
    *,
    seconds: float = DEADLINE_SECONDS,
    every: float = 0.01,
    check: Callable[[], object] | None = None,
) -> object:
    """Wait until `condition` answers something true, and return that answer.

    Args:
        condition: A function or a coroutine function. What it raises ends the wait.
        what: Replaces the condition's source text in the message of a failure.
        seconds: The deadline. A coroutine that hangs is cancelled at the deadline.
        every: Seconds between two looks. Zero only yields to the other tasks.
        check: Called before each look. It raises if the condition cannot become true any more.

    Raises:
        AssertionError: The deadline has passed. The message shows the condition and its last value.
    """
    value: object = None
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            while True:
                if check is not None:
                    check()
                value = condition()
                if inspect.isawaitable(value):
                    value = await value
                if value:
                    return value
                await asyncio.sleep(every)
    except TimeoutError:
        if not limit.expired():
            raise
    raise AssertionError(_failure(condition, what, seconds, value))


async def let_run(turns: int = 20) -> None:
    """Let the other tasks of the event loop run for some turns."""
    for _ in range(turns):
        await asyncio.sleep(0)


def until_blocking(
    condition: Callable[[], T | None],
    what: str = "",
    *,
    seconds: float = DEADLINE_SECONDS,
    every: float = 0.02,
    check: Callable[[], object] | None = None,
) -> T:
    """Do what `until` does in a test without an event loop; a condition that hangs is not interrupted."""
    deadline = time.monotonic() + seconds
    while True:
        if check is not None:
            check()
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(_failure(condition, what, seconds, value))
        time.sleep(every)


def _failure(condition: Callable[[], object], what: str, seconds: float, value: object) -> str:
    """Return the message: what was awaited, the last value, and the values of the names that the condition uses."""
    lines = [f"did not become true within {seconds:g} s: {what or _source(condition)}"]
    lines.append(f"last value: {_SHORT.repr(value)}")
    if inspect.isfunction(condition):
        used = inspect.getclosurevars(condition).nonlocals
        lines += [f"where {name} = {_SHORT.repr(used[name])}" for name in sorted(used)]
    return "\n".join(lines)


def _source(condition: Callable[[], object]) -> str:
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)
