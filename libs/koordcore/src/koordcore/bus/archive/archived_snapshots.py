"""Snapshots of an archive as starts of folds: the nearest one at or before a position that fits and is intact.

    snapshots.json                                                   the list (`SnapshotList`)
    snapshots/manager/000000050000-3f9a0c51d2e7.json.gz ...          a state; the name ends with the hash of the file

A snapshot is listed after its file was written, and its file is deleted after it has left the list. Which snapshot is
used, and which are kept, are pure functions of the list.

Source: event-bus spec, 6.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Final, Literal, NamedTuple

import msgspec

from koordcore.bus.archive.files import InvalidArchive, read_document, read_list, read_unchanged, write_document
from koordcore.bus.archive.packing import Unreadable, pack, unpack
from koordcore.events.envelope import StoredEvent
from koordcore.place import Place, PlaceTrouble
from koordcore.ports.eventlog import EventLog, HistoryGone
from koordcore.ports.snapshots import Snapshot, SnapshotHead, SnapshotStore, state_digest

SNAPSHOT_FACTS: Final = 50_000  # Number of facts between two snapshots of a fold
DENSE_FACTS: Final = 10_000_000  # Number of newest facts in which no snapshot is dropped


class FoldVersion(NamedTuple):
    """What must be equal for a snapshot to be loaded: a snapshot of another version is passed over."""

    fold: str  # Name of the fold, for example "manager"
    code_version: str  # Version of koordcore
    schema_fingerprint: str  # Digest of the schema of the state


class ArchivedSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    fold: str
    code_version: str  # Version of koordcore that wrote it
    schema_fingerprint: str  # Digest of the schema of the state
    position: int  # Position of the last folded fact
    fact_id: str  # Id of this fact. In another log, another fact or none has the position.
    occurred_at: str  # RFC 3339 time of this fact
    taken_at: str  # RFC 3339 time at which the snapshot was taken
    file: str
    size: int  # Size of the file in bytes
    sha256: str  # Hash of the file, hexadecimal
    # Greatest time at which the server stored a fact up to the position, in nanoseconds since 1970; 0: not known.
    reached_ns: int = 0

    @property
    def version(self) -> FoldVersion:
        return FoldVersion(self.fold, self.code_version, self.schema_fingerprint)


def serving(
    snapshots: Iterable[ArchivedSnapshot], version: FoldVersion, at_most: int | None = None, *, after: int = 0
) -> list[ArchivedSnapshot]:
    """Return the snapshots from which a fold of this version reaches a position, the nearest one first. The later ones
    of the result are for the case that the nearest one cannot be read. `at_most`: the position; None: any. `after`:
    only snapshots behind this position are worth loading.
    """
    found = [
        each
        for each in snapshots
        if each.version == version and each.position > after and (at_most is None or each.position <= at_most)
    ]
    return sorted(found, key=lambda each: each.position, reverse=True)


def next_position(position: int, every: int) -> int:
    """Return the first multiple of `every` behind a position: there, the next snapshot is due."""
    return (position // every + 1) * every


def kept_positions(positions: Iterable[int], last: int, *, every: int, dense: int) -> set[int]:
    """Return the positions whose snapshots an archive keeps. Among the newest `dense` facts, the distance stays
    `every`. It doubles between `dense` and 2 * `dense` facts ago, again between 2 * `dense` and 4 * `dense`, and so on.
    So if the log doubles, half of `dense / every` is added.

    Args:
        positions: Positions of the snapshots of one fold.
        last: Position of the last fact of the log.
        every: Number of facts between two snapshots.
        dense: Number of newest facts in which no snapshot is dropped, except one that is nearer than `every`.
    """
    newest: dict[tuple[int, int], int] = {}
    for position in sorted(positions, reverse=True):
        age = max(0, last - position)
        distance = every << (age // dense).bit_length()
        newest.setdefault((distance, -(-position // distance)), position)
    return set(newest.values())


SNAPSHOT_LIST: Final = "snapshots.json"
SNAPSHOT_FOLDER: Final = "snapshots/"
_LEVEL: Final = 1  # Level of compression. Level 6 takes three times as long and saves a quarter of the space.


class UnusableSnapshot(InvalidArchive):
    """The file of a snapshot has changed since it was written, or the snapshot is of another log."""


class SnapshotList(msgspec.Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    cluster: str
    snapshots: list[ArchivedSnapshot]  # The snapshots, in the order in which they were taken


def version_of(fold: str, schema_fingerprint: str) -> FoldVersion:
    """Return the version that a fold has in this process."""
    return FoldVersion(fold, version("koordcore"), schema_fingerprint)


async def read_snapshot_list(place: Place) -> SnapshotList | None:
    """Return the list of the snapshots at a place; None if there is none.

    Raises:
        InvalidArchive: The list is not valid.
        PlaceTrouble: The place does not answer.
    """
    return await read_document(place, SNAPSHOT_LIST, SnapshotList)


async def write_snapshot_list(place: Place, listed: SnapshotList) -> None:
    """Write the list.

    Raises:
        PlaceTrouble: The place does not answer.
    """
    await write_document(place, SNAPSHOT_LIST, listed)


async def write_snapshot(
    place: Place,
    fold: FoldVersion,
    last: StoredEvent,
    pieces: Iterator[bytes],
    taken_at: str,
    *,
    reached_ns: int = 0,
) -> ArchivedSnapshot:
    """Write the state of a fold to a file, and return its entry for the list.

    Args:
        last: The last folded fact.
        pieces: The state. It must not change before the call returns.
        taken_at: RFC 3339 time.
        reached_ns: Greatest time of storing up to the last fact; 0: not known.

    Raises:
        PlaceTrouble: The place does not answer.
    """
    packed = await asyncio.to_thread(pack, pieces, _LEVEL)
    sha256 = hashlib.sha256(packed).hexdigest()
    file = f"{SNAPSHOT_FOLDER}{fold.fold}/{last.seq:012}-{sha256[:12]}.json.gz"
    await place.write(file, packed)
    return ArchivedSnapshot(
        fold=fold.fold,
        code_version=fold.code_version,
        schema_fingerprint=fold.schema_fingerprint,
        position=last.seq,
        fact_id=last.event_id,
        occurred_at=last.occurred_at,
        taken_at=taken_at,
        file=file,
        size=len(packed),
        sha256=sha256,
        reached_ns=reached_ns,
    )


async def read_snapshot(place: Place, snapshot: ArchivedSnapshot) -> bytes:
    """Return the state in a snapshot.

    Raises:
        UnusableSnapshot: The file has changed since it was written, or is no compressed state.
        PlaceTrouble: The file cannot be read.
    """
    packed = await read_unchanged(place, snapshot.file, snapshot.sha256, UnusableSnapshot)
    try:
        return await asyncio.to_thread(unpack, packed)
    except Unreadable as error:
        raise UnusableSnapshot(f"{place.path_of(snapshot.file)}: {error}") from error


_log = logging.getLogger("koordcore.bus")


def _warn(sentence: str) -> None:
    _log.warning("archived_snapshot_refused reason=%s", sentence)


class ArchivedSnapshots:
    """The snapshots of an archive.

    Args:
        events: The log with its archive. A snapshot is used only if its last fact is in this log.
        refused: Called with one sentence about each snapshot that would fit and is not used; None: log it.
    """

    def __init__(self, place: Place, events: EventLog, refused: Callable[[str], None] | None = None) -> None:
        self._place = place
        self._events = events
        self._refused = refused or _warn

    async def newest(
        self, fold: str, *, schema_fingerprint: str, at_most: int | None = None, after: int = 0
    ) -> Snapshot | None:
        """Return the newest usable snapshot of a fold; None if there is none, or the place does not answer. A snapshot
        that has changed, or that is of another log, is refused, and the next older one is used.

        Args:
            schema_fingerprint: Only snapshots with this fingerprint and the version of this code are usable.
            at_most: Largest position of the snapshot; None: any.
            after: Position that a snapshot must exceed to be of use.
        """
        try:
            listed = await read_snapshot_list(self._place)
        except (InvalidArchive, PlaceTrouble) as error:
            self._refused(str(error))
            return None
        fitting = [] if listed is None else listed.snapshots
        for each in serving(fitting, version_of(fold, schema_fingerprint), at_most, after=after):
            try:
                state = await self.state_in(each)
            except (InvalidArchive, HistoryGone, PlaceTrouble) as error:
                self._refused(str(error))
                continue
            return Snapshot(
                fold=fold,
                seq=each.position,
                code_version=each.code_version,
                schema_fingerprint=each.schema_fingerprint,
                taken_at=each.taken_at,
                state=(state,),
                digest=state_digest((state,)),
                fact_id=each.fact_id,
            )
        return None

    async def state_in(self, snapshot: ArchivedSnapshot) -> bytes:
        """Return the state in a snapshot of the list.

        Raises:
            UnusableSnapshot: The file has changed, or the snapshot is of another log.
            InvalidArchive, HistoryGone: The fact at its position cannot be read, so its log is not known.
            PlaceTrouble: A file cannot be read.
        """
        if not await self._is_of_this_log(snapshot):
            raise UnusableSnapshot(
                f"{self._place.path_of(snapshot.file)}: of another log, whose fact {snapshot.position} is"
                f" {snapshot.fact_id}"
            )
        return await read_snapshot(self._place, snapshot)

    async def position_before(self, host_nanos: int) -> int:
        """Return a position up to which every fact was stored until a moment, as near to the moment as the lists tell.
        A search for the moment may begin there. 0 if the archive has nothing earlier. `host_nanos`: the moment, in
        nanoseconds since 1970.

        Raises:
            InvalidArchive: A list is not valid.
            PlaceTrouble: The place does not answer.
        """
        facts, snapshots = await read_list(self._place), await read_snapshot_list(self._place)
        position = 0
        for part in facts.parts if facts is not None else ():
            if not 0 < part.stored_until_ns <= host_nanos:
                break
            position = part.last
        known = snapshots.snapshots if snapshots is not None else ()
        return max(position, *(each.position for each in known if 0 < each.reached_ns <= host_nanos), 0)

    async def _is_of_this_log(self, snapshot: ArchivedSnapshot) -> bool:
        """Return whether the last fact of a snapshot is in the log or its archive."""
        async for batch in self._events.history(snapshot.position - 1, snapshot.position):
            if any(stored.event_id == snapshot.fact_id for stored in batch):
                return True
        return False


class SnapshotStoreWithArchive:
    """A `SnapshotStore` that also finds the snapshots of an archive. It saves to the store alone.

    Args:
        near: The archive is not asked if the store has a snapshot at most so many facts before the wanted position, or
            any snapshot if no position is wanted. So the restart of a service does not depend on an archive that
            answers slowly.
    """

    def __init__(self, store: SnapshotStore, archive: ArchivedSnapshots, *, near: int = SNAPSHOT_FACTS) -> None:
        self._store = store
        self._archive = archive
        self._near = near

    async def save(self, snapshot: Snapshot) -> None:
        """Save a snapshot in the store, not in the archive."""
        await self._store.save(snapshot)

    async def save_pieces(self, head: SnapshotHead, pieces: Iterator[bytes]) -> None:
        await self._store.save_pieces(head, pieces)

    async def newest(self, fold: str, *, schema_fingerprint: str, at_most: int | None = None) -> Snapshot | None:
        """Return the newest usable snapshot of a fold, of the store or of the archive; None if there is none."""
        found = await self._store.newest(fold, schema_fingerprint=schema_fingerprint, at_most=at_most)
        if found is not None and (at_most is None or at_most - found.seq <= self._near):
            return found
        archived = await self._archive.newest(
            fold, schema_fingerprint=schema_fingerprint, at_most=at_most, after=0 if found is None else found.seq
        )
        if archived is None:
            return found
        _log.info("archived_snapshot_found fold=%s seq=%d", fold, archived.seq)
        return archived

    async def sequences(self, fold: str) -> list[int]:
        """Return the positions of the snapshots of a fold in the store, ascending. The archive does not count."""
        return await self._store.sequences(fold)
