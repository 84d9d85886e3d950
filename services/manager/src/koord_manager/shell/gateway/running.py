"""Run all parts of the gateway while this instance leads.

When a term begins, the log is folded to its head. Then list-watches, ingest, outbox, event recorder and sweeps run as
tasks until the term ends. Each term starts with empty state, so the next leader needs no state of a killed one.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from koordcore.bus.client.connection import NoAnswer, NotConnected
from koordcore.bus.folds.foldable import Folded
from koordcore.ending import end_tasks
from koordcore.events.envelope import AggregateRef, Event, Origin, name_token
from koordcore.events.observation import NodeUsageReported
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import EventLog, ObservationLog
from koordcore.ports.leadership import Leadership, Term
from koordcore.retry import Backoff, retry
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.tracing import Tracer
from koordcore.state.aggregates import NodeSpecState, PodSpecState
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.cluster.work_queue import WorkQueue
from koord_manager.domain.gateway.change_budget import DEFAULT_BYTES_PER_MINUTE, ChangeBudget
from koord_manager.domain.gateway.mirror import mirrored_count
from koord_manager.domain.gateway.pending_writes import NODE, PendingWrites
from koord_manager.domain.gateway.pod_status_writes import KubernetesEvent
from koord_manager.domain.gateway.resources import Mirrored
from koord_manager.shell.appender import is_misconfigured
from koord_manager.shell.gateway.api import KubernetesApi
from koord_manager.shell.gateway.epoch import EpochCheck
from koord_manager.shell.gateway.event_recorder import EventRecorder
from koord_manager.shell.gateway.fact_appender import ErrorBoundary, FactAppender, NotLeading
from koord_manager.shell.gateway.ingest import NODE_METRICS, Ingest
from koord_manager.shell.gateway.listwatch import ListWatch, OutageLog, Sighting
from koord_manager.shell.gateway.metrics import GatewayMetrics
from koord_manager.shell.gateway.node_metrics import NodeMetrics
from koord_manager.shell.gateway.outbox import Outbox, Writes
from koord_manager.shell.gateway.scale_reader import ScaleReader
from koord_manager.shell.gateway.sweep import Sweep

MISCONFIGURED_SECONDS: Final = 300.0
"""Longest pause before a misconfigured log is tried again."""
PROGRESS_SECONDS: Final = 2.0
"""Seconds between two lines of the log about how many objects are listed and stored, while they are."""
_IMPORTED: Final = ("nodes", "pods", "namespaces")
"""Resources that a first import waits for."""
QUEUE: Final = 16
"""Maximum number of pages and batches that wait for the ingest, so that a slow log slows the lists."""


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """Settings of the gateway. All times are seconds of the host's clock, also in a run with simulated time."""

    resources: tuple[Mirrored, ...]
    writes: Writes = field(default_factory=Writes)
    condition_reasons: bool = True  # See `EventRecorder.true_reasons`
    node_metric_status: bool = False  # Whether usage reports of our agents are written as status of NodeMetric objects
    watch_seconds: float = 300.0  # Minimum time for which the API server keeps a watch open
    idle_seconds: float = 150.0  # Time without a line after which a watch is opened again
    resync_seconds: float = 0.0  # Interval of complete lists, or 0 for none
    # Interval between comparisons of fold and API server (event-bus spec, 9.3), or 0 for none.
    sweep_seconds: float = 600.0
    # Bytes of changes that the objects of one namespace may write to the log per minute; see `ChangeBudget`.
    namespace_bytes_per_minute: int = DEFAULT_BYTES_PER_MINUTE
    report_seconds: float = 5.0  # Interval at which new reports are looked for, to be written as NodeMetric status
    epoch_namespace: str = "koordinator-system"  # Namespace of the ConfigMap with the cluster's epoch


@dataclass(frozen=True, kw_only=True)
class GatewayContext:
    api: KubernetesApi
    view: ManagerView
    log: EventLog
    observations: ObservationLog
    explanations: ObservationLog
    leadership: Leadership
    clock: Clock
    tracer: Tracer
    logger: Logger
    actor: str  # Name of the service in the facts that it writes
    instance: str  # Name of this process in Kubernetes events
    folded: Callable[[int], Awaitable[None]]  # Waits until the event at a position is folded
    metrics: GatewayMetrics = field(default_factory=GatewayMetrics)
    # Called for each key that is taken from the work queue, with its controller and the seconds that it was ready.
    taken: Callable[[str, float], None] | None = None
    # Called after each page of a first import: nearly all that the process has then lives as long as the process.
    import_grew: Callable[[], None] = lambda: None


