"""All aggregates of one cluster at one position of the log, their canonical hash, and the snapshot of both.

The hash is a sum (mod 2^128) of one digest per aggregate, so a change costs one digest, any fold can give it at any
position, and the projector can compute it from its rows. Two states are equal exactly when position and hash are.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Event, StoredEvent
from koordcore.state.aggregates import STATE_TYPES, AggregateState
from koordcore.state.evolution.registry import EVOLVE
from koordcore.values import codec
from koordcore.values.pieces import mapping_pieces, object_pieces

S = TypeVar("S", bound=AggregateState)

_MODULUS = 1 << 128


def aggregate_digest(ref: AggregateRef, state: AggregateState) -> int:
    """Return the 128-bit digest of one aggregate.

    Blake2b over `<kind>.<id>`, a line feed and the state's canonical JSON.
    """
    hasher = hashlib.blake2b(digest_size=16)
    hasher.update(f"{ref.kind}.{ref.id}\n".encode())
    hasher.update(codec.encode_canonical(state))
    return int.from_bytes(hasher.digest(), "big")


def combine_digests(digests: Iterable[int]) -> str:
    """Return the state hash of a set of aggregates, 32 hex digits; the empty cluster gives 32 zeros."""
    return f"{sum(digests) % _MODULUS:032x}"


def decode_state(kind: str, data: bytes | str) -> AggregateState:
    """Return state of an aggregate from its JSON, e.g. from a projector's row. Raises codec.DecodeError."""
    return codec.decode(data, STATE_TYPES[kind])


def evolve(state: AggregateState | None, event: Event, stored: StoredEvent) -> AggregateState | None:
    """Return state of one aggregate after one event; None when the aggregate is gone for good."""
    return EVOLVE[type(event)](state, event, stored)


class _SnapshotBody(msgspec.Struct):
    position: int
    aggregates: dict[str, dict[str, msgspec.Raw]]


class ClusterState:
    """The state of the cluster. Only `apply` changes it; one task owns an instance.

    position    sequence of the last applied (or passed over) event; 0 before the first
    """

    def __init__(self) -> None:
        self.position = 0
        self._states: dict[str, dict[str, AggregateState]] = {kind: {} for kind in STATE_TYPES}
        self._digests: dict[AggregateRef, int] = {}
        self._dirty: set[AggregateRef] = set()
        self._sum = 0

    def apply(self, stored: StoredEvent) -> Event | None:
        """Fold one event; returns it typed.

        Events at or before `position` are skipped and give None, as do ignorable ones that this code does not know.

        Raises:
            UnreadableEvent: The state is unchanged, the fold has to halt before this event.
        """
        if stored.seq <= self.position:
            return None
        event = CATALOGUE.read(stored)
        if event is not None:
            ref = stored.ref
            of_kind = self._states[ref.kind]
            state = EVOLVE[type(event)](of_kind.get(ref.id), event, stored)
            if state is None:
                of_kind.pop(ref.id, None)
            else:
                of_kind[ref.id] = state
            self._dirty.add(ref)
        self.position = stored.seq
        return event

    def skip(self, seq: int) -> None:
        """Skip an event because an operator recorded it (`EventSkipped`) or this fold does not need it."""
        self.position = max(self.position, seq)

    def get(self, ref: AggregateRef) -> AggregateState | None:
        """Return state of one aggregate; None if it never existed or is gone for good."""
        return self._states[ref.kind].get(ref.id)

    def of_kind(self, kind: type[S]) -> dict[str, S]:
        """Return all aggregates of one state type by id. The live dictionary: read only, do not keep."""
        return self._states[_KIND_OF[kind]]  # type: ignore[return-value]  # keyed by STATE_TYPES

    def last_seq(self, ref: AggregateRef) -> int:
        """Return sequence of the aggregate's last event: the expectation of the next append; 0 when it is new."""
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
        """How many aggregates there are, those of gone nodes included."""
        return sum(len(of_kind) for of_kind in self._states.values())

    def hash(self) -> str:
        """Return canonical hash of all aggregates, 32 hex digits.

        One digest per aggregate changed since the last call.
        """
        for ref in self._dirty:
            self._sum -= self._digests.pop(ref, 0)
            state = self._states[ref.kind].get(ref.id)
            if state is not None:
                digest = aggregate_digest(ref, state)
                self._digests[ref] = digest
                self._sum += digest
        self._dirty.clear()
        return f"{self._sum % _MODULUS:032x}"

    def snapshot(self) -> Iterator[bytes]:
        """Return position and all aggregates as JSON, in pieces; joined, `restore` is the inverse.

        They tell of the state as it is when this is called, whatever is folded before they are taken.
        """
        position, states = self.position, {kind: dict(self._states[kind]) for kind in sorted(self._states)}
        aggregates = {kind: mapping_pieces(of_kind.items()) for kind, of_kind in states.items()}
        return object_pieces({"position": [codec.encode(position)], "aggregates": object_pieces(aggregates)})

    @classmethod
    def restore(cls, data: bytes) -> "ClusterState":
        """Return the state of a snapshot. Raises codec.DecodeError for bytes of another schema."""
        body = codec.decode(data, _SnapshotBody)
        state = cls()
        state.position = body.position
        for kind, aggregates in body.aggregates.items():
            decoder = msgspec.json.Decoder(STATE_TYPES[kind])
            state._states[kind] = {id_: decoder.decode(raw) for id_, raw in aggregates.items()}
            state._dirty.update(AggregateRef(kind, id_) for id_ in aggregates)
        return state


_KIND_OF: dict[type[AggregateState], str] = {model: kind for kind, model in STATE_TYPES.items()}


def schema_fingerprint() -> str:
    """Return digest of the schemas of all aggregate states: a snapshot taken under another one is not loaded."""
    schemas, components = msgspec.json.schema_components([STATE_TYPES[kind] for kind in sorted(STATE_TYPES)])
    description: dict[str, Any] = {"schemas": list(schemas), "components": components}
    return hashlib.blake2b(codec.encode_canonical(description), digest_size=16).hexdigest()
