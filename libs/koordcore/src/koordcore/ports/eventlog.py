"""The log of facts. Adapters: `koordcore.bus.adapters.memory`, `koordcore.bus.adapters.event_log`.

The contract tests `tests/contract/bus/test_event_log.py` check every method of every adapter.

Source:
    event-bus spec, 3.2, 4.1, 4.3
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from koordcore.events.envelope import AggregateRef, NewEvent, StoredEvent

MOST_AT_ONCE: Final = 1000
"""Largest number of events in one atomic append (event-bus spec, 1: a limit of the server)."""


class Appended(msgspec.Struct, frozen=True):
    """All events are stored, by this call or by an earlier attempt with the same ids.

    Attributes:
        last_seq: Sequence of the last event of the batch.
        seqs: Sequence of each event, in order.
        duplicate: Whether an earlier attempt stored them and its acknowledgement was lost.
    """

    last_seq: int
    seqs: tuple[int, ...]
    duplicate: bool = False


class Conflict(msgspec.Struct, frozen=True):
    """Nothing is stored, because an aggregate has newer events. Fold them, then decide again.

    Attributes:
        moved: Aggregate -> its actual last sequence, for aggregates that differ from the expectation. Empty if another
            append is being stored and the new position is not known yet.
    """

    moved: tuple[tuple[AggregateRef, int], ...] = ()


class Full(msgspec.Struct, frozen=True):
    """Nothing is stored, because the stream or the storage is full.

    The service stops deciding and raises an alert; it stays ready for reads.
    """

    reason: str


class Unavailable(msgspec.Struct, frozen=True):
    """It is unknown whether the events are stored: no definite answer came before the deadline.

    The caller repeats the same append (same ids) later, or folds the log. It must not decide again before that.
    """

    reason: str


AppendOutcome = Appended | Conflict | Full | Unavailable


class Misconfigured(Exception):
    """A bug or a wrong configuration: wrong stream, batches disabled, batch too large, permission denied."""


class Unsendable(Misconfigured):
    """The append contains a name, an id or a size that the log does not accept. Other appends work."""


class TooLarge(Unsendable):
    """Some events exceed the size limit of the log. The others may be appended without them."""

    def __init__(self, message: str, refs: frozenset[AggregateRef]) -> None:
        super().__init__(message)
        self.refs = refs


class LogHead(NamedTuple):
    """Bounds of the stream: sequences of the oldest kept event and of the newest event (0: empty)."""

    first_seq: int
    last_seq: int


class HistoryGone(Exception):
    """Events after the requested position are trimmed. Load a snapshot or rebuild (event-bus spec, 9.3)."""

    def __init__(self, after: int, first_seq: int) -> None:
        super().__init__(f"events {after + 1}..{first_seq - 1} are gone; the stream begins at {first_seq}")
        self.after = after
        self.first_seq = first_seq


class EventLog(Protocol):
    """The facts of one cluster. Calls may be concurrent, but only one append per aggregate."""

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        """Append all events or none; each names the expected last sequence of its subject.

        Two or more events (at most 1000, all of different aggregates) are one atomic batch. Temporary failures are
        repeated with the same bytes and ids until `deadline` (real seconds). After a conflict, the subjects are read at
        the leader, because an acknowledgement may have been lost.

        Raises:
            Misconfigured: Wrong stream, batches disabled, batch too large, permission denied: a bug or
                misconfiguration.
        """
        ...

    async def read_aggregate(self, ref: AggregateRef, *, after: int = 0) -> list[StoredEvent]:
        """Return the events of one aggregate with sequence > after, in order, read at the leader."""
        ...

    async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
        """Return the newest event of one aggregate, read at the leader; None if it has none."""
        ...

    async def head(self) -> LogHead:
        """Return the bounds of the stream, read at its leader."""
        ...

    def follow(
        self, after: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Iterate over batches of events with sequence > after, in order and without gaps, forever.

        Each batch has 1 to `batch` events. After a reconnect, a gap or a missed heartbeat it continues after the last
        delivered event.

        Args:
            kinds: Aggregate kinds to deliver; None: all.

        Raises:
            HistoryGone: Events after `after` are trimmed.
        """
        ...

    def history(
        self, after: int, upto: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Iterate over batches as `follow` does, and end after the last event with sequence <= upto."""
        ...
