"""Clocks: the host's time, the scaled time of a run, and time that tests move by hand.

    scaled(t) = origin + (t - origin_real) * speed

All services of a run get the same setting (`--clock 60@<origin_real>@<origin>`), so they agree on the time as well as
their hosts do. No other module reads the time of the operating system. The port is `koordcore.ports.clock`.

asyncio is imported by the functions that wait: a command that reads the clock must not wait for the import.
"""

import math
import time
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
    """The clock of the host; the port `Clock` describes its methods."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def unix(self) -> float:
        """Return the seconds since 1970 on the host. They jump when its time is corrected."""
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def at_host(self, unix_seconds: float) -> float:
        return unix_seconds

    def real_seconds(self, seconds: float) -> float:
        return seconds

    async def sleep(self, seconds: float) -> None:
        from asyncio import sleep

        await sleep(seconds)

    async def wait_until(self, unix_seconds: float) -> None:
        """Wait until the time of the host is reached, also if it is corrected meanwhile."""
        await _wait_until(self, unix_seconds)

    def __str__(self) -> str:
        return "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledClock:
    """A clock that runs `speed` times as fast as the host's clock; the port `Clock` describes its methods. It showed
    `origin_unix` (unix seconds) when the host's clock showed `origin_real_unix`.
    """

    origin_real_unix: float
    origin_unix: float
    speed: float  # A positive finite number. With 1 and another origin, a past day is replayed in real time.

    def __post_init__(self) -> None:
        if not (math.isfinite(self.speed) and self.speed > 0):
            raise InvalidInput("a positive finite number", self.speed, "clock.speed")
        for name in ("origin_real_unix", "origin_unix"):
            if not math.isfinite(getattr(self, name)):
                raise InvalidInput("a finite number of seconds since 1970", getattr(self, name), f"clock.{name}")

    @classmethod
    def starting_now(cls, speed: float, *, at_unix: float | None = None) -> "ScaledClock":
        """Return a clock that starts now and runs `speed` times as fast as the host's clock. `speed`: seconds of this
        clock per real second. `at_unix`: Unix seconds that it shows now; None: the host's time.
        """
        real = time.time()
        return cls(origin_real_unix=real, origin_unix=real if at_unix is None else at_unix, speed=speed)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.unix(), UTC)

    def unix(self) -> float:
        """Return the seconds since 1970: the origin of the run, plus the real seconds since then times the speed."""
        return self.at_host(time.time())

    def at_host(self, unix_seconds: float) -> float:
        return self.origin_unix + (unix_seconds - self.origin_real_unix) * self.speed

    def monotonic(self) -> float:
        return time.monotonic() * self.speed

    def real_seconds(self, seconds: float) -> float:
        """Return the real seconds that `seconds` of this clock last: seconds / speed."""
        return seconds / self.speed

    async def sleep(self, seconds: float) -> None:
        """Wait for scaled seconds: at speed 60, one real second for a minute."""
        from asyncio import sleep

        await sleep(seconds / self.speed)

    async def wait_until(self, unix_seconds: float) -> None:
        """Wait until the scaled time is reached, also if the time of the host is corrected meanwhile."""
        await _wait_until(self, unix_seconds)

    def __str__(self) -> str:
        return f"{self.speed!r}@{self.origin_real_unix!r}@{self.origin_unix!r}"


async def _wait_until(clock: Clock, unix_seconds: float) -> None:
    from asyncio import sleep

    while (left := unix_seconds - clock.unix()) > 0:  # noqa: ASYNC110  time has no event to wait for
        await sleep(min(clock.real_seconds(left), _LONGEST_WAIT_REAL_SECONDS))


def host_unix_nanos() -> int:
    """Return the host's time in nanoseconds since 1970. It does not depend on the clock of the run. It is used to
    measure real durations.
    """
    return time.time_ns()


def host_moment(clock: Clock, moment: datetime) -> datetime:
    """Return the time of the host when the clock of the run shows `moment`. The server stamps messages with it.

    A scaled clock is that of the present run. Earlier runs may have had another one.
    """
    if not isinstance(clock, ScaledClock):
        return moment
    real = clock.origin_real_unix + (moment.timestamp() - clock.origin_unix) / clock.speed
    return datetime.fromtimestamp(real, UTC)


def parse_clock(text: str) -> SystemClock | ScaledClock:
    """Return the clock that a setting describes. `str(clock)` returns this setting. `text`: `system`, or
    `<speed>@<origin_real_unix>@<origin_unix>`, or `<speed>` (starts now; only for one process).

    Raises:
        InvalidInput: The text has another form.
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
