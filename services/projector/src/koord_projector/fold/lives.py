"""Lives of aggregates, and versions of their states, so that any past moment needs only a few events.

A life begins with the event that creates an aggregate, and ends with the event after which it does not exist. The state
after every 32nd event of a life is a version. So the state at a past position is the newest version up to it, or the
empty state, and at most 31 events of the same life. Which versions exist depends on the log alone, not on batches.
"""

from typing import Final

import msgspec
from koordcore.events.envelope import AggregateRef
from koordcore.state.fold import AggregateState
from koordcore.values import codec

EVENTS_OF_VERSION: Final = 32
"""A version of a ledger needs about as many bytes as eight of its events."""


class Life(msgspec.Struct):
    from_seq: int  # Position of the event that created it
    events: int = 1  # Number of events since then, the first one included

    def copy(self) -> "Life":
        return Life(self.from_seq, self.events)


class EndedLife(msgspec.Struct, frozen=True):
    """One row of the table `aggregate_lives`: an aggregate existed at the positions `from_seq` <= P < `to_seq`."""

    ref: AggregateRef
    from_seq: int
    to_seq: int


class Version(msgspec.Struct, frozen=True):
    """One row of the table `aggregate_versions`: the state of an aggregate after its event at `seq`, as JSON."""

    ref: AggregateRef
    seq: int
    state: bytes


class LifeBook:
    """The lives of the aggregates whose states are in memory, with the rows since the last call. One task uses it."""

    def __init__(self) -> None:
        self.living: dict[AggregateRef, Life] = {}  # Aggregate -> its life
        self._ended: list[EndedLife] = []
        self._versions: list[Version] = []

    def changed(self, ref: AggregateRef, before: AggregateState | None, after: AggregateState | None, seq: int) -> None:
        """Record an event of an aggregate at position `seq`. A state is None where it does not exist."""
        if before is None:
            if after is not None:
                self.living[ref] = Life(seq)
        elif after is None:
            self._ended.append(EndedLife(ref, self.living.pop(ref).from_seq, seq))
        else:
            life = self.living[ref]
            life.events += 1
            if life.events % EVENTS_OF_VERSION == 0:
                self._versions.append(Version(ref, seq, codec.encode_canonical(after)))

    def take_ended(self) -> list[EndedLife]:
        ended, self._ended = self._ended, []
        return ended

    def take_versions(self) -> list[Version]:
        versions, self._versions = self._versions, []
        return versions


def span_of(from_seq: int, to_seq: int | None) -> int:
    """Number of bits of a life's length in positions; 0 if it has not ended.

    A life that contains position P and has a length of n bits began after P - 2^n. So an index by (bits, beginning)
    finds it, however long the history is.
    """
    return 0 if to_seq is None else (to_seq - from_seq).bit_length()
