"""Reads the nodes' usage reports from the stream of observations into the scheduler's state."""

from collections.abc import Awaitable, Callable

from koordcore.bus.client.connection import patiently
from koordcore.events.envelope import AggregateRef, StoredEvent, name_token
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.eventlog import ObservationLog
from koordcore.service.telemetry.logging import Logger

from koord_scheduler.domain.folding.log import fold_report
from koord_scheduler.domain.state.state import SchedulerState


async def follow_reports(
    state: SchedulerState,
    nodes_known: Callable[[], Awaitable[None]],
    observations: ObservationLog,
    logger: Logger,
    changed: Callable[[], None],
) -> None:
    """Fold the newest usage report of every node, and then every further report, until the task is cancelled.

    A report that cannot be decoded is logged and skipped. The node then counts as one without a report until its next
    one.

    Args:
        state: The scheduler's state.
        nodes_known: Waits until the nodes in the log are folded.
        observations: The observations stream.
        logger: The process's log.
        changed: Called after every batch of reports.
    """
    await nodes_known()
    # Before the newest reports: while they are read, a node that was read already may report again.
    head = await patiently(observations.head)
    nodes = [AggregateRef("node", name_token(name)) for name in state.mirror.nodes]
    newest = await patiently(lambda: observations.latest(nodes))
    for stored in sorted(newest, key=lambda each: each.seq):
        if stored.seq <= head.last_seq:  # a later one is followed, in its turn: an earlier one would be passed over
            _observe(state, stored, logger)
    changed()
    async for batch in observations.follow(head.last_seq):
        for stored in batch:
            _observe(state, stored, logger)
        changed()


def _observe(state: SchedulerState, stored: StoredEvent, logger: Logger) -> None:
    try:
        fold_report(state, stored)
    except UnreadableEvent as error:
        logger.warning("report_unreadable", node=stored.ref.id, seq=stored.seq, reason=error.reason)
