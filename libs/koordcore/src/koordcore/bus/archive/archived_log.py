"""The log with its archive: reads begin in the archive where the stream has dropped its oldest facts."""

from collections.abc import AsyncIterator, Sequence

from koordcore.bus.archive.files import Archive, Part, read_list, read_part
from koordcore.events.envelope import AggregateRef, NewEvent, StoredEvent
from koordcore.place import Place
from koordcore.ports.eventlog import AppendOutcome, EventLog, HistoryGone, LogHead


class ArchivedEventLog:
    """An `EventLog` whose history begins in an archive. Everything else is answered by the log itself.

    Args:
        log: The log.
        place: Place of the archive.
    """

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

    async def head(self) -> LogHead:
        """Return the first and the last position of the stream itself. The archive does not count."""
        return await self._log.head()

    async def follow(
        self, after: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Yield batches of events from the archive, and then from the log forever, without a gap between them.

        The archive is read only if the stream has dropped events after `after`.

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
