"""Facts that can be decoded and have no rows: Postgres refuses them, or their fold fails. The fold halts before them.

    a batch is refused      -> the next session commits its facts one by one
    one fact is refused     -> the next session halts before it, as before a fact that cannot be decoded (`halting`)

A session ends with each refusal, because its projection is ahead of the tables then.

Source:
    event-bus spec, 8
"""

from collections.abc import Iterator, Sequence

from koordcore.events.envelope import StoredEvent
from koordcore.events.registry import UnreadableEvent


class FactsRefused(Exception):
    """Postgres refuses the rows of facts, or the fold of a fact fails.

    Attributes:
        first: Position of the first of these facts.
        last: Position of the last one.
        reason: Error, one sentence.
    """

    def __init__(self, first: int, last: int, reason: str) -> None:
        facts = f"fact {first}" if first == last else f"facts {first} to {last}"
        super().__init__(f"{facts}: {reason}")
        self.first = first
        self.last = last
        self.reason = reason


class UnstorableEvent(UnreadableEvent):
    """An event that can be decoded and has no rows. The fold stops before it."""

    def __init__(self, seq: int, type_name: str, reason: str) -> None:
        super().__init__(seq, type_name, reason)
        self.args = (f"event {seq} of type {type_name!r} cannot be stored: {reason}",)


class Refusals:
    """The refusals that the sessions of one process have met. They are forgotten with the process, and by a rebuild."""

    def __init__(self) -> None:
        self._alone_until = 0
        self._reasons: dict[int, str] = {}

    def note(self, refused: FactsRefused) -> None:
        """Record a refusal."""
        if refused.first == refused.last:
            self._reasons[refused.first] = refused.reason
        else:
            self._alone_until = max(self._alone_until, refused.last)

    def clear(self) -> None:
        """Forget all refusals, because the tables are made again."""
        self._alone_until = 0
        self._reasons.clear()

    def parts(self, events: list[StoredEvent]) -> Iterator[list[StoredEvent]]:
        """Yield facts as parts to commit: facts of a refused batch one by one, the others together."""
        begin = 0
        while begin < len(events) and events[begin].seq <= self._alone_until:
            yield [events[begin]]
            begin += 1
        if begin < len(events):
            yield events[begin:]

    def error_of(self, event: StoredEvent) -> UnstorableEvent | None:
        """Return the error of a fact that was refused alone; None for other facts."""
        reason = self._reasons.get(event.seq)
        return None if reason is None else UnstorableEvent(event.seq, event.type, reason)

    def settle(self, position: int) -> None:
        """Forget the refusals of facts up to a position, because they are committed or skipped."""
        for seq in [seq for seq in self._reasons if seq <= position]:
            del self._reasons[seq]


def refusal(events: Sequence[StoredEvent], error: BaseException) -> FactsRefused:
    """Return the refusal of facts by Postgres.

    Args:
        events: The facts; at least one.
        error: The error of Postgres.
    """
    lines = str(error).splitlines() or [type(error).__name__]
    return FactsRefused(events[0].seq, events[-1].seq, f"Postgres refuses its rows: {lines[0]}")
