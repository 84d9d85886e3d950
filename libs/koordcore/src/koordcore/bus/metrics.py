"""What the adapters report, as a Protocol.

`koordcore.service.telemetry.metrics.BusMetrics` turns it into Prometheus series.

Source:
    event-bus spec, 12
"""

from typing import Protocol


class BusMetrics(Protocol):
    """Figures of the log's use in this process."""

    def append(self, outcome: str, seconds: float) -> None:
        """One append has its outcome: `appended`, `duplicate`, `conflict`, `full`, `unavailable`, `misconfigured`."""
        ...

    def conflict(self, kind: str) -> None:
        """An expectation was refused for an aggregate of this kind."""
        ...

    def follower_lag(self, fold: str, *, events: int, seconds: float) -> None:
        """How far a fold is behind the head of its stream."""
        ...

    def follower_halted(self, fold: str, *, halted: bool) -> None:
        """Whether a fold stopped before an event that it cannot read or apply."""
        ...

    def dlq_depth(self, consumer: str, depth: int) -> None:
        """How many items of a worker are parked."""
        ...

    def gap(self, fold: str) -> None:
        """A follower saw a gap and began again at its checkpoint."""
        ...

    def snapshot_age(self, fold: str, seconds: float) -> None:
        """Age of the newest snapshot of a fold."""
        ...


class NoMetrics:
    """Reports nothing."""

    def append(self, outcome: str, seconds: float) -> None:
        """Nothing."""

    def conflict(self, kind: str) -> None:
        """Nothing."""

    def follower_lag(self, fold: str, *, events: int, seconds: float) -> None:
        """Nothing."""

    def follower_halted(self, fold: str, *, halted: bool) -> None:
        """Nothing."""

    def dlq_depth(self, consumer: str, depth: int) -> None:
        """Nothing."""

    def gap(self, fold: str) -> None:
        """Nothing."""

    def snapshot_age(self, fold: str, seconds: float) -> None:
        """Nothing."""


NO_METRICS = NoMetrics()
