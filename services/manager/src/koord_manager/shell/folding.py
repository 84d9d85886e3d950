"""The manager's fold of the facts, and its intake of usage reports: what feeds the view.

The runner of `koordcore.bus.folds.runner` drives `ViewFold`; the view object stays the same for the life of the
process, also when a snapshot is loaded into it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Final

from koordcore.bus.factory import Bus
from koordcore.bus.folds.foldable import Folded, FoldSource
from koordcore.bus.folds.patience import patiently
from koordcore.bus.folds.runner import FoldRunner
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.events import CATALOGUE
from koordcore.events.agents.observation import NodeUsageReported
from koordcore.events.envelope import AggregateRef, Event, StoredEvent
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.observations import ObservationLog
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import Logger
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.recommender.book import RecommenderBook

FOLDED_AT_ONCE: Final = 100
"""Events folded without letting others in: some milliseconds."""
REPORTS_AT_ONCE: Final = 20
"""Reports of nodes, each with its pods, likewise."""


class ViewFold:
    """The view as the fold runner wants it."""

    def __init__(self, view: ManagerView) -> None:
        self._view = view

    def apply(self, stored: StoredEvent) -> Event | None:
        """Fold one event."""
        return self._view.fold(stored)

    def skip(self, seq: int) -> None:
        """Pass over one event."""
        self._view.state.skip(seq)

    def snapshot(self) -> Iterator[bytes]:
        """The state as it is now, as bytes in pieces."""
        return self._view.state.snapshot()

    def fresh(self) -> "ViewFold":
        """The same fold over an empty state."""
        self._view.load(ClusterState())
        return self

    def restore(self, data: bytes) -> "ViewFold":
        """The same fold over a snapshot's state."""
        self._view.load(ClusterState.restore(data))
        return self


def view_runner(
    view: ManagerView,
    bus: Bus,
    news: Callable[[list[Folded]], Awaitable[None]],
    metrics: BusMetrics = NO_METRICS,
) -> FoldRunner[ViewFold]:
    """What folds the log into a view: a burst is folded in parts, so that admission answers between them.

    news    is handed what was folded; the fold waits for it
    """
    fold = ViewFold(view)

    async def folded(_fold: ViewFold, events: list[Folded]) -> None:
        await news(events)
        await asyncio.sleep(0)  # what has been received already is handed over without a pause

    return FoldRunner(
        "manager",
        bus.events,
        FoldSource(fold.fresh, fold.restore, schema_fingerprint()),
        SystemClock(),
        snapshots=bus.snapshots,
        on_batch=folded,
        metrics=metrics,
        batch=FOLDED_AT_ONCE,
    )


async def follow_reports(
    view: ManagerView, book: RecommenderBook, observations: ObservationLog, logger: Logger
) -> None:
    """Takes in the newest report of every node, then every further one, for ever.

    A report that cannot be read is left out: the node's batch resources then expire as if it had not come.
    book    takes in every report after its position; the view the newest of each node
    """
    newest = await patiently(lambda: observations.latest([AggregateRef("node", token) for token in view.nodes()]))
    for begin in range(0, len(newest), REPORTS_AT_ONCE):
        for stored in newest[begin : begin + REPORTS_AT_ONCE]:
            _observe(view, None, stored, logger)
        await asyncio.sleep(0)
    async for batch in observations.follow(book.position, batch=REPORTS_AT_ONCE):
        for stored in batch:
            _observe(view, book, stored, logger)
        await asyncio.sleep(0)


def _observe(view: ManagerView, book: RecommenderBook | None, stored: StoredEvent, logger: Logger) -> None:
    report = read_report(stored, logger)
    if report is not None:
        view.observe(stored.seq, stored.ref.id, report)
        if book is not None:
            learn(view, book, stored, report, logger)


def read_report(stored: StoredEvent, logger: Logger) -> NodeUsageReported | None:
    """The report of an observation; None: it is another observation, or it cannot be used, which is logged."""
    try:
        report = CATALOGUE.read(stored)
        if not isinstance(report, NodeUsageReported):
            return None
        if datetime.fromisoformat(report.updated_at).tzinfo is None:
            raise ValueError(f"updatedAt {report.updated_at!r} has no time zone")
    except UnreadableEvent as error:
        logger.warning("report_unreadable", node=stored.ref.id, seq=stored.seq, reason=error.reason)
        return None
    except ValueError as error:
        logger.warning("report_unreadable", node=stored.ref.id, seq=stored.seq, reason=str(error))
        return None
    return report


def learn(
    view: ManagerView, book: RecommenderBook, stored: StoredEvent, report: NodeUsageReported, logger: Logger
) -> None:
    """The recommender takes in a report; of one that it cannot work with, what it had taken in before that."""
    try:
        book.observe(view, stored.seq, report)
    except Exception as error:  # noqa: BLE001 - one node's report must not end the intake of all
        logger.error("report_not_learned", node=stored.ref.id, seq=stored.seq, error=f"{type(error).__name__}: {error}")
