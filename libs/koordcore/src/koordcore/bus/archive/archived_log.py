"""The log with its archive: reads begin in the archive where the stream has dropped its oldest facts.

    archive_facts     copies parts of facts, and reads each back to compare it; a later run continues at the end
    require_archived  reads the parts again, and compares them with the log, before it drops their facts
    trim              lets the stream drop the facts that the archive has and no fold needs any more

Source: event-bus spec, 7.
"""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import msgspec

from koordcore.bus.archive.files import (
    LIST,
    Archive,
    InvalidArchive,
    Part,
    read_list,
    read_part,
    write_list,
    write_part,
)
from koordcore.bus.client.connection import BusConnection
from koordcore.bus.names import BusNames
from koordcore.bus.read.completeness import Completeness
from koordcore.bus.read.stream_reader import api
from koordcore.events.envelope import AggregateRef, NewEvent, StoredEvent
from koordcore.place import Place
from koordcore.ports.eventlog import AppendOutcome, EventLog, HistoryGone, LogHead
from koordcore.ports.snapshots import SnapshotStore


class ArchivedEventLog:
    """An `EventLog` whose history begins in an archive. Everything else is answered by the log itself."""

    def __init__(self, log: EventLog, place: Place) -> None:
        self._log = log
        self._place = place

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        """Append to the log, not to the archive."""
        return await self._log.append(events, deadline=deadline)

    async def read_aggregate(self, ref: AggregateRef, *, after: int = 0) -> list[StoredEvent]:
        """Return the events of one aggregate that the log still has, in order.
        Facts in the archive are not included.
        """
        return await self._log.read_aggregate(ref, after=after)

    async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
        """Return the newest event of one aggregate that the log still has; None if it has none."""
        return await self._log.last_of(ref)

    async def at(self, seq: int) -> StoredEvent | None:
        """Return the event at a position that the log still has; None if it does not have it."""
        return await self._log.at(seq)

    async def head(self) -> LogHead:
        """Return the first and the last position of the stream itself. The archive does not count."""
        return await self._log.head()

    async def follow(
        self, after: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Yield batches of events from the archive, and then from the log forever, without a gap between them. The
        archive is read only if the stream has dropped events after `after`.

        Raises:
            HistoryGone: The stream has dropped them, and the archive does not have them all.
        """
        while (end := await self._dropped()) > after:  # the stream may drop more facts while the archive is read
            async for events in self._archived(after, end, kinds, batch):
                yield events
            after = end
        async for events in self._log.follow(after, kinds=kinds, batch=batch):
            yield events

    async def history(
        self, after: int, upto: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Yield batches of the events from `after` + 1 to `upto`: first from the archive, then from the log.

        Raises:
            HistoryGone: The stream has dropped events among them, and the archive does not have them all.
        """
        while (end := min(upto, await self._dropped())) > after:
            async for events in self._archived(after, end, kinds, batch):
                yield events
            after = end
        if after < upto:
            async for events in self._log.history(after, upto, kinds=kinds, batch=batch):
                yield events

    async def _dropped(self) -> int:
        """Return the position of the last fact that the stream has dropped; not positive if it has dropped none."""
        return (await self._log.head()).first_seq - 1

    async def _archived(
        self, after: int, end: int, kinds: Sequence[str] | None, batch: int
    ) -> AsyncIterator[list[StoredEvent]]:
        """Yield the facts from `after` + 1 to `end`.

        Raises:
            HistoryGone: The archive does not have them all.
        """
        archive = await read_list(self._place)
        if archive is None or after + 1 < archive.first or archive.last < end:
            raise HistoryGone(after, end + 1)
        wanted = None if kinds is None else frozenset(kinds)
        for part in _parts(archive, after, end):
            found = [
                event
                for event in await read_part(self._place, part)
                if after < event.seq <= end and (wanted is None or event.ref.kind in wanted)
            ]
            for begin in range(0, len(found), batch):
                yield found[begin : begin + batch]


def _parts(archive: Archive, after: int, end: int) -> list[Part]:
    return [part for part in archive.parts if part.last > after and part.first <= end]


FACTS_OF_PART: Final = 100_000
# Folds that need a snapshot behind every trimmed fact, so that their next start finds the rest in the stream.
FOLDS: Final = ("manager", "scheduler")


class NotTrimmable(Exception):
    """No fact may be deleted from the log yet: a fold has no snapshot, or one that is not what folding gives."""


async def archive_facts(
    events: EventLog,
    place: Place,
    cluster: str,
    upto: int,
    progress: Callable[[int], None],
    *,
    facts_of_part: int = FACTS_OF_PART,
) -> Archive:
    """Copy all facts up to a position that the archive does not have yet, and return its list.

    Args:
        place: Place of the archive. It is created with the first part.
        upto: Position of the last fact to copy.
        progress: Called with the position after each part.
        facts_of_part: Largest number of facts in a file.

    Raises:
        InvalidArchive: The archive is of another cluster or another log, or a file that was written does not contain
            the facts.
        HistoryGone: The log does not have the fact that follows the last one of the archive.
        FactsMissing: The log lacks facts. The archive ends before them.
        PlaceTrouble: The place does not answer.
    """
    archive = await read_list(place) or Archive(cluster=cluster, parts=[])
    if archive.cluster != cluster:
        raise InvalidArchive(f"{place.path_of(LIST)}: cluster: must be {cluster}, got {archive.cluster}")
    head = await events.head()
    position = archive.last if archive.parts else head.first_seq - 1
    if position + 1 < head.first_seq:
        raise HistoryGone(position, head.first_seq)
    if archive.parts and position >= head.first_seq:
        await _require_same_log(events, head, place, archive.parts[-1])
    waiting: list[StoredEvent] = []
    if position < upto:
        complete = Completeness(position)
        async for batch in events.history(position, upto):
            for stored in batch:
                complete.see(stored)
            complete.require()
            waiting += batch
            while len(waiting) >= facts_of_part:
                archive = await _add(place, archive, waiting[:facts_of_part])
                waiting = waiting[facts_of_part:]
                progress(archive.last)
        complete.end(upto)
        complete.require()
    if waiting:
        archive = await _add(place, archive, waiting)
        progress(archive.last)
    return archive


async def require_archived(events: EventLog, place: Place, archive: Archive, upto: int) -> None:
    """Read the parts of an archive with the facts that a stream still has up to a position, and compare them with the
    stream. So the stream drops only facts that can be read from the archive.

    Args:
        events: The stream, without its archive.

    Raises:
        InvalidArchive: A file has changed, or it lacks a fact or has another one.
        FactsMissing: The stream lacks facts.
        PlaceTrouble: A file is missing or cannot be read.
    """
    position = (await events.head()).first_seq - 1
    for part in _parts(archive, position, upto):
        kept = [each for each in await read_part(place, part) if position < each.seq <= upto]
        last = min(part.last, upto)
        complete, compared = Completeness(position), 0
        async for batch in events.history(position, last):
            for stored in batch:
                complete.see(stored)
                found = kept[compared] if compared < len(kept) else None
                if found != stored:
                    got = "none" if found is None else f"{found.event_id} at {found.seq}"
                    raise InvalidArchive(
                        f"{place.path_of(part.file)}: fact {stored.seq}: must be {stored.event_id}, got {got}"
                    )
                compared += 1
        complete.end(last)
        complete.require()
        position = last
    if position < upto:
        raise InvalidArchive(f"{place.path_of(LIST)}: last: must be at least {upto}, got {position}")


async def _require_same_log(events: EventLog, head: LogHead, place: Place, part: Part) -> None:
    """Compare the last fact of a part with the log.

    Raises:
        InvalidArchive: The log has another fact there or none, because it was restored to an earlier moment, or is a
            new one. Facts that it does not have must not precede its own.
    """
    if part.last <= head.last_seq:
        async for batch in events.history(part.last - 1, part.last):
            if any(stored.occurred_at == part.ends_at for stored in batch):
                return
    raise InvalidArchive(
        f"{place.path_of(part.file)}: its last fact, of {part.ends_at}, is not at position {part.last} of this log;"
        " name a new place"
    )


async def _add(place: Place, archive: Archive, events: list[StoredEvent]) -> Archive:
    part = await write_part(place, events)
    grown = msgspec.structs.replace(archive, parts=[*archive.parts, part])
    await write_list(place, grown)
    return grown


async def trimmable_to(archive: Archive, snapshots: SnapshotStore) -> int:
    """Return the position up to which the stream may drop its facts. The archive has them, and each fold has a snapshot
    that contains them.

    Raises:
        NotTrimmable: A fold has no snapshot.
    """
    position = archive.last
    for fold in FOLDS:
        kept = await snapshots.sequences(fold)
        if not kept:
            raise NotTrimmable(f"the fold {fold} has no snapshot yet; it takes one every 100,000 facts or 15 minutes")
        position = min(position, kept[-1])
    return position


async def trim(connection: BusConnection, names: BusNames, upto: int) -> None:
    """Drop the facts up to a position from the stream. `connection`: connection of the user `retention`. `upto`:
    position of the last fact to drop, at most `trimmable_to`.

    Raises:
        ApiError: The server refused it.
    """
    await api(connection, f"$JS.API.STREAM.PURGE.{names.ev}", json.dumps({"seq": upto + 1}).encode())
