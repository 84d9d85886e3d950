"""The metrics that adapters report, as a Protocol.

`koordcore.service.telemetry.metrics.BusMetrics` turns it into Prometheus series.

Source:
    event-bus spec, 12
"""

from typing import Protocol


class BusMetrics(Protocol):
    """Receives measurements of the use of the log in this process."""

    def append(self, outcome: str, seconds: float) -> None:
        """Count an append by outcome: `appended`, `duplicate`, `conflict`, `full`, `unavailable`, `misconfigured`."""
        ...

    def conflict(self, kind: str) -> None:
        """Count a refused expectation of an aggregate of this kind."""
        ...

    def follower_lag(self, fold: str, *, events: int, seconds: float) -> None:
        """Report how far a fold is behind the head of its stream."""
        ...

    def follower_halted(self, fold: str, *, halted: bool) -> None:
        """Report whether a fold is halted before an event that it cannot read or apply."""
        ...

    def dlq_depth(self, consumer: str, depth: int) -> None:
        """Report the number of parked items of a worker."""
        ...

    def gap(self, fold: str) -> None:
        """Count a gap after which a follower began again at its checkpoint."""
        ...

    def snapshot_age(self, fold: str, seconds: float) -> None:
        """Report the age of the newest snapshot of a fold."""
        ...


class NoMetrics:
    """Reports nothing."""

    def append(self, outcome: str, seconds: float) -> None:
        """Do nothing."""

    def conflict(self, kind: str) -> None:
        """Do nothing."""

    def follower_lag(self, fold: str, *, events: int, seconds: float) -> None:
        """Do nothing."""

    def follower_halted(self, fold: str, *, halted: bool) -> None:
        """Do nothing."""

    def dlq_depth(self, consumer: str, depth: int) -> None:
        """Do nothing."""

    def gap(self, fold: str) -> None:
        """Do nothing."""

    def snapshot_age(self, fold: str, seconds: float) -> None:
        """Do nothing."""


NO_METRICS = NoMetrics()
