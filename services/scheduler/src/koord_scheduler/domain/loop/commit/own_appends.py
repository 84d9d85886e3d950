"""The positions of the log that a scheduler has reached, and own events that come before the answer to their append.

Under load, the follower may deliver an event before the log answers the append. The state has assumed the decision
already, and the answer completes it. So such an early event is not folded on arrival. It is kept, because a snapshot
may need it before the answer.
"""

from collections.abc import Iterable

from koordcore.events.envelope import AggregateRef, NewEvent, StoredEvent


class OwnAppends:
    """Events that this scheduler has sent to the log without an answer so far, at most one per aggregate. The follower
    of the log can deliver such an event before the answer. It is then an early event: it is kept here, and not folded
    until the answer says whether the append succeeded.
    """

    def __init__(self) -> None:
        self._sent: dict[AggregateRef, str] = {}
        self._early: dict[AggregateRef, StoredEvent] = {}

    def sent(self, events: Iterable[NewEvent]) -> None:
        """Record events that are being appended to the log."""
        for event in events:
            self._sent[event.ref] = event.event_id

    def is_early(self, stored: StoredEvent) -> bool:
        """Return whether the event is one that this scheduler has sent and whose append is not answered yet. If so, the
        event is kept until the answer, and the caller must not fold it.
        """
        wanted = self._sent.get(stored.ref)
        if wanted is None or not stored.has_id(wanted):
            return False
        self._early[stored.ref] = stored
        return True

    def overtaken(self, ref: AggregateRef) -> StoredEvent | None:
        """Return the early event of an aggregate and remove it from this object, or return None if there is none. The
        caller must fold it before it folds a later event of the aggregate.
        """
        early = self._early.pop(ref, None)
        if early is not None:
            del self._sent[ref]
        return early

    def stored(self, events: Iterable[NewEvent]) -> None:
        """Forget events of a successful append, because the caller applies them with the answer of the log."""
        for event in events:
            self._sent.pop(event.ref, None)
            self._early.pop(event.ref, None)

    def refused(self, events: Iterable[NewEvent]) -> list[StoredEvent]:
        """Forget events of a refused append, and return the early events with the same ids, in the order of the log.
        The caller must fold the returned events: another scheduler has stored them. Two schedulers that decide about
        the same pod because of the same event give their events the same ids.
        """
        early: list[StoredEvent] = []
        for event in events:
            self._sent.pop(event.ref, None)
            stored = self._early.pop(event.ref, None)
            if stored is not None:
                early.append(stored)
        return sorted(early, key=lambda stored: stored.seq)

    def take_early(self) -> list[StoredEvent]:
        """Return and forget the own events that the fold delivered early, in the order of the log. The caller must fold
        them now.
        """
        early = sorted(self._early.values(), key=lambda stored: stored.seq)
        for stored in early:
            del self._sent[stored.ref]
        self._early.clear()
        return early


class LogPosition:
    """Positions in the streams up to which a scheduler has read and appended."""

    def __init__(self) -> None:
        self.position = 0  # Position of the last folded event of the facts stream
        self.observed = 0  # Position of the last folded report of the observations stream
        self.acknowledged = 0  # Greatest position that the log has answered to an append of this process
        self.read_ahead = 0  # Greatest position of an event that was folded before its turn, after a conflict
        self.own = OwnAppends()  # Own appends that the log has not answered yet
