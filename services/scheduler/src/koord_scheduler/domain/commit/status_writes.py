"""Facts other than placements: nominations, requested evictions, statuses of quotas and gangs.

Each status write is one append of its own, all or none. Its expectations are written down when it is taken, and none is
taken while something else is in flight for one of its aggregates.

Source:
    event-bus spec, 4.2
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from koordcore.events.envelope import AggregateRef, Draft, Event


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWrite:
    """Facts that are appended together, all or none.

    Attributes:
        facts: What to append.
        trigger: Id of the event that led to it.
        uid: Pod that waits for the outcome, "" none.
    """

    facts: tuple[tuple[AggregateRef, Event], ...]
    trigger: str
    uid: str = ""
    traceparent: str = ""
    tracestate: str = ""


@dataclass(frozen=True, slots=True)
class TakenStatusWrite:
    """A status write in flight, with its expectations."""

    write: StatusWrite
    drafts: tuple[Draft, ...]


@dataclass(slots=True)
class StatusWrites:
    """Status writes that are not appended yet, in order of arrival.

    Attributes:
        seqs: Last sequence that is known of each aggregate which is not followed elsewhere (evictions, quotas, gangs).
    """

    seqs: dict[AggregateRef, int] = field(default_factory=dict[AggregateRef, int])
    _waiting: deque[StatusWrite] = field(default_factory=deque[StatusWrite])
    _in_flight: set[AggregateRef] = field(default_factory=set[AggregateRef])

    def __len__(self) -> int:
        """StatusWrites not taken yet."""
        return len(self._waiting)

    def put(self, write: StatusWrite) -> None:
        """Add one after those that wait."""
        self._waiting.append(write)

    def take(self, last_seq: Callable[[AggregateRef], int | None]) -> TakenStatusWrite | None:
        """Return the first that may go; None: none may.

        Args:
            last_seq: Last sequence known of an aggregate; None: something is in flight for it.
        """
        for write in self._waiting:
            seqs = [None if ref in self._in_flight else last_seq(ref) for ref, _ in write.facts]
            if None in seqs:
                continue
            self._waiting.remove(write)
            self._in_flight.update(ref for ref, _ in write.facts)
            drafts = (Draft(ref, event, seq or 0) for (ref, event), seq in zip(write.facts, seqs, strict=True))
            return TakenStatusWrite(write, tuple(drafts))
        return None

    def is_in_flight(self, ref: AggregateRef) -> bool:
        """Return whether an append of ours about the aggregate has no answer yet."""
        return ref in self._in_flight

    def under_way(self) -> set[AggregateRef]:
        """Return aggregates about which something is to be said, or has been said without an answer."""
        return self._in_flight.union(ref for write in self._waiting for ref, _ in write.facts)

    def landed(self, taken: TakenStatusWrite) -> None:
        """Forget a status write whose append was answered."""
        self._in_flight.difference_update(draft.ref for draft in taken.drafts)

    def withdraw_all(self) -> list[StatusWrite]:
        """Take back all that are not in flight: somebody else decides from now on."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting
