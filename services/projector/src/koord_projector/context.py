"""What the loops of the projector share: progress, metrics, adapters and settings."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import EventLog
from koordcore.service.health import Condition
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.metrics import Metrics
from koordcore.service.telemetry.tracing import Tracer
from prometheus_client import Counter, Gauge, Histogram


@dataclass(slots=True, kw_only=True)
class Progress:
    """The progress of one projector: positions up to which it has folded and archived.

    Its loops set it; health checks, metrics, API and live tails read it.

    Attributes:
        ready: Readiness check of the fold in `/readyz`.
        position: Position of the newest committed fact.
        occurred_at: Time of that fact; "" before the first.
        head: Position of the newest fact of the log at the last check.
        observations: Position up to which observations are archived.
        explanations: Position up to which explanations are archived.
        trouble: Reason why the fold has stopped; "" while it runs.
        rebuild_wanted: Set when an operator requested a rebuild.
        has_folded: Whether this process has had the tables in its own version.
        free_looks: How often in a row no projector folded, while this one stood by for another version.
    """

    ready: Condition
    position: int = 0
    occurred_at: str = ""
    head: int = 0
    observations: int = 0
    explanations: int = 0
    trouble: str = ""
    rebuild_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    has_folded: bool = False
    free_looks: int = 0
    _committed: asyncio.Event = field(default_factory=asyncio.Event)

    def committed(self, position: int, occurred_at: str) -> None:
        """Record a committed transaction with facts up to `position`, and wake tasks that wait in `news`."""
        self.position = position
        if occurred_at:
            self.occurred_at = occurred_at
        self.head = max(self.head, position)
        self._committed.set()
        self._committed = asyncio.Event()

    async def news(self) -> None:
        """Wait until the next transaction with facts is committed."""
        await self._committed.wait()

    def halt(self, trouble: str) -> None:
        """Record that the fold has stopped before an event, with the reason. Rows stay readable."""
        self.trouble = trouble
        self.ready.unmet(trouble)

    def going_on(self) -> None:
        """Record that the fold continues after a halt. It becomes ready when it has reached the head of the log."""
        self.trouble = ""
        self.look()

    def look(self) -> None:
        """Update the readiness check: ready if the fold has not stopped and has reached the newest fact once."""
        if not self.trouble and self.position >= self.head:
            self.ready.met()

    async def rebuild_wanted_within(self, seconds: float) -> bool:
        """Wait up to `seconds` real seconds for an operator's request to rebuild the tables.

        Return whether there is one.
        """
        try:
            async with asyncio.timeout(seconds):
                await self.rebuild_wanted.wait()
        except TimeoutError:
            return False
        return True

    def lag_seconds(self, now: datetime) -> float:
        """Return the age in seconds of the last committed fact if the log has newer facts; else 0.

        It is also 0 if the time of the fact is invalid.
        """
        if self.position >= self.head or not self.occurred_at:
            return 0.0
        try:
            return max(0.0, (now - datetime.fromisoformat(self.occurred_at)).total_seconds())
        except (ValueError, TypeError):
            return 0.0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectorContext:
    """Adapters and settings that the loops of one projector use.

    Attributes:
        log: Log of facts.
        dsn: Address of Postgres, as libpq reads it.
        clock: Clock with which the lag is computed.
        progress: Progress of the projector.
        metrics: The projector's own metrics.
        tracer: Continues the traces of recorded events.
        logger: Logger of the projector.
        batch_events: Largest number of facts in one transaction.
    """

    log: EventLog
    dsn: str
    clock: Clock
    progress: Progress
    metrics: ProjectorMetrics
    tracer: Tracer
    logger: Logger
    batch_events: int
