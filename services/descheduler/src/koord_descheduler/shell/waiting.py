"""Waits for the first of several things, and says once why something waits."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from koordcore.ending import end_tasks
from koordcore.service.telemetry.logging import Logger


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for the first one and cancel the others. If this one is cancelled, all are."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*tasks)


class Problem:
    """A problem that lasts over many passes. It is logged when its reason changes."""

    def __init__(self, event: str, logger: Logger) -> None:
        self._event = event
        self._logger = logger
        self._reason = ""

    def lasts(self, reason: str) -> None:
        if reason != self._reason:
            self._reason = reason
            self._logger.warning(self._event, reason=reason)

    def is_over(self) -> None:
        self._reason = ""
