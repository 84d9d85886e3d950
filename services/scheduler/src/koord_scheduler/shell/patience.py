"""Reads that wait: while the bus is away the scheduler keeps its state and asks again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from koordcore.bus.client.connection import NoAnswer
from koordcore.service.telemetry.logging import logger

T = TypeVar("T")

_PAUSE_SECONDS: Final = 0.5
_log: Final = logger("scheduler.patience")


async def patiently(read: Callable[[], Awaitable[T]]) -> T:
    """The answer, however long it takes."""
    while True:
        try:
            return await read()
        except NoAnswer as error:
            _log.warning("read_repeated", reason=str(error))
            await asyncio.sleep(_PAUSE_SECONDS)