class Gateway:
    """The gateway of one instance: `run` is its main loop, and `news` receives the folded events."""

    def __init__(self, context: GatewayContext, settings: GatewaySettings) -> None:
        self._context = context
        self._settings = settings
        self._term: _TermOfGateway | None = None
        self._epoch = EpochCheck(
            context.api,
            context.view,
            context.leadership,
            context.clock,
            context.logger,
            context.instance,
            settings.epoch_namespace,
        )

    @property
    def outdated(self) -> str | None:
        """Reason why this instance must not mirror or write, or None.

        A newer log was begun for this cluster, or this instance leads and the epoch is unknown.
        """
        return self._epoch.problem

    @property
    def is_idle(self) -> bool:
        """Whether this instance leads, has listed every resource, and has no pending write."""
        return self._term is not None and self._term.problem is None and self._term.is_idle

    @property
    def importing(self) -> str | None:
        """Sentence that says how far the first import is, or None if there is none.

        In it, this instance leads over a log that had no node and no pod, and has not listed nodes, pods and namespaces
        yet. Each node would be decided anew for each page that has a pod of it, so no controller decides until its end.
        """
        term = self._term
        return term.progress if term is not None and term.is_first and term.is_importing else None

    @property
    def queue(self) -> WorkQueue | None:
        """Work queue of the present term, or None if this instance does not lead."""
        return self._term.queue if self._term is not None else None

    async def news(self, folded: list[Folded]) -> None:
        """Queue the writes that become necessary by folded events. No-op if this instance does not lead."""
        if self._term is not None:
            self._term.note([(item.stored.ref, item.result) for item in folded if isinstance(item.result, Event)])

    async def run(self) -> None:
        context = self._context
        stopped = Backoff(1.0, MISCONFIGURED_SECONDS)
        while True:
            term = await context.leadership.acquired()
            await context.folded((await retry(context.log.head, (NoAnswer, NotConnected))).last_seq)
            if not await self._epoch.allows(term):
                continue
            context.logger.info("gateway_begins", epoch=term.epoch, host=context.api.host)
            self._term = _TermOfGateway(context, self._settings)
            try:
                await self._lead(self._term, term)
                stopped.reset()
            except Exception as error:
                if not is_misconfigured(error):
                    raise
                # nothing is mirrored or written that cannot be recorded; admission goes on
                context.metrics.failed("log")
                context.logger.error("gateway_stopped", reason=str(error))
            finally:
                self._term = None
            context.logger.info("gateway_ends", epoch=term.epoch)
            if context.leadership.term is term:
                await stopped.wait()

    async def _lead(self, work: "_TermOfGateway", term: Term) -> None:
        working = asyncio.create_task(work.run())
        lost = asyncio.create_task(self._context.leadership.lost(term))
        try:
            await asyncio.wait((working, lost), return_when=asyncio.FIRST_COMPLETED)
            if working.done() and not lost.done():
                with contextlib.suppress(NotLeading):
                    await working  # raises what broke it: the process ends rather than going on with half of it
        finally:
            await end_tasks(working, lost)


