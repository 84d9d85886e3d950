"""Publish the explanations of admission decisions after the answers, so that no request waits for them.

Publishing ten explanations at once takes as long as three single ones. So they are collected for a tenth of a second.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from koordcore.service.telemetry.logging import Logger

GATHER_SECONDS: Final = 0.1
MAX_PENDING: Final = 1000
"""While more explanations are pending, they are published without answering requests in between."""

Publish = Callable[[], Awaitable[None]]


class ExplanationQueue:
    """Explanations of admission decisions that wait to be published, in order."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._pending: deque[Publish] = deque()
        self._news = asyncio.Event()

    def add(self, publish: Publish) -> None:
        """Queue the function that publishes an explanation. It is called within `GATHER_SECONDS`."""
        self._pending.append(publish)
        self._news.set()

    async def run(self) -> None:
        """Publish queued explanations, several at once, until cancelled."""
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHER_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Publish all queued explanations now. If one cannot be published, it is logged and dropped."""
        self._news.clear()
        while self._pending:
            publish = self._pending.popleft()
            try:
                await publish()
            except Exception as error:
                self._logger.error(
                    "explanation_not_published", error=f"{type(error).__name__}: {error}", exc_info=error
                )
            if len(self._pending) <= MAX_PENDING:
                await asyncio.sleep(0)
