"""Connects the scheduler's state to the fold runner (`koordcore.bus.folds.runner`), which follows the log.

The nodes' usage reports come from the stream of observations. One state object lives as long as the process, because
other objects hold it. If the log has deleted events that a running fold still needs, the process ends, and the next
one starts at a snapshot.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from koordcore.bus.client.connection import patiently
from koordcore.bus.read.report_gate import ReportGate
from koordcore.events.envelope import AggregateRef, StoredEvent, name_token
from koordcore.events.objects import CustomObjectDeleted, plural_of
from koordcore.events.pod import PodPlaced, PodReallocated, PodReleased
from koordcore.ports.eventlog import ObservationLog
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import logger

from koord_scheduler.domain.loop.folding.log import fold, fold_report, skip
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koord_scheduler.shell.observing import SchedulerMetrics

_log: Final = logger("scheduler.folding")
_HOST: Final = SystemClock()
_MOST_WARNINGS: Final = 20_000
"""Maximum number of different warnings about objects that a process logs."""
_WITH_LEDGER: Final = (PodPlaced.__name__, PodReallocated.__name__, PodReleased.__name__)
"""Events of pods that are stored together with an event of the node, which follows them."""


class StateFold:
    """Connects the scheduler's state to the fold runner, which reads the log, takes snapshots and restores them.
    `state`: the state that the log is folded into.
    """

    def __init__(self, state: SchedulerState, metrics: SchedulerMetrics) -> None:
        self._state = state
        self._pictures: list[Picture] = []
        # Whether the log's last atomic append is only applied in part: a placement without its node's ledger.
        self.is_inside_batch = False
        self._warned: set[tuple[str, str]] = set()
        self._updated = metrics.quota_seconds.labels("UpdateQuota")
        self._deleted = metrics.quota_seconds.labels("DeleteQuota")

    def apply(self, stored: StoredEvent) -> bool:
        """Apply one event of the log to the scheduler's state, and log each new warning about an object once. Return
        True: the manager tells what is passed over. Raises UnreadableEvent: the event cannot be decoded. The state is
        unchanged.
        """
        self._apply(stored)
        if self._state.cluster.warnings:
            self._warn(f"{stored.ref.kind}/{stored.ref.id}")
        return True

    def _warn(self, about: str) -> None:
        warnings = self._state.cluster.warnings
        while warnings:
            key = about, warnings.popleft()
            if key not in self._warned and len(self._warned) < _MOST_WARNINGS:
                self._warned.add(key)
                _log.warning("questionable_object", object=about, warning=key[1])

    def _apply(self, stored: StoredEvent) -> None:
        for picture in self._pictures:
            picture.keep(stored.ref)
        if stored.ref.kind == "pod":
            self.is_inside_batch = stored.type in _WITH_LEDGER
        elif stored.ref.kind == "node":
            self.is_inside_batch = False
        if stored.ref.kind != "customspec" or plural_of(stored.ref.id) != "elasticquotas":
            fold(self._state, stored)
            return
        began = _HOST.monotonic()
        fold(self._state, stored)
        is_gone = stored.type == CustomObjectDeleted.__name__
        (self._deleted if is_gone else self._updated).observe(_HOST.monotonic() - began)

    def skip(self, seq: int) -> None:
        """Advance past the event at position `seq` without applying it, because of its kind or an operator's order."""
        skip(self._state, seq)

    def snapshot(self) -> Iterator[bytes]:
        """Yield the facts of the state as bytes in pieces, as they are at the first call. Later changes of the state do
        not affect them.
        """
        picture = Picture(self._state)
        self._pictures.append(picture)
        return self._taken(picture)

    def _taken(self, picture: Picture) -> Iterator[bytes]:
        try:
            yield from picture.pieces()
        finally:
            self._pictures.remove(picture)

    def fresh(self) -> "StateFold":
        """Return this object for a fold that starts at the first event of the log. Its state must be empty."""
        assert self._state.log.position == 0, "a running fold cannot begin again"
        return self

    def restore(self, data: bytes) -> "StateFold":
        """Load a snapshot into the state, which must be empty, and return this object. `data`: the bytes of the
        snapshot, see `snapshot`.
        """
        load_state(self._state, data)
        self._warn("snapshot")
        return self


async def follow_reports(
    state: SchedulerState,
    nodes_known: Callable[[], Awaitable[None]],
    observations: ObservationLog,
    gate: ReportGate,
    changed: Callable[[], None],
) -> None:
    """Fold the newest usage report of every node, and then every further report, until the task is cancelled. A report
    that the gate passes over is skipped. The node then counts as one without a report until its next one.
    `changed`: called after every batch of reports.
    """
    await nodes_known()
    # Before the newest reports: while they are read, a node that was read already may report again.
    head = await patiently(observations.head)
    nodes = [AggregateRef("node", name_token(name)) for name in state.mirror.nodes]
    newest = await patiently(lambda: observations.latest(nodes))
    for stored in sorted(newest, key=lambda each: each.seq):
        if stored.seq <= head.last_seq:  # a later one is followed, in its turn: an earlier one would be passed over
            _observe(state, stored, gate, is_counted=False)
    changed()
    async for batch in observations.follow(head.last_seq):
        for stored in batch:
            _observe(state, stored, gate)
        changed()


def _observe(state: SchedulerState, stored: StoredEvent, gate: ReportGate, *, is_counted: bool = True) -> None:
    if gate.read(stored, is_counted=is_counted) is not None:
        fold_report(state, stored)
