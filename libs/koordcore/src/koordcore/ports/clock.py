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
        """Return the current time, aware and in UTC; equal to `unix()`."""
        ...

    def unix(self) -> float:
        """Return the seconds since 1970-01-01 UTC.

        May jump when the time of the host is corrected: do not measure durations with it.
        """
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start.

        Never goes back. For durations: differences only, within one process.
        """
        ...

    def real_seconds(self, seconds: float) -> float:
        """Return how long `seconds` of this clock last on the host; infinity on a clock that only moves by hand.

        For time limits given to others: the TTL of a server, `asyncio.timeout`.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds of this clock; zero or less lets other tasks run once."""
        ...

    async def wait_until(self, unix_seconds: float) -> None:
        """Wait until `unix()` reaches a time, even if the time of the host is corrected meanwhile."""
        ...
