"""Own events that the follower delivers before the log has answered their append.

Both use one connection, and under load the events arrive first. Their content is assumed already and takes effect
with the answer, so they are not folded. They are kept in case the state is needed before the answer, for a snapshot.
"""

from collections.abc import Iterable

from koordcore.events.envelope import AggregateRef, NewEvent, StoredEvent


class OwnAppends:
    """Own events without an answer, at most one per aggregate."""

    def __init__(self) -> None:
        self._sent: dict[AggregateRef, str] = {}
        self._early: dict[AggregateRef, StoredEvent] = {}

    def sent(self, events: Iterable[NewEvent]) -> None:
        """Record events that are handed to the log."""
        for event in events:
            self._sent[event.ref] = event.event_id

    def is_early(self, stored: StoredEvent) -> bool:
        """Return whether the event is one of our own without an answer. If so, it is kept until the answer."""
        wanted = self._sent.get(stored.ref)
        if wanted is None or not stored.has_id(wanted):
            return False
        self._early[stored.ref] = stored
        return True

    def overtaken(self, ref: AggregateRef) -> StoredEvent | None:
        """Return the kept event of an aggregate, which must be folded before a later one that has arrived."""
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
        """Forget appends that the log has refused.

        Return events of others under the same ids, which must be folded now.

        Two schedulers that decide about the same pod because of the same event give their events the same ids.
        """
        early: list[StoredEvent] = []
        for event in events:
            self._sent.pop(event.ref, None)
            stored = self._early.pop(event.ref, None)
            if stored is not None:
                early.append(stored)
        return sorted(early, key=lambda stored: stored.seq)

    def take_early(self) -> list[StoredEvent]:
        """Return kept events without an answer, in the order of the log. They must be folded now."""
        early = sorted(self._early.values(), key=lambda stored: stored.seq)
        for stored in early:
            del self._sent[stored.ref]
        self._early.clear()
        return early
