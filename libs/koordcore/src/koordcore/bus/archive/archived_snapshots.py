"""Snapshots of an archive as starts of folds: the nearest one at or before a position that fits and is intact."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from koordcore.bus.archive.files import InvalidArchive, read_list
from koordcore.bus.archive.snapshot_choice import SNAPSHOT_FACTS, ArchivedSnapshot, serving
from koordcore.bus.archive.snapshot_files import UnusableSnapshot, read_snapshot, read_snapshot_list, version_of
from koordcore.place import Place, PlaceTrouble
from koordcore.ports.eventlog import EventLog, HistoryGone
from koordcore.ports.snapshots import Snapshot, SnapshotStore, state_digest
from koordcore.values.timestamps import rfc3339

_log = logging.getLogger("koordcore.bus")

_OUT_OF_ORDER: Final = timedelta(minutes=10)
"""Difference of the clocks of two writers that may be in the log."""


def _warn(sentence: str) -> None:
    _log.warning("archived_snapshot_refused reason=%s", sentence)


class ArchivedSnapshots:
    """The snapshots of an archive.

    Args:
        place: Place of the archive.
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
        """Return the newest usable snapshot of a fold; None if there is none, or the place does not answer.

        A snapshot that has changed, or that is of another log, is refused, and the next older one is used.

        Args:
            fold: Name of the fold.
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

    async def position_before(self, moment: datetime) -> int:
        """Return a position before which every fact occurred before `moment`, as near to `moment` as the lists tell.

        A search for the moment may begin there. 0 if the archive has nothing earlier.

        Raises:
            InvalidArchive: A list is not valid.
            PlaceTrouble: The place does not answer.
        """
        wanted = rfc3339(moment - _OUT_OF_ORDER)
        facts, snapshots = await read_list(self._place), await read_snapshot_list(self._place)
        known = [
            *((part.ends_at, part.last) for part in (facts.parts if facts is not None else ())),
            *((each.occurred_at, each.position) for each in (snapshots.snapshots if snapshots is not None else ())),
        ]
        return max((position for occurred_at, position in known if occurred_at < wanted), default=0)

    async def _is_of_this_log(self, snapshot: ArchivedSnapshot) -> bool:
        """Return whether the last fact of a snapshot is in the log or its archive."""
        async for batch in self._events.history(snapshot.position - 1, snapshot.position):
            if any(stored.event_id == snapshot.fact_id for stored in batch):
                return True
        return False


class SnapshotStoreWithArchive:
    """A `SnapshotStore` that also finds the snapshots of an archive. It saves to the store alone.

    Args:
        store: The store.
        archive: The snapshots of the archive.
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
