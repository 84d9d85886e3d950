"""Feed the view with the facts of the log and the usage reports of nodes, and keep it current.

After a start, the views of all pods have to be made: seconds of work for 150,000 pods. They are made in short pieces,
between which other work of the process runs.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from koordcore.bus.client.connection import patiently
from koordcore.bus.factory import Bus
from koordcore.bus.folds.foldable import FoldSource
from koordcore.bus.folds.runner import FoldRunner
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.bus.read.report_gate import ReportGate
from koordcore.events.envelope import Event, StoredEvent
from koordcore.ports.eventlog import ObservationLog
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import Logger
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint

from koord_descheduler.domain.view.building import KINDS, ViewBuilder
from koord_descheduler.shell.metrics import AuditCounter

FOLD = "descheduler"
_REPORTS_AT_ONCE: Final = 50
"""Reports that are stored without yielding to other tasks. A report has the usage of all pods of its node."""


class ViewFold:
    """The builder of views in the form that the runner of folds drives. Without `audit`, nobody counts."""

    def __init__(self, builder: ViewBuilder, audit: AuditCounter | None = None) -> None:
        self._builder = builder
        self._audit = audit

    def apply(self, stored: StoredEvent) -> Event | None:
        """None if the event was ignored."""
        state, ref = self._builder.state, stored.ref
        before = state.get(ref)
        event = self._builder.apply(stored)
        if event is not None and self._audit is not None:
            self._audit.count(stored, event, before, state.get(ref))
        return event

    def skip(self, seq: int) -> None:
        """Continue after an event that an operator ordered to skip."""
        self._builder.skip(seq)

    def snapshot(self) -> Iterator[bytes]:
        return self._builder.state.snapshot()

    def fresh(self) -> "ViewFold":
        """Empty the state, so that the log is read from its first event."""
        self._builder.load(ClusterState())
        return self

    def restore(self, data: bytes) -> "ViewFold":
        self._builder.load(ClusterState.restore(data))
        return self


def view_runner(
    builder: ViewBuilder, bus: Bus, metrics: BusMetrics = NO_METRICS, audit: AuditCounter | None = None
) -> FoldRunner[ViewFold]:
    fold = ViewFold(builder, audit)
    return FoldRunner(
        FOLD,
        bus.events,
        FoldSource(fold.fresh, fold.restore, schema_fingerprint()),
        SystemClock(),
        snapshots=bus.snapshots,
        kinds=KINDS,
        metrics=metrics,
    )


async def follow_reports(builder: ViewBuilder, observations: ObservationLog, gate: ReportGate) -> None:
    """Read the newest usage report of every node, then follow all further reports, until cancelled.

    A report that the gate passes over is skipped; then the node counts as silent. The nodes must be folded before.
    """
    # Before the newest reports: while they are read, a node that was read already may report again.
    head = await patiently(observations.head)
    newest = await patiently(lambda: observations.latest(builder.node_refs()))
    await observe_all(builder, sorted(newest, key=lambda each: each.seq), gate, are_newest=True)
    async for batch in observations.follow(head.last_seq):
        await observe_all(builder, batch, gate)


async def observe_all(
    builder: ViewBuilder, reports: Sequence[StoredEvent], gate: ReportGate, *, are_newest: bool = False
) -> None:
    """Yield to other tasks in between. Reports that the gate passes over are skipped. `are_newest`: whether these are
    the newest reports, read out of turn, so that they count against no quota.
    """
    for number, stored in enumerate(reports, start=1):
        report = gate.read(stored, is_counted=not are_newest)
        if report is not None:
            builder.observe(stored.ref.id, report, stored.seq)
        if number % _REPORTS_AT_ONCE == 0:
            await asyncio.sleep(0)


PIECE: Final = 50
"""Views that are made without a look at the time."""
SLICE_SECONDS: Final = 0.005
"""Longest time of making views without yielding to other tasks, in host time."""
INTERVAL_SECONDS: Final = 0.5
"""Pause between two looks for changed objects, in host time."""


async def views_are_current(builder: ViewBuilder) -> None:
    """Yield to other tasks in between. Objects that change meanwhile are included."""
    time = asyncio.get_running_loop().time
    until = time() + SLICE_SECONDS
    while not builder.refresh(PIECE):
        if time() >= until:
            await asyncio.sleep(0)
            until = time() + SLICE_SECONDS


async def keep_views_current(builder: ViewBuilder, logger: Logger) -> None:
    """Make the views of changed objects again and again, also on followers, so that a new leader can decide at once.

    Log each object that is not valid, and so is left out of the views, once for each reason. Never return; the caller
    cancels it.
    """
    told: dict[str, str] = {}
    while True:
        await views_are_current(builder)
        for aggregate, reason in builder.unreadable.items():
            if told.get(aggregate) != reason:
                logger.warning("object_unreadable", aggregate=aggregate, reason=reason)
        told = dict(builder.unreadable)
        await asyncio.sleep(INTERVAL_SECONDS)
