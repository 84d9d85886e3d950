"""Snapshots: the stored state of a fold at a position, so that a start need not read the whole log.

Adapters are in `koordcore.bus.adapters`.

Source: event-bus spec, 6.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import msgspec

KEPT_SNAPSHOTS: Final = 5  # Number of snapshots that a store keeps of each fold


class SnapshotHead(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a snapshot before its state is encoded."""

    fold: str  # Name of the fold, for example "scheduler"
    seq: int  # Sequence of the last folded event
    code_version: str  # Version of the code that wrote it
    schema_fingerprint: str  # Digest of the schema of the state. A snapshot with another digest is not loaded.
    taken_at: str  # RFC 3339 time
    # Id of the last folded event. In another log, another event or none has the position. "" in snapshots of before.
    fact_id: str = ""


class Snapshot(SnapshotHead, frozen=True, kw_only=True):
    """The encoded state of one fold at one position of the log."""

    state: tuple[bytes, ...]  # Encoded state, in pieces
    digest: str  # `state_digest` of `state`

    @property
    def head(self) -> SnapshotHead:
        return SnapshotHead(**{name: getattr(self, name) for name in SnapshotHead.__struct_fields__})


class SnapshotStore(Protocol):
    """Store of snapshots. It keeps the newest `KEPT_SNAPSHOTS` of each fold."""

    async def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot. Delete the oldest snapshots of its fold beyond `KEPT_SNAPSHOTS`."""
        ...

    async def save_pieces(self, head: SnapshotHead, pieces: Iterator[bytes]) -> None:
        """As `save`, of a state that is encoded while it is stored, so that it is never in memory as a whole. Each
        piece is taken in the task of the caller, and other tasks run between pieces. Nothing is stored if `pieces`
        raises an error, which is passed on.
        """
        ...

    async def newest(self, fold: str, *, schema_fingerprint: str, at_most: int | None = None) -> Snapshot | None:
        """Return the newest usable snapshot of a fold; None if there is none. `schema_fingerprint`: only snapshots with
        this fingerprint and an intact digest are usable. `at_most`: largest position of the snapshot; None: any.

        Raises:
            NoAnswer: The store does not answer. A further call may succeed.
        """
        ...

    async def sequences(self, fold: str) -> list[int]:
        """Return the positions of the stored snapshots of a fold, ascending."""
        ...


def is_usable(snapshot: Snapshot, schema_fingerprint: str) -> bool:
    """Return whether a snapshot has this schema fingerprint and its digest fits its bytes."""
    return snapshot.schema_fingerprint == schema_fingerprint and snapshot.digest == state_digest(snapshot.state)


def new_digest() -> "hashlib.blake2b":
    """Return the digest of no state yet; `state_digest` is that of all pieces."""
    return hashlib.blake2b()


def state_digest(state: Iterable[bytes]) -> str:
    """Return the BLAKE2b digest of the joined pieces in hex."""
    digest = new_digest()
    for piece in state:
        digest.update(piece)
    return digest.hexdigest()
