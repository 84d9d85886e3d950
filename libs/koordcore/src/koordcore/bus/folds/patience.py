"""Repeat a read of the log while the NATS server does not answer."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from koordcore.bus.client.connection import NoAnswer
from koordcore.retry import Backoff, retry

T = TypeVar("T")

_log: Final = logging.getLogger("koordcore.bus")


async def patiently(read: Callable[[], Awaitable[T]]) -> T:
    """Call `read` until the log answers, and return its result. Wait 0.2 to 1 second between two attempts.

    There is no deadline. Only the error `NoAnswer` leads to a further attempt.
    """

    def note(error: Exception, delay: float) -> None:
        _log.warning("bus_read_repeated reason=%s retry_seconds=%.1f", error, delay)

    return await retry(read, NoAnswer, backoff=Backoff(0.2, 1.0), on_retry=note)
