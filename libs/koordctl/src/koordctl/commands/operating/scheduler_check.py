"""Compare the newest snapshot of the scheduler with the log, folded again.

A snapshot may contain placements that are behind its position, so it is compared at the end of the log:

    snapshot -> facts up to the end of the log ----+
                                                   +-- equal facts?
    archived snapshot -> facts up to the end ------+

Source:
    event-bus spec, 7 (verified snapshots)
"""

from koordcore.bus.archive.archived_snapshots import ArchivedSnapshots
from koordcore.bus.archive.taking import folded
from koordcore.bus.folds.foldable import FoldSource, restored
from koordcore.ports.eventlog import EventLog
from koordcore.ports.snapshots import Snapshot, SnapshotStore

from koordctl.commands.operating.fold_check import has_first_fact
from koordctl.what_if.archived_folds import SchedulerFold, scheduler_source
from koordctl.what_if.scheduler import FOLD


async def differing_snapshot(log: EventLog, snapshots: SnapshotStore, archived: ArchivedSnapshots) -> int | None:
    """Return the position of the scheduler's newest snapshot if folding the log gives other facts, else None.

    The fold begins at the nearest archived snapshot up to that position, else at the first fact. Not compared are a
    snapshot of another version or of a scheduler with other plugins that have a state, and any snapshot if there is
    nothing at which the fold can begin.

    Args:
        log: The log with its archive.
        snapshots: Store with the snapshots of the scheduler.
        archived: Snapshots of the archive.

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
    stored = await _digest(log, source, newest, end)
    return newest.seq if await _digest(log, source, base, end) != stored else None


async def _digest(log: EventLog, source: FoldSource[SchedulerFold], begin: Snapshot | None, end: int) -> str:
    """Return the digest of the state that folding from a snapshot gives at position `end`; None: from the first fact.

    Only one such state exists at a time, because it may be large.
    """
    state = source.fresh() if begin is None else restored(source.restore, begin.state)
    async for _ in folded(log, FOLD, state, 0 if begin is None else begin.seq, end):
        pass
    return state.digest()
