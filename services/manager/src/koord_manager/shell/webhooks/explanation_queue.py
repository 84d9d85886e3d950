"""Verdicts are told after the answers, in rounds: nobody waits for them, and ten at once take as long as three apart.

source    manager spec, 17.3
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from koordcore.service.telemetry.logging import Logger

ROUND_SECONDS: Final = 0.1
MOST_UNTOLD: Final = 1000
"""While more are left, no answer goes between: many connections answer more in one go than one telling makes up for."""

Tell = Callable[[], Awaitable[None]]


class Telling:
    """What is still to be told, in order."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._untold: deque[Tell] = deque()
        self._some = asyncio.Event()

    def later(self, tell: Tell) -> None:
        """Have it told within a round."""
        self._untold.append(tell)
        self._some.set()

    async def run(self) -> None:
        """Tells until it is cancelled."""
        while True:
            await self._some.wait()
            await asyncio.sleep(ROUND_SECONDS)
            await self.told()

    async def told(self) -> None:
        """Tells now what is left; answers go between, unless too much is.

        What cannot be told is lost, with its cause in the log.
        """
        self._some.clear()
        while self._untold:
            tell = self._untold.popleft()
            try:
                await tell()
            except Exception as error:
                self._logger.error("verdict_not_told", error=f"{type(error).__name__}: {error}", exc_info=error)
            if len(self._untold) <= MOST_UNTOLD:
                await asyncio.sleep(0)
