"""The source of time that services use.

Domain code gets moments as arguments; the shell gets them from a `Clock`. A run may be scaled (`--speed 60`: an hour
passes in a minute), and then every window, timeout and period of every service is scaled with it, because all of them
ask this port. Adapters are in `koordcore.service.clock`.
"""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The source of time of a service.
    If a run is accelerated, a second of this clock is shorter than a real second.
    """

    def now(self) -> datetime:
        """Return the current time of this clock as an aware datetime in UTC."""
        ...

    def unix(self) -> float:
        """Return the seconds since 1970-01-01 UTC on this clock. They may jump when the time of the host is corrected.
        Do not measure durations with them.
        """
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start. They never decrease. Use differences of them to measure durations
        within one process.
        """
        ...

    def at_host(self, unix_seconds: float) -> float:
        """Return the seconds since 1970 that this clock showed when the host's clock showed `unix_seconds`, for example
        when the server stored a message. Infinity for a clock that moves by hand.
        """
        ...

    def real_seconds(self, seconds: float) -> float:
        """Return the number of real seconds that `seconds` of this clock last; infinity for a clock that moves by hand.
        Use it for time limits that something else measures, such as a server's TTL or `asyncio.timeout`.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of this clock. If they are zero or negative, let other tasks run once."""
        ...

    async def wait_until(self, unix_seconds: float) -> None:
        """Wait until `unix()` is at least `unix_seconds`, also if the time of the host is corrected meanwhile."""
        ...
