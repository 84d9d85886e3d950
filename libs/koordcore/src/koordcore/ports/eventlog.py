"""The log of facts. Adapters: `koordcore.bus.adapters.memory`, `koordcore.bus.adapters.event_log`.

One contract suite (`tests/contract/bus/test_event_log.py`) pins the meaning of every method for every adapter.

Source:
    event-bus spec, 3.2, 4.1, 4.3
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from koordcore.events.envelope import AggregateRef, NewEvent, StoredEvent

MOST_AT_ONCE: Final = 1000
"""Events that are stored all or none (event-bus spec, 1: a limit of the server)."""


class Appended(msgspec.Struct, frozen=True):
    """Everything is stored, by this call or by an earlier attempt with the same ids.

    Attributes:
        last_seq: Sequence of the last event of the batch.
        seqs: Sequence of each event, in order.
        duplicate: An earlier attempt had stored it (lost acknowledgement).
    """

    last_seq: int
    seqs: tuple[int, ...]
    duplicate: bool = False


class Conflict(msgspec.Struct, frozen=True):
    """Nothing is stored: an aggregate of the batch has newer events. Fold them, then decide again.

    Attributes:
        moved: Aggregates whose last sequence differs from the expectation, with the actual last sequence; empty when
            another append was in flight and the new position is not known yet.
    """

    moved: tuple[tuple[AggregateRef, int], ...] = ()


class Full(msgspec.Struct, frozen=True):
    """Nothing is stored: the stream or the storage is full. Stop deciding, alert, stay ready for reads."""

    reason: str


class Unavailable(msgspec.Struct, frozen=True):
    """Whether it is stored is unknown: the deadline passed while the same bytes were repeated.

    The caller repeats the same append (same ids) later, or refolds; it never decides something else before.
    """

    reason: str


AppendOutcome = Appended | Conflict | Full | Unavailable


class Misconfigured(Exception):
    """Wrong stream, batches disabled, batch too large, permission denied: a bug or misconfiguration. Stop."""


class Unsendable(Misconfigured):
    """This append cannot be stored because of a name, an id or its size. Other appends can."""


class TooLarge(Unsendable):
    """Some events are larger than the log accepts; the others may be appended without them."""

    def __init__(self, message: str, refs: frozenset[AggregateRef]) -> None:
        super().__init__(message)
        self.refs = refs


class LogHead(NamedTuple):
    """Bounds of the stream: `first_seq` is the oldest event that is kept, `last_seq` the newest (0: empty)."""

    first_seq: int
    last_seq: int


class HistoryGone(Exception):
    """Events after the requested position are trimmed: load a snapshot or rebuild (event-bus spec, 9.3)."""

    def __init__(self, after: int, first_seq: int) -> None:
        super().__init__(f"events {after + 1}..{first_seq - 1} are gone; the stream begins at {first_seq}")
        self.after = after
        self.first_seq = first_seq


class EventLog(Protocol):
    """The facts of one cluster. All methods may be called concurrently; one append per aggregate in flight."""

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        """Store all events or none, each expecting the last sequence of its exact subject.

        One event is a plain compare-and-append; two or more (at most 1000, all of different aggregates) are one
        atomic batch. Retries of transient answers repeat the same bytes, ids and expectations until `deadline`
        (real seconds); a conflict is checked against a lost acknowledgement by reading the subjects at the leader.

        Raises:
            Misconfigured: Wrong stream, batches disabled, batch too large, permission denied: a bug or
                misconfiguration.
        """
        ...

    async def read_aggregate(self, ref: AggregateRef, *, after: int = 0) -> list[StoredEvent]:
        """Return events of one aggregate with sequence > after, in order, read at the leader (never stale)."""
        ...

    async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
        """Return the newest event of one aggregate, read at the leader; None if it has none."""
        ...

    async def head(self) -> LogHead:
        """Return bounds of the stream, from the leader."""
        ...

    def follow(
        self, after: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Return batches of events with sequence > after, strictly in order, without gaps or repetitions, for ever.

        Each batch holds 1..`batch` events. Survives reconnects and restarts of the server: on a gap or a missed
        heartbeat it resumes after the last event that it delivered.

        Args:
            kinds: Aggregate kinds to deliver; None: all.

        Raises:
            HistoryGone: `after + 1` lies before the first kept event and events of it are missing.
        """
        ...

    def history(
        self, after: int, upto: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Like `follow`, but ends once every event with sequence <= upto has been delivered."""
        ...
