"""Feed the view with the facts of the log and the usage reports of nodes.

The runner of `koordcore.bus.folds.runner` drives `ViewFold`. The view lives as long as the process; snapshots are
loaded into it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

from koordcore.bus.client.connection import patiently
from koordcore.bus.factory import Bus
from koordcore.bus.folds.foldable import Folded, FoldSource
from koordcore.bus.folds.runner import FoldRunner
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.bus.read.report_gate import ReportGate
from koordcore.bus.refusals import Refusals, Refused
from koordcore.events.envelope import AggregateRef, Event, StoredEvent
from koordcore.events.nodestate import PodsEvictedByAgent, PodsStarted
from koordcore.events.observation import NodeUsageReported, PodUsage
from koordcore.ports.eventlog import ObservationLog
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import Logger
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint
from koordcore.state.pods_of_nodes import is_elsewhere, own_report

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.recommender.book import RecommenderBook

FOLDED_AT_ONCE: Final = 100
"""Events folded before other tasks run; some milliseconds."""
REPORTS_AT_ONCE: Final = 20
"""Reports taken in before other tasks run."""


class ViewFold:
    """The manager's view in the form that the runner of folds drives: apply events, save and load snapshots."""

    def __init__(self, view: ManagerView) -> None:
        self._view = view

    def apply(self, stored: StoredEvent) -> Event | None:
        return self._view.fold(stored)

    def skip(self, seq: int) -> None:
        self._view.state.skip(seq)

    def snapshot(self) -> Iterator[bytes]:
        return self._view.state.snapshot()

    def fresh(self) -> "ViewFold":
        self._view.load(ClusterState())
        return self

    def restore(self, data: bytes) -> "ViewFold":
        self._view.load(ClusterState.restore(data))
        return self


def view_runner(
    view: ManagerView,
    bus: Bus,
    news: Callable[[list[Folded]], Awaitable[None]],
    metrics: BusMetrics = NO_METRICS,
) -> FoldRunner[ViewFold]:
    """Return a runner that folds the log into a view. It pauses between parts, so that admission answers meanwhile.

    Args:
        news: Called with the events that were just folded; the fold waits for it.
    """
    fold = ViewFold(view)

    async def folded(_fold: ViewFold, events: list[Folded]) -> None:
        if runner.is_caught_up:
            _tell_foreign(view, events, runner.refusals)
        await news(events)
        await asyncio.sleep(0)  # what has been received already is handed over without a pause

    runner = FoldRunner(
        "manager",
        bus.events,
        FoldSource(fold.fresh, fold.restore, schema_fingerprint()),
        SystemClock(),
        snapshots=bus.snapshots,
        on_batch=folded,
        metrics=metrics,
        batch=FOLDED_AT_ONCE,
    )
    return runner


def _tell_foreign(view: ManagerView, events: Iterable[Folded], refusals: Refusals) -> None:
    """Tell of nodes that want to evict, or say that they have started, pods that are on other nodes."""
    for stored, event in events:
        match event:
            case PodsEvictedByAgent():
                uids = [pod.uid for pod in event.pods]
            case PodsStarted():
                uids = event.pods
            case _:
                continue
        if foreign := [uid for uid in uids if is_elsewhere(view.state, uid, stored.ref.id)]:
            reason = f"{stored.type} names the pod {foreign[0]}, which is on another node"
            refusals.note(stored.ref.id, Refused.FOREIGN_POD, stored.seq, reason)


async def follow_reports(
    view: ManagerView, book: RecommenderBook, observations: ObservationLog, gate: ReportGate, logger: Logger
) -> None:
    """Read the newest usage report of every node, then follow all further reports, until cancelled.

    A report that the gate passes over is skipped; then the batch resources of the node expire.

    Args:
        view: Gets the newest report of each node, without pods of other nodes.
        observations: The stream of reports.
    """
    newest = await patiently(lambda: observations.latest([AggregateRef("node", token) for token in view.nodes()]))
    for begin in range(0, len(newest), REPORTS_AT_ONCE):
        for stored in newest[begin : begin + REPORTS_AT_ONCE]:
            _observe(view, None, stored, gate, logger)
        await asyncio.sleep(0)
    async for batch in observations.follow(book.position, batch=REPORTS_AT_ONCE):
        for stored in batch:
            _observe(view, book, stored, gate, logger)
        await asyncio.sleep(0)


def _observe(
    view: ManagerView, book: RecommenderBook | None, stored: StoredEvent, gate: ReportGate, logger: Logger
) -> None:
    node = stored.ref.id
    report = gate.read(stored, is_counted=book is not None)
    if report is not None:
        own, foreign = own_report(view.state, node, report, view.uid_of)
        if foreign and book is not None:
            gate.refusals.note(node, Refused.FOREIGN_POD, stored.seq, foreign_reason(foreign[0], len(foreign)))
        view.observe(stored.seq, node, own)
        if book is not None:
            learn(view, book, stored, own, logger)


def foreign_reason(first: PodUsage, count: int) -> str:
    more = f" and {count - 1} more" if count > 1 else ""
    return f"it reports the usage of {first.namespace}/{first.name}{more}, which is not on this node"


def learn(
    view: ManagerView, book: RecommenderBook, stored: StoredEvent, report: NodeUsageReported, logger: Logger
) -> None:
    """Let the recommender learn from a report. An error is logged, and the samples that were learned before it stay."""
    try:
        book.observe(view, stored.seq, stored.ref.id, report)
    except Exception as error:  # noqa: BLE001 - one node's report must not end the intake of all
        logger.error("report_not_learned", node=stored.ref.id, seq=stored.seq, error=f"{type(error).__name__}: {error}")
