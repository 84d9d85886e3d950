"""The folds whose snapshots the archive keeps, and the comparison of the scheduler's newest snapshot with the log.

A snapshot may contain placements that are behind its position, so it is compared at the end of the log:

    snapshot -> facts up to the end of the log ----+
                                                   +-- equal facts?
    archived snapshot -> facts up to the end ------+

Source:
    event-bus spec, 7 (verified snapshots)
"""

from collections.abc import Iterator, Mapping

from koord_scheduler.domain.loop.folding.log import fold, skip
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.snapshot import Picture, schema_fingerprint
from koord_scheduler.domain.replay.state_hash import newest_fact, state_hash
from koordcore.bus.archive.archived_snapshots import ArchivedSnapshots
from koordcore.bus.archive.taking import folded
from koordcore.bus.folds.foldable import Foldable, FoldSource, restored
from koordcore.events.envelope import StoredEvent
from koordcore.ports.eventlog import EventLog
from koordcore.ports.snapshots import Snapshot, SnapshotStore
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint as cluster_fingerprint

from koordctl.access.folding import CLUSTER_FOLD
from koordctl.replay.fold_check import has_first_fact
from koordctl.replay.scheduler_rerun import FOLD, empty_state, state_of
from koordctl.scheduler import scheduler_configuration


class SchedulerFold:
    """The state of a scheduler, empty or of a snapshot, as a fold of the log."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def apply(self, stored: StoredEvent) -> None:
        """Raises:
        UnreadableEvent: The event cannot be decoded. The state is unchanged.
        """
        fold(self._state, stored)

    def skip(self, seq: int) -> None:
        skip(self._state, seq)

    def snapshot(self) -> Iterator[bytes]:
        """The state as bytes in pieces. Apply no event before all of them are consumed."""
        return Picture(self._state).pieces()

    def newest(self) -> int:
        """Return the position of the newest fact in the state: a snapshot may be ahead of its position."""
        return newest_fact(self._state)

    def hash(self) -> str:
        """Return the hash of what the state has of the log, see `state_hash`."""
        return state_hash(self._state)


def archived_folds() -> Mapping[str, FoldSource[Foldable]]:
    """Name -> fold. The names are those under which manager and scheduler save their snapshots."""
    scheduler = scheduler_source()
    return {
        CLUSTER_FOLD: FoldSource(ClusterState, ClusterState.restore, cluster_fingerprint()),
        FOLD: FoldSource(scheduler.fresh, scheduler.restore, scheduler.fingerprint),
    }


def scheduler_source() -> FoldSource[SchedulerFold]:
    """The fold of a scheduler with the default configuration, in which every built-in plugin with a state runs.

    Its snapshots have the name `koordctl.replay.scheduler_rerun.FOLD`.
    """
    configuration = scheduler_configuration(None)
    frameworks = empty_state(configuration).frameworks

    def restored(data: bytes) -> SchedulerFold:
        return SchedulerFold(state_of(configuration, data))

    return FoldSource(
        lambda: SchedulerFold(empty_state(configuration)),
        restored,
        schema_fingerprint(frameworks.cluster, frameworks.folding),
    )


async def differing_snapshot(log: EventLog, snapshots: SnapshotStore, archived: ArchivedSnapshots) -> int | None:
    """Return the position of the scheduler's newest snapshot if folding the log gives other facts, else None.

    The fold begins at the nearest archived snapshot up to that position, else at the first fact. Not compared are a
    snapshot of another version or of a scheduler with other plugins that have a state, and any snapshot if there is
    nothing at which the fold can begin.

    Raises:
        FoldStopped: A fact cannot be decoded, and no operator has ordered the scheduler to skip it.
    """
    source = scheduler_source()
    newest = await snapshots.newest(FOLD, schema_fingerprint=source.fingerprint)
    if newest is None:
        return None
    end = (await log.head()).last_seq  # read last: what the snapshot contains is in the log by then
    base = await archived.newest(FOLD, schema_fingerprint=source.fingerprint, at_most=newest.seq)
    if base is None and not await has_first_fact(log):
        return None
    stored = await _hash(log, source, newest, end)
    return newest.seq if await _hash(log, source, base, end) != stored else None


async def _hash(log: EventLog, source: FoldSource[SchedulerFold], begin: Snapshot | None, end: int) -> str:
    """Return the hash of the state that folding from a snapshot gives at position `end`; None: from the first fact.

    Only one such state exists at a time, because it may be large.
    """
    state = source.fresh() if begin is None else restored(source.restore, begin.state)
    async for _ in folded(log, FOLD, state, 0 if begin is None else begin.seq, end):
        pass
    return state.hash()
