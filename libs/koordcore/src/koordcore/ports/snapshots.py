"""Snapshots: the stored state of a fold at a position, so that a start need not read the whole log.

Adapters are in `koordcore.bus.adapters`.

Source: event-bus spec, 6.
"""

import hashlib
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

KEPT_SNAPSHOTS: Final = 5  # Number of snapshots that a store keeps of each fold


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The encoded state of one fold at one position of the log."""

    fold: str  # Name of the fold, for example "scheduler"
    seq: int  # Sequence of the last folded event
    code_version: str  # Version of the code that wrote it
    schema_fingerprint: str  # Digest of the schema of the state. A snapshot with another digest is not loaded.
    taken_at: str  # RFC 3339 time
    state: tuple[bytes, ...]  # Encoded state, in pieces
    digest: str  # `state_digest` of `state`
    # Id of the last folded event. In another log, another event or none has the position. "" in snapshots of before.
    fact_id: str = ""


class SnapshotStore(Protocol):
    """Store of snapshots. It keeps the newest `KEPT_SNAPSHOTS` of each fold."""

    async def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot. Delete the oldest snapshots of its fold beyond `KEPT_SNAPSHOTS`."""
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


def state_digest(state: Iterable[bytes]) -> str:
    """Return the BLAKE2b digest of the joined pieces in hex."""
    digest = hashlib.blake2b()
    for piece in state:
        digest.update(piece)
    return digest.hexdigest()
