"""Clocks: the host's time, the scaled time of a run, and time moved by hand in tests.

    scaled(t) = origin + (t - origin_real) * speed

All services of a run are given the same text (`--clock 60@<origin_real>@<origin>`), so they agree on the time as well
as their hosts do. This is the only module of the project that asks the operating system what time it is. The port is
`koordcore.ports.clock`.
"""

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from koordcore.ports.clock import Clock
from koordcore.values.invalid import InvalidInput

# One wait of asyncio may not be arbitrarily long, and a corrected host clock must be noticed: look again at least this
# often.
_LONGEST_WAIT_REAL_SECONDS = 60.0
_RULE = "`system` or `<speed>@<origin_real_unix>@<origin_unix>`"


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The host's own time."""

    def now(self) -> datetime:
        """See `Clock.now`."""
        return datetime.now(UTC)

    def unix(self) -> float:
        """See `Clock.unix`."""
        return time.time()

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    def real_seconds(self, seconds: float) -> float:
        """The same number."""
        return seconds

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await asyncio.sleep(seconds)

    async def wait_until(self, unix_seconds: float) -> None:
        """See `Clock.wait_until`."""
        await _wait_until(self, unix_seconds)

    def __str__(self) -> str:
        return "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledClock:
    """Time that runs `speed` times as fast as the host's, and was `origin_unix` when the host's was `origin_real_unix`.

    speed   a positive finite number; 1 with another origin replays a past day at its own pace
    """

    origin_real_unix: float
    origin_unix: float
    speed: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.speed) and self.speed > 0):
            raise InvalidInput("a positive finite number", self.speed, "clock.speed")
        for name in ("origin_real_unix", "origin_unix"):
            if not math.isfinite(getattr(self, name)):
                raise InvalidInput("a finite number of seconds since 1970", getattr(self, name), f"clock.{name}")

    @classmethod
    def starting_now(cls, speed: float, *, at_unix: float | None = None) -> "ScaledClock":
        """A clock that leaves the present at `speed`; it shows `at_unix` now (None: the host's present time)."""
        real = time.time()
        return cls(origin_real_unix=real, origin_unix=real if at_unix is None else at_unix, speed=speed)

    def now(self) -> datetime:
        """See `Clock.now`."""
        return datetime.fromtimestamp(self.unix(), UTC)

    def unix(self) -> float:
        """See `Clock.unix`."""
        return self.origin_unix + (time.time() - self.origin_real_unix) * self.speed

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic() * self.speed

    def real_seconds(self, seconds: float) -> float:
        """seconds / speed."""
        return seconds / self.speed

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await asyncio.sleep(seconds / self.speed)

    async def wait_until(self, unix_seconds: float) -> None:
        """See `Clock.wait_until`."""
        await _wait_until(self, unix_seconds)

    def __str__(self) -> str:
        return f"{self.speed!r}@{self.origin_real_unix!r}@{self.origin_unix!r}"


async def _wait_until(clock: Clock, unix_seconds: float) -> None:
    while (left := unix_seconds - clock.unix()) > 0:  # noqa: ASYNC110  time has no event to wait for
        await asyncio.sleep(min(clock.real_seconds(left), _LONGEST_WAIT_REAL_SECONDS))


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
            await _let_run(turns)
        self._unix = max(self._unix, target)
        await _let_run(turns)

    def jump(self, seconds: float) -> None:
        """Moves the time on at once; whoever waited for a moment on the way is made runnable, in order, but finds the
        later time.
        """
        self._unix += seconds
        self._wake_due()

    def sleepers(self) -> int:
        """How many tasks wait for this clock."""
        return sum(1 for _, _, woken in self._sleepers if not woken.done())

    async def wait_for(self, condition: Callable[[], bool], *, within_real_seconds: float = 10.0) -> None:
        """Lets the loop run until the condition holds; raises TimeoutError when it does not in time. The clock stands
        still.
        """
        async with asyncio.timeout(within_real_seconds):
            while not condition():  # noqa: ASYNC110  any condition, not one that has an event
                await asyncio.sleep(0.001)

    def _next_due(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake_due(self) -> None:
        while (due := self._next_due()) is not None and due <= self._unix:
            heapq.heappop(self._sleepers)[2].set_result(None)


async def _let_run(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def host_unix_nanos() -> int:
    """The host's own time in nanoseconds since 1970, whatever the run's clock shows: for how long our code really
    took.
    """
    return time.time_ns()


def parse_clock(text: str) -> SystemClock | ScaledClock:
    """The clock that a settings text names; `str(clock)` renders it back exactly.

    text    `system`, or `<speed>@<origin_real_unix>@<origin_unix>`, or `<speed>` (leaves the present now: one process
            only)
    raises  InvalidInput
    """
    if text in ("", "system"):
        return SystemClock()
    parts = text.split("@")
    try:
        numbers = [float(part) for part in parts]
    except ValueError as error:
        raise InvalidInput(_RULE, text, "clock") from error
    match numbers:
        case [speed]:
            return ScaledClock.starting_now(speed)
        case [speed, origin_real, origin]:
            return ScaledClock(origin_real_unix=origin_real, origin_unix=origin, speed=speed)
        case _:
            raise InvalidInput(_RULE, text, "clock")
