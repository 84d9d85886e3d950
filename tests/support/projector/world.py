"""A projector on a memory log and a real Postgres, without HTTP: what most tests of this folder drive."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from koord_projector.archive import STORES, Archive, keep_archive
from koord_projector.context import Progress, ProjectorContext, ProjectorMetrics
from koord_projector.cycle import project_facts
from koord_projector.fold.pods import Phase
from koord_projector.projecting.feed import watch_head
from koord_projector.store.database import Database
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog, MemoryObservationLog
from koordcore.bus.read.report_gate import ReportGate
from koordcore.events.envelope import StoredEvent, name_token
from koordcore.service.clock import SystemClock
from koordcore.service.health import Health
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.metrics import Metrics
from koordcore.service.telemetry.tracing import Tracer
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeAgentState, PodSpecState, PodState
from koordcore.values.allocation import is_reservation
from support.bus.storing_times import stored_when_told
from support.until import until

TABLES = (
    "events",
    "aggregates",
    "aggregate_lives",
    "aggregate_versions",
    "modifications",
    "pods",
    "node_versions",
    "node_names",
    "cluster_series",
)
"""The tables that a rebuild fills from the log."""


@dataclass
class Projector:
    """One projector with its log."""

    database: Database
    log: MemoryLog = field(default_factory=MemoryLog)
    observations: MemoryObservationLog = field(default_factory=MemoryObservationLog)
    explanations: MemoryObservationLog = field(default_factory=MemoryObservationLog)
    health: Health = field(default_factory=Health)
    batch_events: int = 2000
    tracer: Tracer = field(default_factory=lambda: Tracer("projector"))

    def __post_init__(self) -> None:
        stored_when_told(self.log, self.observations.log, self.explanations.log)
        self.metrics = Metrics("projector")
        self.progress = Progress(ready=self.health.readiness_condition("facts", "loading"))
        metrics = ProjectorMetrics(self.metrics)
        self.context = ProjectorContext(
            log=MemoryEventLog(self.log),
            dsn=self.database.dsn,
            clock=SystemClock(),
            progress=self.progress,
            metrics=metrics,
            tracer=self.tracer,
            logger=logger("projector"),
            batch_events=self.batch_events,
        )
        sources = {"obs": self.observations, "explanations": self.explanations}
        self.archives = [
            Archive(
                stream=stream,
                source=source,
                dsn=self.database.dsn,
                store=STORES[stream],
                batch=500,
                gate=ReportGate(SystemClock(), metrics.passed_over),
                progress=self.progress,
                metrics=metrics,
                logger=logger("projector"),
            )
            for stream, source in sources.items()
        ]

    def write(self, events: Sequence[StoredEvent]) -> None:
        """Appends events as they are; their sequences must continue the log's.

        Each is stored when its writer says that it occurred; so are reports and explanations.
        """
        for event in events:
            assert self.log.store(event.ref, dict(event.headers), event.body) == event.seq

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Projector"]:
        """Migrated and folding, until the block ends (or the fold fails)."""
        await self.database.migrate()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(project_facts(self.context)), group.create_task(watch_head(self.context))]
            tasks += [group.create_task(keep_archive(archive)) for archive in self.archives]
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()

    async def caught_up(self) -> None:
        """Wait until every fact of the log is committed."""
        await until(lambda: self.progress.position == self.log.last_seq and not self.progress.trouble)


def pods_by_fold(state: ClusterState) -> dict[str, tuple[Phase, str]]:
    """Uid -> phase and node, from the states of the aggregates."""
    found: dict[str, tuple[Phase, str]] = {}
    specs, places, agents = (state.of_kind(kind) for kind in (PodSpecState, PodState, NodeAgentState))
    for uid in {*specs, *places}:
        place = places.get(uid)
        node = place.node if isinstance(place, PodState) else ""
        is_reserved = isinstance(place, PodState) and is_reservation(uid, place.allocation)
        if is_reserved or (uid not in specs and not node):
            continue
        agent = agents.get(name_token(node))
        if uid not in specs:
            phase = Phase.TERMINATING
        elif not node:
            phase = Phase.PENDING
        else:
            phase = Phase.RUNNING if isinstance(agent, NodeAgentState) and uid in agent.running else Phase.PLACED
        found[uid] = (phase, node)
    return found


@asynccontextmanager
async def projector(dsn: str, **options: object) -> AsyncGenerator[Projector]:
    """A projector that is not running yet on a database of this address."""
    database = Database(dsn)
    try:
        yield Projector(database, **options)  # type: ignore[arg-type]
    finally:
        with suppress(Exception):
            await database.close()
