"""Facts other than placements: nominations, requested evictions, statuses of quotas and gangs.

Each status write is one append, all or none. Its expectations are set when it is taken. It is not taken while another
append about one of its aggregates is in flight.

Source: event-bus spec, 4.2
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from koordcore.events.envelope import AggregateRef, Draft, Event

from koord_scheduler.domain.cluster.forgetting import Forgetting


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWrite:
    """Facts other than placements, such as a nomination with its evictions, that one append writes all or none."""

    facts: tuple[tuple[AggregateRef, Event], ...]  # (aggregate, event) to append
    trigger: str  # Id of the event that caused the write
    uid: str = ""  # Uid of the pod that is reconciled when the log answers; "" if there is none
    traceparent: str = ""  # W3C trace context of the write
    tracestate: str = ""  # Vendor part of the trace context


@dataclass(frozen=True, slots=True)
class TakenStatusWrite:
    """A status write in flight: its events as drafts that name the expected position of their aggregates."""

    write: StatusWrite
    drafts: tuple[Draft, ...]


@dataclass(slots=True)
class StatusWrites:
    """Status writes that are not appended yet, in order of arrival."""

    # Aggregate -> position of its last known event, for aggregates that no other part of the state has (evictions,
    # quotas, gangs). If an aggregate is forgotten, the next append expects position 0, and the log stores it behind the
    # last event, because it is folded (`koordcore.bus.write.append`).
    seqs: dict[AggregateRef, int] = field(default_factory=dict[AggregateRef, int])
    _waiting: deque[StatusWrite] = field(default_factory=deque[StatusWrite])
    _in_flight: set[AggregateRef] = field(default_factory=set[AggregateRef])
    _forgetting: Forgetting = field(default_factory=Forgetting)

    def prune(self, position: int, exists: Callable[[AggregateRef], bool]) -> None:
        """Forget aggregates whose objects do not exist, unless an event behind `position` is about them. No-op until
        `Forgetting` requires a search.
        """
        if self._forgetting.is_due(len(self.seqs)):
            under_way = self.under_way()
            self.seqs = {
                ref: seq for ref, seq in self.seqs.items() if seq > position or ref in under_way or exists(ref)
            }
            self._forgetting.searched(len(self.seqs))

    def __len__(self) -> int:
        """Return the number of status writes that are not taken yet."""
        return len(self._waiting)

    def put(self, write: StatusWrite) -> None:
        self._waiting.append(write)

    def take(self, last_seq: Callable[[AggregateRef], int | None]) -> TakenStatusWrite | None:
        """Remove and return the first status write that may be appended, or return None if there is none. It must not
        concern an aggregate with an append in flight. `last_seq`: returns the position of the last known event of an
        aggregate, 0 if it has none; None if an append of placements about it is in flight.
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
        """Return whether a status write about the aggregate was sent to the log and is not answered yet."""
        return ref in self._in_flight

    def under_way(self) -> set[AggregateRef]:
        """Return the aggregates that have a status write, waiting or in flight."""
        return self._in_flight.union(ref for write in self._waiting for ref, _ in write.facts)

    def landed(self, taken: TakenStatusWrite) -> None:
        """Record that the log has answered the append of a status write, so that its aggregates are free again."""
        self._in_flight.difference_update(draft.ref for draft in taken.drafts)

    def withdraw(self, wanted: type[Event], ref: AggregateRef) -> None:
        """Remove the waiting status writes that consist of such a fact about an aggregate, because the log has it."""
        kept = [write for write in self._waiting if [(type(event), of) for of, event in write.facts] != [(wanted, ref)]]
        if len(kept) < len(self._waiting):
            self._waiting = deque(kept)

    def withdraw_all(self) -> list[StatusWrite]:
        """Remove and return the waiting status writes, because another scheduler leads from now on. Those in flight
        stay.
        """
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting
