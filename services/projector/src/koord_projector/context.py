"""What the loops of the projector share: progress, metrics, adapters and settings."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from koordcore.bus.refusals import Refusals
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import EventLog
from koordcore.service.health import Condition
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.metrics import Metrics
from koordcore.service.telemetry.tracing import Tracer
from prometheus_client import Counter, Gauge, Histogram


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far one projector has folded and archived. Its loops set it; checks, metrics, API and live tails read it."""

    ready: Condition  # Readiness check of the fold in `/readyz`
    position: int = 0  # of the newest committed fact
    occurred_at: str = ""  # of that fact; "" before the first
    head: int = 0  # Position of the newest fact of the log at the last check
    observations: int = 0  # Position up to which observations are archived
    explanations: int = 0  # Position up to which explanations are archived
    trouble: str = ""  # Reason why the fold has stopped; "" while it runs
    rebuild_wanted: asyncio.Event = field(default_factory=asyncio.Event)  # Set when an operator requested a rebuild
    keeps_facts: bool = False  # Whether the tables have facts that the log lacks, so that they may be the last copy
    may_discard: bool = False  # Whether the requested rebuild may delete facts that the log lacks
    has_folded: bool = False  # Whether this process has had the tables in its own version
    free_looks: int = 0  # How often in a row no projector folded, while this one stood by for another version
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
        """The fold has stopped before an event. Rows stay readable."""
        self.trouble = trouble
        self.ready.unmet(trouble)

    def going_on(self) -> None:
        """The fold continues after a halt. It becomes ready when it has reached the head of the log."""
        self.trouble = ""
        self.keeps_facts = False
        self.look()

    def look(self) -> None:
        """It is ready if it has not stopped and has reached the newest fact once."""
        if not self.trouble and self.position >= self.head:
            self.ready.met()

    async def rebuild_wanted_within(self, seconds: float) -> bool:
        """Wait up to so many real seconds for an operator's request to rebuild the tables."""
        try:
            async with asyncio.timeout(seconds):
                await self.rebuild_wanted.wait()
        except TimeoutError:
            return False
        return True

    def lag_seconds(self, now: datetime) -> float:
        """Age of the last committed fact if the log has newer facts; else, or if its time is invalid, 0."""
        if self.position >= self.head or not self.occurred_at:
            return 0.0
        try:
            return max(0.0, (now - datetime.fromisoformat(self.occurred_at)).total_seconds())
        except (ValueError, TypeError):
            return 0.0


FOLD = "projector"
"""Name of this fold in metrics and in `koord bus skip`."""


class ProjectorMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._bus = metrics.bus
        self.passed_over = Refusals(FOLD, metrics.bus)  # Messages that the fold has passed over
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
        """`seconds` are real seconds."""
        self._events.inc(events)
        self._seconds.observe(seconds)
        self._position.set(position)

    def halted(self, halted: bool) -> None:
        self._bus.follower_halted(FOLD, halted=halted)

    def lag(self, events: int, seconds: float) -> None:
        """Number of missing facts, and seconds as `Progress.lag_seconds` returns them."""
        self._bus.follower_lag(FOLD, events=max(0, events), seconds=seconds)

    def archived(self, stream: str, rows: int, unreadable: int) -> None:
        """`unreadable`: number of messages that were left out, because they cannot be decoded or get no row."""
        self._archived.labels(stream).inc(rows)
        self._unreadable.labels(stream).inc(unreadable)

    def pruned(self, table: str, rows: int) -> None:
        self._pruned.labels(table).inc(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectorContext:
    log: EventLog  # Log of facts
    dsn: str  # Address of Postgres, as libpq reads it
    clock: Clock  # Clock with which the lag is computed
    progress: Progress
    metrics: ProjectorMetrics  # The projector's own metrics
    tracer: Tracer  # Continues the traces of recorded events
    logger: Logger
    batch_events: int  # Largest number of facts in one transaction
