"""The metrics that bus adapters report.

`koordcore.service.telemetry.metrics.BusMetrics` exports them to Prometheus.

Source:
    event-bus spec, 12
"""


class BusMetrics:
    """Receives measurements of this process's use of the log. This base class discards them."""

    def append(self, outcome: str, seconds: float) -> None:
        """Count an append by outcome: `appended`, `duplicate`, `conflict`, `full`, `unavailable`, `misconfigured`."""

    def conflict(self, kind: str) -> None:
        """Count an append that was refused because an aggregate of this kind had newer events."""

    def follower_lag(self, fold: str, *, events: int, seconds: float) -> None:
        """Report the distance of a fold from the head of its stream."""

    def follower_halted(self, fold: str, *, halted: bool) -> None:
        """Report whether a fold is halted before an event that it cannot read or apply."""

    def dlq_depth(self, consumer: str, depth: int) -> None:
        """Report the number of parked work items of a consumer."""

    def gap(self, fold: str) -> None:
        """Count a gap after which a follower restarted at its checkpoint."""

    def snapshot_age(self, fold: str, seconds: float) -> None:
        """Report the age of the newest snapshot of a fold."""


NO_METRICS = BusMetrics()
