"""Fold a log again and compare its states with the snapshots that the manager has saved.

    snapshot -> facts up to the next one -> equal to the state in this snapshot? -> ... -> end of the log

A difference means that folding is not deterministic: a start from a snapshot and a start from the first fact give
different states.

Source:
    event-bus spec, 6 (nightly job), 7 (verified snapshots), 9.3 (restore drill)
"""

from dataclasses import dataclass

from koordcore.bus.archive.archived_snapshots import ArchivedSnapshots
from koordcore.bus.folds.foldable import restored
from koordcore.ports.eventlog import EventLog, HistoryGone
from koordcore.ports.snapshots import SnapshotStore
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint

from koordctl.access.clients import LogTrouble
from koordctl.access.folding import CLUSTER_FOLD, fold_to


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSnapshot:
    position: int  # Position of its last fact
    stored: str  # Hash of the state in the snapshot
    folded: str  # Hash of the folded state

    @property
    def equal(self) -> bool:
        return self.stored == self.folded


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldCheck:
    begin: int  # Position of the last fact before the folded ones; 0 if the fold began at the first fact
    position: int  # Position of the last fact
    hash: str  # Hash of the state there
    facts: int  # Number of folded facts
    # The compared snapshots, oldest first. Those of another version of the states are left out.
    snapshots: list[CheckedSnapshot]

    @property
    def different(self) -> list[CheckedSnapshot]:
        return [each for each in self.snapshots if not each.equal]


async def fold_again(log: EventLog, snapshots: SnapshotStore, archived: ArchivedSnapshots | None = None) -> FoldCheck:
    """Fold a log up to its end, and compare the state at each snapshot of the manager with the snapshot.

    The fold begins at the nearest archived snapshot before all those of the manager, else at the first fact. If that is
    neither in the log nor in its archive, the fold begins at the oldest snapshot of the manager.

    Args:
        log: The log; with `archived`, the log with its archive.
        archived: Snapshots of an archive; None: there is no archive.

    Raises:
        LogTrouble: The first fact was dropped and there is no snapshot, or a fact cannot be decoded.
    """
    head = await log.head()
    kept = await _usable(snapshots, head.last_seq)
    state = ClusterState()
    if archived is not None:
        state = await _archived(archived, kept[0] - 1 if kept else head.last_seq)
    if state.position == 0 and head.first_seq > 1 and not await has_first_fact(log):
        oldest = await _restored(snapshots, kept.pop(0)) if kept else None
        if oldest is None:
            raise LogTrouble(f"the log begins at position {head.first_seq}, and no snapshot of the manager fits")
        state = oldest
    stored = {mark: found.hash() for mark in kept if (found := await _restored(snapshots, mark)) is not None}
    folded = await fold_to(log, head.last_seq, state=state, marks=stored)
    return FoldCheck(
        begin=folded.begin,
        position=head.last_seq,
        hash=folded.hash,
        facts=folded.events,
        snapshots=[CheckedSnapshot(position=mark, stored=stored[mark], folded=folded.hashes[mark]) for mark in stored],
    )


async def _usable(snapshots: SnapshotStore, last: int) -> list[int]:
    """The positions of the snapshots that have the schema of this code, ascending."""
    fingerprint = schema_fingerprint()
    found: list[int] = []
    for position in await snapshots.sequences(CLUSTER_FOLD):
        newest = await snapshots.newest(CLUSTER_FOLD, schema_fingerprint=fingerprint, at_most=position)
        if newest is not None and newest.seq == position <= last:
            found.append(position)
    return found


async def has_first_fact(log: EventLog) -> bool:
    """Whether a log that has facts, or its archive, still has the first one."""
    try:
        async for _ in log.history(0, 1):
            return True
    except HistoryGone:
        return False
    return True


async def _archived(archived: ArchivedSnapshots, at_most: int) -> ClusterState:
    """The state in the nearest archived snapshot up to a position; the empty state if there is none."""
    found = await archived.newest(CLUSTER_FOLD, schema_fingerprint=schema_fingerprint(), at_most=at_most)
    return ClusterState() if found is None else restored(ClusterState.restore, found.state)


async def _restored(snapshots: SnapshotStore, position: int) -> ClusterState | None:
    """The state in the snapshot at a position; None if a running manager has dropped it meanwhile."""
    snapshot = await snapshots.newest(CLUSTER_FOLD, schema_fingerprint=schema_fingerprint(), at_most=position)
    if snapshot is None or snapshot.seq != position:
        return None
    return restored(ClusterState.restore, snapshot.state)
