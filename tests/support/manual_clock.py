"""A clock that a test moves."""

import asyncio
import heapq
import itertools
import math
from datetime import UTC, datetime

from support.until import let_run


class ManualClock:
    """Time that moves only when a test moves it; sleepers wake in the order of the moments they wait for.

    `advance` is what a living process sees: every sleeper on the way wakes at its own moment, may sleep again and wake
    again. `jump` is what a paused process sees: the time is suddenly later, and all that was due is due at once.
    """

    def __init__(self, unix: float = 1_700_000_000.0) -> None:
        self._unix = unix
        self._start = unix
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """See `Clock.now`."""
        return datetime.fromtimestamp(self._unix, UTC)

    def unix(self) -> float:
        """See `Clock.unix`."""
        return self._unix

    def monotonic(self) -> float:
        """Seconds that the clock was moved since it was made."""
        return self._unix - self._start

    def at_host(self, unix_seconds: float) -> float:
        """Infinity: what is dated by this clock is never ahead of the host's time."""
        return math.inf

    def real_seconds(self, seconds: float) -> float:
        """Infinity: the host's time does not move this clock."""
        return math.inf if seconds > 0 else 0.0

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await self.wait_until(self._unix + seconds)

    async def wait_until(self, unix_seconds: float) -> None:
        """See `Clock.wait_until`; a cancelled sleeper is forgotten."""
        if unix_seconds <= self._unix:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (unix_seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float, *, turns: int = 20) -> None:
        """Moves the time on, waking every sleeper at its own moment and letting the loop run `turns` times after each.

        Turns are enough for code that only awaits this clock and in-memory things; with real sockets wait for the
        effect as well.
        """
        target = self._unix + seconds
        while (due := self._next_due()) is not None and due <= target:
            self._unix = max(self._unix, due)
            self._wake_due()
            await let_run(turns)
        self._unix = max(self._unix, target)
        await let_run(turns)

    def jump(self, seconds: float) -> None:
        """Moves the time on at once; whoever waited for a moment on the way is made runnable, in order, but finds the
        later time.
        """
        self._unix += seconds
        self._wake_due()

    def sleepers(self) -> int:
        """How many tasks wait for this clock."""
        return sum(1 for _, _, woken in self._sleepers if not woken.done())

    def _next_due(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake_due(self) -> None:
        while (due := self._next_due()) is not None and due <= self._unix:
            heapq.heappop(self._sleepers)[2].set_result(None)
