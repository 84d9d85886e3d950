"""Facts other than placements: nominations, requested evictions, statuses of quotas and gangs.

Each status write is one append, all or none. Its expectations are set when it is taken. It is not taken while another
append about one of its aggregates is in flight.

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
        facts: (aggregate, event) to append.
        trigger: Id of the event that caused it.
        uid: Pod that waits for the outcome; "" if none does.
    """

    facts: tuple[tuple[AggregateRef, Event], ...]
    trigger: str
    uid: str = ""
    traceparent: str = ""
    tracestate: str = ""


@dataclass(frozen=True, slots=True)
class TakenStatusWrite:
    """A status write in flight, with its drafts."""

    write: StatusWrite
    drafts: tuple[Draft, ...]


@dataclass(slots=True)
class StatusWrites:
    """Status writes that are not appended yet, in order of arrival.

    Attributes:
        seqs: Last known sequence of each aggregate that no other part follows (evictions, quotas, gangs).
    """

    seqs: dict[AggregateRef, int] = field(default_factory=dict[AggregateRef, int])
    _waiting: deque[StatusWrite] = field(default_factory=deque[StatusWrite])
    _in_flight: set[AggregateRef] = field(default_factory=set[AggregateRef])

    def __len__(self) -> int:
        """Return the number of status writes that are not taken yet."""
        return len(self._waiting)

    def put(self, write: StatusWrite) -> None:
        """Add a status write."""
        self._waiting.append(write)

    def take(self, last_seq: Callable[[AggregateRef], int | None]) -> TakenStatusWrite | None:
        """Take the first status write that may be appended. Return None if there is none.

        Args:
            last_seq: Returns the last known sequence of an aggregate; None if an append about it is in flight.
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
        """Return the aggregates with a status write that waits or is in flight."""
        return self._in_flight.union(ref for write in self._waiting for ref, _ in write.facts)

    def landed(self, taken: TakenStatusWrite) -> None:
        """Forget a status write whose append was answered."""
        self._in_flight.difference_update(draft.ref for draft in taken.drafts)

    def withdraw_all(self) -> list[StatusWrite]:
        """Withdraw all status writes that are not in flight, because another scheduler leads from now on."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting
