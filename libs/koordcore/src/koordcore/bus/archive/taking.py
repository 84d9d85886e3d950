"""Fold the log, and write snapshots of the fold to an archive.

    1. begin at the newest archived snapshot      3. at each multiple of `every`: write a snapshot, and list it
    2. fold the facts behind it                   4. drop the snapshots that are too many, and those of other versions

A later run continues at the last snapshot of the run before. A run of another version begins at the first fact.

Source: event-bus spec, 6.
"""

from collections.abc import AsyncIterator, Callable

import msgspec

from koordcore.bus.archive.archived_snapshots import (
    SNAPSHOT_FOLDER,
    SNAPSHOT_LIST,
    ArchivedSnapshot,
    ArchivedSnapshots,
    FoldVersion,
    SnapshotList,
    UnusableSnapshot,
    kept_positions,
    next_position,
    read_snapshot_list,
    serving,
    version_of,
    write_snapshot,
    write_snapshot_list,
)
from koordcore.bus.archive.files import InvalidArchive
from koordcore.bus.folds.foldable import F, Foldable, FoldSource, restored
from koordcore.bus.folds.skips import recorded_skips
from koordcore.events.envelope import StoredEvent
from koordcore.events.registry import UnreadableEvent
from koordcore.place import Place
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import EventLog

_BATCH = 1000


class FoldStopped(Exception):
    """A fact cannot be decoded, and no operator has ordered the fold to skip it. Earlier snapshots stay usable."""


async def take_snapshots(
    events: EventLog,
    place: Place,
    cluster: str,
    fold: str,
    source: FoldSource[F],
    clock: Clock,
    upto: int,
    *,
    every: int,
    dense: int,
) -> list[ArchivedSnapshot]:
    """Fold the log up to a position, and return the snapshots of this fold and version that the archive now has.

    Args:
        events: The log with its archive.
        fold: Name of the fold, under which its service saves snapshots.
        upto: Position of the last fact to fold.
        every: Number of facts between two snapshots.
        dense: Number of newest facts in which no snapshot is dropped.

    Raises:
        FoldStopped: A fact cannot be decoded.
        InvalidArchive: The list is not valid, or of another cluster.
        HistoryGone: Neither the log nor the archive has the facts behind the last snapshot.
        PlaceTrouble: The place does not answer.
    """
    listed = await read_snapshot_list(place) or SnapshotList(cluster=cluster, snapshots=[])
    if listed.cluster != cluster:
        raise InvalidArchive(f"{place.path_of(SNAPSHOT_LIST)}: cluster: must be {cluster}, got {listed.cluster}")
    version = version_of(fold, source.fingerprint)
    # 1. begin at the newest archived snapshot
    files = frozenset(await place.files(SNAPSHOT_FOLDER))
    listed = await _without(place, listed, lambda each: each.file not in files)
    state, begin = await _begin(ArchivedSnapshots(place, events), listed, version, source, upto)
    listed = await _without(place, listed, lambda each: each.version == version and each.position > begin)
    known = max((each for each in listed.snapshots if each.version == version), key=_position, default=None)
    # Not known behind a snapshot of an earlier version, which does not tell it.
    reached_ns, is_reached_known = (known.reached_ns, known.reached_ns > 0) if known and begin else (0, begin == 0)
    due = next_position(begin, every)
    # 2. fold the facts behind it
    async for last in folded(events, fold, state, begin, upto):
        reached_ns = max(reached_ns, last.stored_at_ns)
        # 3. write a snapshot, and list it
        if last.seq >= due:
            written = await write_snapshot(
                place,
                version,
                last,
                state.snapshot(),
                clock.now().isoformat(),
                reached_ns=reached_ns if is_reached_known else 0,
            )
            listed = msgspec.structs.replace(listed, snapshots=[*listed.snapshots, written])
            await write_snapshot_list(place, listed)
            due = next_position(last.seq, every)
    # 4. drop the snapshots that are too many, and those of other versions
    own = [each.position for each in listed.snapshots if each.version == version]
    kept = kept_positions(own, upto, every=every, dense=dense)
    listed = await _without(
        place, listed, lambda each: each.fold == fold and not (each.version == version and each.position in kept)
    )
    return [each for each in listed.snapshots if each.fold == fold]


def _position(snapshot: ArchivedSnapshot) -> int:
    return snapshot.position


async def folded(events: EventLog, fold: str, state: Foldable, begin: int, upto: int) -> AsyncIterator[StoredEvent]:
    """Apply the events from `begin` + 1 to `upto` to a state, and yield each one after it was applied or skipped.

    Args:
        events: The log, with its archive if it has one.
        fold: Name of the fold, by which orders to skip an event name it.
        begin: Position of the last event that the state contains.
        upto: Position of the last event to apply.

    Raises:
        FoldStopped: An event cannot be decoded, and no operator has ordered the fold to skip it.
        HistoryGone: The log does not have the events behind `begin`.
    """
    if begin >= upto:
        return
    skipped = await recorded_skips(events, fold)
    async for batch in events.history(begin, upto, batch=_BATCH):
        for stored in batch:
            if stored.seq in skipped:
                state.skip(stored.seq)
            else:
                try:
                    state.apply(stored)
                except UnreadableEvent as error:
                    skipped |= await recorded_skips(events, fold, halted_at=stored.seq)
                    if stored.seq not in skipped:
                        raise FoldStopped(f"the fold {fold} stops, so it has no later snapshots: {error}") from error
                    state.skip(stored.seq)
            yield stored


async def _begin(
    snapshots: ArchivedSnapshots, listed: SnapshotList, version: FoldVersion, source: FoldSource[F], upto: int
) -> tuple[F, int]:
    """Return state and position of the newest snapshot that is intact and of this log; the empty state and 0 if none.

    Raises:
        InvalidArchive, HistoryGone, PlaceTrouble: A file cannot be read. A snapshot may be intact, so none is dropped.
    """
    for each in serving(listed.snapshots, version, upto):
        try:
            return restored(source.restore, [await snapshots.state_in(each)]), each.position
        except UnusableSnapshot:
            continue
    return source.fresh(), 0


async def _without(place: Place, listed: SnapshotList, is_dropped: Callable[[ArchivedSnapshot], bool]) -> SnapshotList:
    """Drop snapshots from the list, then delete the files that it does not name. Return the shorter list. A run that
    ended between a file and the list has left such files, too.
    """
    kept = [each for each in listed.snapshots if not is_dropped(each)]
    if len(kept) < len(listed.snapshots):
        listed = msgspec.structs.replace(listed, snapshots=kept)
        await write_snapshot_list(place, listed)
    for file in set(await place.files(SNAPSHOT_FOLDER)) - {each.file for each in kept}:
        await place.delete(file)
    return listed
