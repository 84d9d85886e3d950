"""Metrics of the projector itself."""

from koordcore.service.telemetry.metrics import Metrics
from prometheus_client import Counter, Gauge, Histogram

FOLD = "projector"
"""Name of this fold in metrics and in `koord bus skip`."""


class ProjectorMetrics:
    """Prometheus metrics of the projector's own work."""

    def __init__(self, metrics: Metrics) -> None:
        self._bus = metrics.bus
        registry = metrics.registry
        self._events = Counter("koord_projector_events", "Facts whose rows are committed", registry=registry)
        self._position = Gauge("koord_projector_position", "Position of the newest committed fact", registry=registry)
        self._seconds = Histogram(
            "koord_projector_batch_seconds",
            "Folding and committing one batch of facts",
            registry=registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
        )
        self._archived = Counter("koord_projector_archived", "Messages archived", ["stream"], registry=registry)
        self._unreadable = Counter(
            "koord_projector_unreadable", "Messages of lossy streams passed over", ["stream"], registry=registry
        )
        self._pruned = Counter(
            "koord_projector_pruned", "Rows of archives that were deleted for their age", ["table"], registry=registry
        )
        self._bus.follower_halted(FOLD, halted=False)

    def batch(self, events: int, seconds: float, position: int) -> None:
        """Report a committed transaction: number of facts, duration in real seconds, and new position."""
        self._events.inc(events)
        self._seconds.observe(seconds)
        self._position.set(position)

    def halted(self, halted: bool) -> None:
        """Report whether the fold has stopped before an event that it cannot decode."""
        self._bus.follower_halted(FOLD, halted=halted)

    def lag(self, events: int, seconds: float) -> None:
        """Report the lag of the tables: number of missing facts, and seconds as `Progress.lag_seconds` returns them."""
        self._bus.follower_lag(FOLD, events=max(0, events), seconds=seconds)

    def archived(self, stream: str, rows: int, unreadable: int) -> None:
        """Report a committed transaction of an archive.

        Args:
            stream: Name of the archived stream.
            rows: Number of its rows.
            unreadable: Number of messages that were left out, because they cannot be decoded or get no row.
        """
        self._archived.labels(stream).inc(rows)
        self._unreadable.labels(stream).inc(unreadable)

    def pruned(self, table: str, rows: int) -> None:
        """Report the number of old rows that a transaction has deleted from an archive."""
        self._pruned.labels(table).inc(rows)
