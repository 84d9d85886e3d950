"""The log of facts: append events with an expected position, read them in order. And streams that may lose messages.

Adapters: `koordcore.bus.adapters.memory`, `koordcore.bus.adapters.logs`. The contract tests in
`tests/contract/eventlog/` check every method of every adapter.

Source: event-bus spec, 2 (KOORD_OBS, KOORD_EXPLANATIONS), 3.2, 3.3, 4.1, 4.3.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from koordcore.events.envelope import AggregateRef, Event, NewEvent, Origin, StoredEvent

# Largest number of events that independent decisions share in one atomic append. Every server takes so many.
MOST_AT_ONCE: Final = 1000
# Largest number of events of one decision, such as a gang, in one atomic append. The servers are configured to take so
# many. Servers of others may take fewer (event-bus spec, 1: the default of a server is 1,000).
LARGEST_APPEND: Final = 50_000


class Appended(msgspec.Struct, frozen=True, tag=True):
    """Outcome of an append: all its events are stored, by this call or by an earlier attempt with equal event ids."""

    last_seq: int  # Sequence of the last event
    seqs: tuple[int, ...]  # Sequence of each event, in order
    duplicate: bool = False  # Whether an earlier attempt stored the events and its acknowledgement was lost


class Conflict(msgspec.Struct, frozen=True, tag=True):
    """Outcome of an append: nothing is stored, because an aggregate has newer events than the writer expected. The
    writer folds these events and then decides again.
    """

    # (aggregate, its actual last sequence) for each aggregate that differs from the expectation. Empty if another
    # append is being stored at this moment, so that the new sequence is not known yet.
    moved: tuple[tuple[AggregateRef, int], ...] = ()


class Full(msgspec.Struct, frozen=True, tag=True):
    """Outcome of an append: nothing is stored, because the stream or the server's storage is full. The service stops
    deciding and raises an alert. It still answers reads.
    """

    reason: str  # Message of the server


class Unavailable(msgspec.Struct, frozen=True, tag=True):
    """Outcome of an append: it is unknown whether the events are stored, because no definite answer came in time. The
    caller repeats the append with the same event ids, or folds the log first. Before that, it must not decide again.
    """

    reason: str  # Last error, as text


AppendOutcome = Appended | Conflict | Full | Unavailable


class Misconfigured(Exception):
    """The log refused an append because of a bug or a wrong configuration; to repeat it does not help. Examples are a
    wrong stream, disabled batches, a batch that is too large, or a missing permission.
    """


class Unsendable(Misconfigured):
    """The append contains a name, an id or a size that the log never accepts. Other appends still work."""


class TooLarge(Unsendable):
    """Some events of the append exceed the size limit of the log. The others may be appended without them."""

    def __init__(self, message: str, refs: frozenset[AggregateRef]) -> None:
        super().__init__(message)
        self.refs = refs


class TooMany(Misconfigured):
    """The append has more events than the log stores at once, or than its servers are configured to take."""


class KnownId(Unsendable):
    """The log has an event with this id, and the last event that it shows is another one, perhaps an old one. While the
    server remembers the id, it stores no event with it.
    """


class LogHead(NamedTuple):
    """The bounds of a stream."""

    first_seq: int  # Sequence of the oldest kept event; `last_seq` + 1 if none is kept
    last_seq: int  # Sequence of the newest event, kept or not; 0 if there never was one

    @property
    def is_empty(self) -> bool:
        """Whether the stream keeps no event."""
        return self.first_seq > self.last_seq


class HistoryGone(Exception):
    """Events after the requested position were deleted from the log. The reader must load a snapshot, or rebuild its
    state (event-bus spec, 9.3).
    """

    def __init__(self, after: int, first_seq: int) -> None:
        super().__init__(
            f"events {after + 1}..{first_seq - 1} are gone; the stream begins at {first_seq}. An archive may have them:"
            " set KOORD_ARCHIVE for commands, --archive for services"
        )
        self.after = after
        self.first_seq = first_seq


_REMEDY: Final = "stop the services, and see docs/runbook.md, 'Facts are lost'"


class FactsMissing(Exception):
    """The log does not have facts that it must have. The message names their positions."""

    def __init__(self, missing: Sequence[range]) -> None:
        super().__init__(f"positions must be consecutive, {missing_text(missing)}")
        self.missing = missing  # Positions of the missing facts, ascending


def missing_text(missing: Sequence[range]) -> str:
    """`missing` must have an entry."""
    shown = ", ".join(f"{each.start}" if len(each) == 1 else f"{each.start} to {each.stop - 1}" for each in missing[:3])
    more = ", ..." if len(missing) > 3 else ""
    return f"got none at {shown}{more}: {sum(map(len, missing)):,} facts are lost"


class LogShorter(HistoryGone):
    """The log ends before the requested position: it has lost its end, or it is another log."""

    def __init__(self, after: int, last_seq: int) -> None:
        Exception.__init__(
            self,
            f"the log ends at {last_seq}, but this reader has its facts up to {after}: the facts {last_seq + 1} to"
            f" {after} are lost, or it is another log; {_REMEDY}",
        )
        self.after = after
        self.first_seq = last_seq + 1


class LogDamaged(FactsMissing):
    """A reader came to a fact that the log has lost, or that no server can read. Positions are consecutive, except for
    a trimmed beginning and what a restore left out.

    Args:
        expected: Position of the first fact that is missing.
        got: Position of the next fact that can be read; None if none can.
        last: Position of the newest fact.
    """

    def __init__(self, expected: int, got: int | None, last: int) -> None:
        super().__init__([range(expected, last + 1 if got is None else got)])
        self.args = (f"expected the fact {expected}, got {'nothing' if got is None else got}: {self}; {_REMEDY}",)
        self.expected = expected
        self.got = got


class LogChanged(Exception):
    """The log has another fact at a position than the one that a reader had there: it has lost its end and grown again,
    or it is another log.

    Args:
        position: Position of the fact.
        known: Id of the fact that the reader had.
        found: Id of the fact that the log has now.
    """

    def __init__(self, position: int, known: str, found: str) -> None:
        super().__init__(
            f"the fact {position} was {known}, and is {found or 'missing'} now: the log has lost facts and has grown"
            f" again, or it is another log; {_REMEDY}"
        )
        self.position = position


LOG_FAULTS: Final = (LogDamaged, LogChanged, LogShorter)  # The log is not what it was. A person has to mend it.


class EventLog(Protocol):
    """The log of facts of one cluster. Methods may be called concurrently, but only one append per aggregate at a
    time.
    """

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        """Append all events or none. Each event names the expected last sequence of its aggregate. Two or more events
        (at most 50,000, all of different aggregates) are one atomic batch. After a temporary failure, the append is
        repeated with the same bytes and event ids. After a conflict, the aggregates are read, because an
        acknowledgement may have been lost.

        `events`: Sealed events. `deadline`: real seconds after which the append is not repeated any more.

        Returns:
            `Appended`, `Conflict`, `Full` or `Unavailable`.

        Raises:
            TooMany: The servers of the log take fewer events at once.
            Misconfigured: Wrong stream, batches disabled or permission denied.
        """
        ...

    async def read_aggregate(self, ref: AggregateRef, *, after: int = 0) -> list[StoredEvent]:
        """Return the events of one aggregate with a sequence above `after`, in order. The stream's leader answers."""
        ...

    async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
        """Return the newest event of one aggregate; None if it has none. The stream's leader answers."""
        ...

    async def at(self, seq: int) -> StoredEvent | None:
        """Return the event at a position; None if the stream does not have it. The stream's leader answers, and if it
        does not have the event, another server.
        """
        ...

    async def head(self) -> LogHead:
        """Return the bounds of the stream. The stream's leader answers."""
        ...

    def follow(
        self, after: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Iterate over batches of events with a sequence above `after`, in order and without gaps, forever. After a
        reconnect or silence, it continues behind the last delivered event.

        Args:
            after: Sequence of the last event that the caller has; 0 for none.
            kinds: Aggregate kinds to deliver; None: all.
            batch: Largest number of events in a batch. A batch is never empty.

        Raises:
            HistoryGone: Events after `after` were deleted from the log; `LogShorter`: the log ends before `after`.
            LogDamaged: The log has lost events after `after`, or cannot read them.
            LogChanged: The log has another event at the position of the last delivered one.
        """
        ...

    def history(
        self, after: int, upto: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Iterate over batches like `follow`, but end after the last event with a sequence of at most `upto`. If the
        stream does not reach `upto` yet, it waits until it does.

        Args:
            after: Sequence of the last event that the caller has; 0 for none.
            upto: Sequence of the last event to deliver.
            kinds: Aggregate kinds to deliver; None: all.
            batch: Largest number of events in a batch.

        Raises:
            HistoryGone: As `follow`, and its other errors likewise.
        """
        ...


class ObservationLog(Protocol):
    """A stream whose messages may be lost: observations or explanations."""

    async def publish(self, ref: AggregateRef, event: Event, origin: Origin) -> None:
        """Publish one message without waiting until it is stored. While the server is unavailable, a buffer of limited
        size keeps the newest messages. A message above the size limit is dropped.

        Args:
            ref: Aggregate that the message is about.
            event: Body of the message.
            origin: Writer, cause and basis of the message.
        """
        ...

    async def head(self) -> LogHead:
        """Return the bounds of the stream."""
        ...

    def follow(self, after: int, *, batch: int = 500) -> AsyncIterator[list[StoredEvent]]:
        """Iterate over batches of messages with a sequence above `after`, in order, forever. Messages that were already
        deleted are skipped. A batch has at most `batch` messages.
        """
        ...

    async def latest(self, refs: Sequence[AggregateRef]) -> list[StoredEvent]:
        """Return the newest kept message of each aggregate, in the order of `refs`. Aggregates without a message are
        left out.
        """
        ...
