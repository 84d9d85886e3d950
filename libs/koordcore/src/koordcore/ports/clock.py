"""The source of time that services use.

Domain code gets moments as arguments; the shell gets them from a `Clock`. A run may be scaled (`--speed 60`: an hour
passes in a minute), and then every window, timeout and period of every service is scaled with it, because all of them
ask this port. Adapters are in `koordcore.service.clock`.
"""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The clock of a run. Its seconds may be shorter than those of the host."""

    def now(self) -> datetime:
        """Return the current time as an aware datetime in UTC; equal to `unix()`."""
        ...

    def unix(self) -> float:
        """Return the seconds since 1970-01-01 UTC.

        May jump when the time of the host is corrected: do not measure durations with it.
        """
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; they never go back.

        Use differences of it to measure durations within one process.
        """
        ...

    def real_seconds(self, seconds: float) -> float:
        """Return how long `seconds` of this clock last on the host; infinity for a clock that moves by hand.

        Use it for time limits outside of this clock, such as a server's TTL or `asyncio.timeout`.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of this clock. With zero or less, other tasks run once."""
        ...

    async def wait_until(self, unix_seconds: float) -> None:
        """Wait until `unix()` reaches a time, also if the time of the host is corrected meanwhile."""
        ...