class _TermOfGateway:
    def __init__(self, context: GatewayContext, settings: GatewaySettings) -> None:
        self._context = context
        self._settings = settings
        state = context.view.state
        self.is_first = not (state.of_kind(NodeSpecState) or state.of_kind(PodSpecState))
        self._queue: asyncio.Queue[Sighting] = asyncio.Queue(QUEUE)
        self._pending_writes = PendingWrites(lambda: 0.5 + random.random())  # noqa: S311 - spreads the load of retries
        self._pending_writes.queue.on_take = context.taken
        self._pending_writes.seed(context.view, context.clock.now())
        self._facts = FactAppender(
            context.view,
            context.log,
            context.leadership,
            context.clock,
            context.tracer,
            context.logger,
            context.folded,
            context.actor,
        )
        self._ingest = Ingest(
            self._facts,
            self._queue,
            report=self._report,
            changed=self._known_changed,
            errors=self._errors("ingest"),
            page_stored=self._page_stored,
            budget=ChangeBudget(settings.namespace_bytes_per_minute),
            delayed=context.metrics.delayed,
            logger=context.logger,
        )
        self._outbox = Outbox(
            context.api,
            self._facts,
            self._pending_writes,
            self._ingest.known,
            context.logger,
            writes=settings.writes,
            counted=context.metrics.written,
            spoken=lambda: self._words.wake(),
            errors=self._errors("outbox"),
        )
        self._words = EventRecorder(
            context.api,
            context.view,
            self._pending_writes,
            context.explanations,
            context.clock,
            context.logger,
            context.instance,
            context.metrics.written,
            self._errors("events"),
            true_reasons=settings.condition_reasons,
        )
        self._scales = ScaleReader(
            context.api, self._facts, context.logger, context.metrics.scale_read, self._errors("scales")
        )
        outages = OutageLog(context.logger, time.monotonic)
        self._watches = [
            ListWatch(
                context.api,
                resource,
                self._queue,
                context.logger,
                watch_seconds=settings.watch_seconds,
                idle_seconds=settings.idle_seconds,
                resync_seconds=settings.resync_seconds,
                outages=outages,
                tell=self._tell,
            )
            for resource in settings.resources
        ]
        self._node_metrics = NodeMetrics(
            context.api,
            self._facts,
            lambda: self._ingest.known.get(NODE_METRICS, {}),
            context.metrics.written,
            self._errors("reports"),
            every=settings.report_seconds,
        )

    def _page_stored(self) -> None:
        if self.is_first and self.is_importing:
            self._context.import_grew()

    def _tell(self, event: KubernetesEvent) -> None:
        self._pending_writes.events.append(event)
        self._words.wake()

    def _errors(self, part: str) -> ErrorBoundary:
        return ErrorBoundary(part, self._context.logger, self._context.metrics.failed)

    @property
    def problem(self) -> str | None:
        """Sentence that names the resources that were not listed yet, or None if all were."""
        missing = [item.name for item in self._settings.resources if item.name not in self._ingest.reached]
        return f"not listed yet: {', '.join(missing)}" if missing else None

    @property
    def is_importing(self) -> bool:
        """Whether nodes, pods or namespaces are not listed yet. Others may never be: the webhook of a CRD may fail."""
        return any(
            item.name in _IMPORTED and item.name not in self._ingest.reached for item in self._settings.resources
        )

    @property
    def progress(self) -> str:
        """Sentence that says how many objects of the API server the log has, of all that are known so far."""
        stored, of = self._stored_of()
        return f"{stored:,} of {of:,} objects of the API server are imported, {self.problem}"

    def _stored_of(self) -> tuple[int, int]:
        """Return how many objects are in the log or need no fact, and about how many the API server has."""
        stored = mirrored_count(self._context.view) + sum(map(len, self._ingest.known.values()))
        return stored, max(stored, sum(watch.figures.expected for watch in self._watches))

    @property
    def is_idle(self) -> bool:
        return self._outbox.is_idle and self._words.is_idle and self._queue.empty()

    @property
    def queue(self) -> WorkQueue:
        return self._pending_writes.queue

    def note(self, folded: list[tuple[AggregateRef, Event]]) -> None:
        """Queue the writes, Kubernetes events and questions about scales that folded events require."""
        self.queue.begin(asyncio.get_running_loop().time())
        errors = self._errors("pending-writes")
        for ref, event in folded:
            with errors(ref):
                self._pending_writes.note(self._context.view, [(ref, event)])
                self._scales.note(event)
        self._outbox.wake()
        self._words.wake()

    async def run(self) -> None:
        tasks = [watch.run() for watch in self._watches]
        tasks += [self._ingest.run(), self._write_out(), self._words.say(), self._listen(), self._watch_figures()]
        tasks.append(self._scales.run())
        if self._settings.node_metric_status:
            tasks.append(self._node_metrics.run())
        if self._settings.sweep_seconds:
            tasks.append(self._sweep())
        running = [asyncio.ensure_future(task) for task in tasks]
        try:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await end_tasks(*running)

    async def _write_out(self) -> None:
        """Start to write after every resource was listed: writes are compared with the objects of the API server."""
        logger, told = self._context.logger, asyncio.get_running_loop().time()
        while self.problem is not None:
            self._ingest.progress.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(told + PROGRESS_SECONDS):
                    await self._ingest.progress.wait()
            if asyncio.get_running_loop().time() >= told + PROGRESS_SECONDS:
                told = asyncio.get_running_loop().time()
                stored, of = self._stored_of()
                logger.info("gateway_lists", stored=stored, of=of, facts=self._ingest.facts, problem=self.problem)
        logger.info("gateway_listed", facts=self._ingest.facts)
        await self._outbox.run()

    async def _listen(self) -> None:
        await retry(self._words.listen, (NoAnswer, NotConnected), backoff=Backoff(0.5, 10.0))

    async def _sweep(self) -> None:
        context, errors = self._context, self._errors("sweep")
        sweep = Sweep(
            context.api,
            self._facts,
            self._settings.resources,
            context.logger,
            context.metrics,
            errors,
            self._ingest.budget.is_waiting,
        )
        while True:
            await asyncio.sleep(self._settings.sweep_seconds)
            with errors("the whole sweep"):
                await sweep.once()

    def _known_changed(self, plural: str, name: str) -> None:
        if plural in ("nodeslos", NODE_METRICS):
            self._pending_writes.queue.add(NODE, name_token(name))
            self._outbox.wake()

    async def _report(self, node: str, report: NodeUsageReported) -> None:
        """Publish a report of Koordinator's node agent as if our agent had sent it."""
        context = self._context
        term = context.leadership.term
        origin = Origin(
            causation_id=f"nodemetric/{node}/{report.updated_at}",
            correlation_id=node,
            actor=context.actor,
            occurred_at=rfc3339(context.clock.now()),
            epoch=term.epoch if term else 0,
            based_on=context.view.state.position,
        )
        await context.observations.publish(AggregateRef("node", name_token(node)), report, origin)

    async def _watch_figures(self) -> None:
        while True:
            self._context.metrics.waiting(len(self._ingest.budget))
            self._context.metrics.watches({watch.resource.name: watch.figures for watch in self._watches})
            await asyncio.sleep(1.0)
