"""Own events that the follower delivers before the log has answered the append.

Both ways run through one connection, and under load the events come first. They say what is assumed already and will
take effect with the answer, so folding them now would be work done twice; they are only kept, in case somebody needs
the state to hold them before the answer comes (a snapshot).
"""

from collections.abc import Iterable

from koordcore.events.envelope import AggregateRef, NewEvent, StoredEvent


class OwnAppends:
    """Own events that are not answered yet, at most one of each aggregate."""

    def __init__(self) -> None:
        self._sent: dict[AggregateRef, str] = {}
        self._early: dict[AggregateRef, StoredEvent] = {}

    def sent(self, events: Iterable[NewEvent]) -> None:
        """Remember events that are handed to the log."""
        for event in events:
            self._sent[event.ref] = event.event_id

    def is_early(self, stored: StoredEvent) -> bool:
        """Return whether an event that was folded is one of those: it is kept, and waits for the answer."""
        wanted = self._sent.get(stored.ref)
        if wanted is None or not stored.has_id(wanted):
            return False
        self._early[stored.ref] = stored
        return True

    def overtaken(self, ref: AggregateRef) -> StoredEvent | None:
        """Return a further event of the aggregate has come: what was kept of it has to be folded before."""
        early = self._early.pop(ref, None)
        if early is not None:
            del self._sent[ref]
        return early

    def stored(self, events: Iterable[NewEvent]) -> None:
        """Forget events that the log has stored. They take effect with its answer."""
        for event in events:
            self._sent.pop(event.ref, None)
            self._early.pop(event.ref, None)

    def refused(self, events: Iterable[NewEvent]) -> list[StoredEvent]:
        """Forget appends that the log has refused, and return events of others under the same ids, to be folded now.

        Two that decide about the same pod because of the same event give their events the same ids.
        """
        early: list[StoredEvent] = []
        for event in events:
            self._sent.pop(event.ref, None)
            stored = self._early.pop(event.ref, None)
            if stored is not None:
                early.append(stored)
        return sorted(early, key=lambda stored: stored.seq)

    def take_early(self) -> list[StoredEvent]:
        """Those that came early and were not answered, in the order of the log; they have to be folded now."""
        early = sorted(self._early.values(), key=lambda stored: stored.seq)
        for stored in early:
            del self._sent[stored.ref]
        self._early.clear()
        return early
