"""The composition root: it chooses log and database, and creates the components of the projector."""

from koordcore.bus.factory import Bus
from koordcore.bus.read.report_gate import ReportGate
from koordcore.place import open_place
from koordcore.service.component import add_bus
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell

from koord_projector.archive import STORES, Archive, keep_archive
from koord_projector.comparing.comparison import Streams
from koord_projector.comparing.runs import Comparisons
from koord_projector.context import Progress, ProjectorContext, ProjectorMetrics
from koord_projector.cycle import project_facts
from koord_projector.pages import Dashboard
from koord_projector.projecting.feed import watch_head
from koord_projector.read.api import routes_of
from koord_projector.read.events import LiveTail
from koord_projector.read.status import request_server
from koord_projector.retention import FactRetention, Retention, delete_old_rows, drop_old_facts
from koord_projector.settings import ProjectorSettings
from koord_projector.store.database import Database


async def compose(shell: Shell[ProjectorSettings]) -> None:
    assemble(shell, add_bus(shell))


def assemble(shell: Shell[ProjectorSettings], bus: Bus) -> None:
    """Add all loops and routes. Tests pass adapters of the log of their own."""
    settings = shell.settings
    dsn = settings.address()
    database = Database(dsn, pool_size=settings.pool_size)
    progress = Progress(ready=shell.health.readiness_condition("facts", "loading"))
    if settings.rebuild:
        progress.rebuild_wanted.set()
    metrics = ProjectorMetrics(shell.metrics)
    context = ProjectorContext(
        log=bus.events,
        dsn=dsn,
        clock=shell.clock,
        progress=progress,
        metrics=metrics,
        tracer=shell.tracer,
        logger=shell.log,
        batch_events=settings.batch_events,
    )

    async def migrate() -> None:
        await database.migrate_patiently(shell.log)

    shell.service.add(Component(name="database", start=migrate, close=database.close))
    shell.service.add(Component(name="facts", run=lambda: project_facts(context)))
    shell.service.add(Component(name="head", run=lambda: watch_head(context)))
    if bus.connection is not None:
        comparisons = Comparisons(context, Streams(bus.observations, bus.explanations))
        requests = request_server(bus.connection, bus.names, database, progress, comparisons.answer)
        shell.service.add(Component(name="requests", run=requests.run))
    for stream, source in (("obs", bus.observations), ("explanations", bus.explanations)):
        archive = Archive(
            stream=stream,
            source=source,
            dsn=dsn,
            store=STORES[stream],
            batch=500,
            gate=ReportGate(shell.clock, metrics.passed_over),
            progress=progress,
            metrics=metrics,
            logger=shell.log,
        )
        shell.service.add(Component(name=f"archive-{stream}", run=lambda archive=archive: keep_archive(archive)))
    retention = Retention(
        database=database, clock=shell.clock, days=settings.archive_days, metrics=metrics, logger=shell.log
    )
    shell.service.add(Component(name="retention", run=lambda: delete_old_rows(retention)))
    if settings.fact_days is not None:
        facts = FactRetention(
            database=database,
            archive=open_place(settings.archive),
            clock=shell.clock,
            days=settings.fact_days,
            progress=progress,
            metrics=metrics,
            logger=shell.log,
        )
        shell.service.add(Component(name="fact-retention", run=lambda: drop_old_facts(facts)))
    tail = LiveTail(
        database,
        news=progress.news,
        position=lambda: progress.position,
        head=lambda: progress.head,
        stopped=shell.service.stopped,
    )
    routes = routes_of(database, cluster=settings.cluster, progress=progress, clock=shell.clock, tail=tail.stream)
    shell.http.audit.publish_to(bus.audit)
    shell.http.routes.extend([*routes, *Dashboard(settings.jaeger).routes()])
