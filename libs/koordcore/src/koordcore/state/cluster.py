"""All aggregates of one cluster at one position of the log, their canonical hash, and their snapshot.

The hash is the sum (mod 2^128) of one digest per aggregate, so a change costs one digest. The projector can compute it
from its rows. Two states are equal exactly if position and hash are equal.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Event, StoredEvent
from koordcore.events.objects import NodeSpecAdded, NodeSpecChanged, PodSpecAdded, PodSpecChanged
from koordcore.state.aggregates import NodeSpecState, PodSpecState
from koordcore.state.fold import AggregateState
from koordcore.state.registry import EVOLVE, STATE_TYPES
from koordcore.state.shared_parts import SharedParts
from koordcore.values import codec
from koordcore.values.codec import mapping_pieces, object_pieces, schema_digest

S = TypeVar("S", bound=AggregateState)

_MODULUS = 1 << 128
# Version of the evolve functions. Increment it if the same events give another state of the same class. Version 1 kept
# deleted aggregates whose names may return.
_EVOLUTION = 2


def aggregate_digest(ref: AggregateRef, state: AggregateState) -> int:
    """Return the 128-bit digest of the state of one aggregate. It is the BLAKE2b digest of `<kind>.<id>`, a line feed
    and the state's canonical JSON.
    """
    return value_digest(ref, state)


def value_digest(ref: AggregateRef, state: object) -> int:
    """Return the digest of any value that JSON can state, as `aggregate_digest` computes it."""
    hasher = hashlib.blake2b(digest_size=16)
    hasher.update(f"{ref.kind}.{ref.id}\n".encode())
    hasher.update(codec.encode_canonical(state))
    return int.from_bytes(hasher.digest(), "big")


def combine_digests(digests: Iterable[int]) -> str:
    """Return the hash of a whole state from the digests of its aggregates: 32 hex digits of their sum mod 2^128. The
    order does not matter. Without digests, the hash is 32 zeros.
    """
    return f"{sum(digests) % _MODULUS:032x}"


def decode_state(kind: str, data: bytes | str) -> AggregateState:
    """Decode the state of one aggregate from JSON, for example from a row in the projector's database. `kind`: kind of
    the aggregate, for example "pod".

    Raises:
        codec.DecodeError: `data` is not valid JSON of this kind's state.
    """
    return codec.decode(data, STATE_TYPES[kind])


def evolve(state: AggregateState | None, event: Event, stored: StoredEvent) -> AggregateState | None:
    """Return the state of one aggregate after one event. The given state is not changed. `state`: state before; None if
    the aggregate does not exist. `stored`: the event as stored; gives its position and time.

    Returns:
        The new state; None if the aggregate no longer exists.
    """
    return EVOLVE[type(event)](state, event, stored)


class _SnapshotBody(msgspec.Struct):
    position: int
    aggregates: dict[str, dict[str, msgspec.Raw]]


class ClusterState:
    """The states of all aggregates at one position of the log. Only `apply` changes them; one task owns an instance."""

    def __init__(self) -> None:
        self.position = 0  # Sequence of the last applied or skipped event; 0 before the first
        self._states: dict[str, dict[str, AggregateState]] = {kind: {} for kind in STATE_TYPES}
        self._digests: dict[AggregateRef, int] = {}
        self._dirty: set[AggregateRef] = set()
        self._sum = 0
        self._shared = SharedParts()

    def apply(self, stored: StoredEvent) -> Event | None:
        """Apply one event to the state of its aggregate.

        Returns:
            The decoded event. None if the event is at or before `position`, or if its type is ignorable and its version
            is newer than this code.

        Raises:
            UnreadableEvent: The event cannot be decoded. The state is unchanged; the fold has to stop before this
                event.
        """
        if stored.seq <= self.position:
            return None
        event = CATALOGUE.read(stored)
        ref = stored.ref
        match event:
            case PodSpecAdded() | PodSpecChanged():
                self._shared.share(event.object, ref.id)
            case NodeSpecAdded() | NodeSpecChanged():
                self._shared.share_node(event.object)
            case _:
                pass
        if event is not None:
            of_kind = self._states[ref.kind]
            state = EVOLVE[type(event)](of_kind.get(ref.id), event, stored)
            if state is not None:
                of_kind[ref.id] = state
                self._dirty.add(ref)
            else:
                of_kind.pop(ref.id, None)
                if ref in self._digests:
                    self._dirty.add(ref)
                else:
                    self._dirty.discard(ref)  # the hash never counted it, and ended aggregates are without number
        self.position = stored.seq
        return event

    def skip(self, seq: int) -> None:
        """Set the position behind an event without applying it. No-op if the position is already there or later. Used
        for events that an operator skipped (`EventSkipped`) and for events that this fold does not need.
        """
        self.position = max(self.position, seq)

    def get(self, ref: AggregateRef) -> AggregateState | None:
        """Return the state of one aggregate; None if it does not exist or no longer exists."""
        return self._states[ref.kind].get(ref.id)

    def of_kind(self, kind: type[S]) -> dict[str, S]:
        """Return id -> state of all aggregates with one state class. It is the internal dictionary: do not change or
        keep it.
        """
        return self._states[_KIND_OF[kind]]  # type: ignore[return-value]  # keyed by STATE_TYPES

    def last_seq(self, ref: AggregateRef) -> int:
        """Return the sequence of the last event of an aggregate; 0 if it does not exist or no longer exists. The next
        append to the aggregate names it as the expected position. If the aggregate was dropped and its last event is
        still in the stream, `evolution.evolve.dropped` says what an append that expects 0 leads to.
        """
        state = self._states[ref.kind].get(ref.id)
        return state.seq if state is not None else 0

    def __iter__(self) -> Iterator[tuple[AggregateRef, AggregateState]]:
        """Yield all aggregates, ordered by kind and id."""
        for kind in sorted(self._states):
            of_kind = self._states[kind]
            for id_ in sorted(of_kind):
                yield AggregateRef(kind, id_), of_kind[id_]

    @property
    def aggregate_count(self) -> int:
        """Number of aggregates. Those of deleted objects do not count."""
        return sum(len(of_kind) for of_kind in self._states.values())

    def hash(self) -> str:
        """Return the hash of all states, 32 hex digits. Equal states have equal hashes on every machine. Only the
        digests of aggregates that changed since the last call are computed.
        """
        self.digest_some(len(self._dirty))
        return f"{self._sum % _MODULUS:032x}"

    def digest_some(self, most: int) -> bool:
        """Compute digests that `hash` needs, so that other tasks can run between two calls before it. After a start,
        the digests of all aggregates are missing: seconds of work in a large cluster. `most`: largest number of digests
        to compute now.

        Returns:
            Whether none is missing.
        """
        for _ in range(min(most, len(self._dirty))):
            ref = self._dirty.pop()
            self._sum -= self._digests.pop(ref, 0)
            state = self._states[ref.kind].get(ref.id)
            if state is not None:
                digest = aggregate_digest(ref, state)
                self._digests[ref] = digest
                self._sum += digest
        return not self._dirty

    def snapshot(self) -> Iterator[bytes]:
        """Return the position and all states as JSON in pieces; joined, they are the input of `restore`. The pieces
        contain the state at the time of the call, even if events are applied before they are consumed.
        """
        position, states = self.position, {kind: dict(self._states[kind]) for kind in sorted(self._states)}
        aggregates = {kind: mapping_pieces(of_kind.items()) for kind, of_kind in states.items()}
        return object_pieces({"position": [codec.encode(position)], "aggregates": object_pieces(aggregates)})

    @classmethod
    def restore(cls, data: bytes) -> "ClusterState":
        """Return the state that `snapshot` wrote.

        Raises:
            codec.DecodeError: The bytes do not fit the state classes of this code.
        """
        body = codec.decode(data, _SnapshotBody)
        state = cls()
        state.position = body.position
        for kind, aggregates in body.aggregates.items():
            decoder = msgspec.json.Decoder(STATE_TYPES[kind])
            state._states[kind] = {id_: state._sharing(id_, decoder.decode(raw)) for id_, raw in aggregates.items()}
            state._dirty.update(AggregateRef(kind, id_) for id_ in aggregates)
        return state

    def _sharing(self, id_: str, state: AggregateState) -> AggregateState:
        if isinstance(state, PodSpecState):
            self._shared.share(state.object, id_)
        elif isinstance(state, NodeSpecState):
            self._shared.share_node(state.object)
        return state


_KIND_OF: dict[type[AggregateState], str] = {model: kind for kind, model in STATE_TYPES.items()}


def schema_fingerprint() -> str:
    """Return the digest of the schemas of all state classes. A snapshot with another digest must not be loaded."""
    return schema_digest([STATE_TYPES[kind] for kind in sorted(STATE_TYPES)], [f"evolution {_EVOLUTION}"])
