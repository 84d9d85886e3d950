"""Snapshots of folds. Adapters are in `koordcore.bus.adapters`.

Source:
    event-bus spec, 6
"""

import hashlib
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

KEPT_SNAPSHOTS: Final = 5
"""Number of snapshots that a store keeps of each fold."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State of one fold at one position.

    Attributes:
        fold: Name of the fold.
        seq: Position of the last folded event.
        code_version: Version of the code that wrote it.
        schema_fingerprint: Digest of the schema of the state. A snapshot with another digest is not loaded.
        taken_at: RFC 3339 time.
        state: Encoded state of the fold, in pieces.
        digest: `state_digest` of `state`.
    """

    fold: str
    seq: int
    code_version: str
    schema_fingerprint: str
    taken_at: str
    state: tuple[bytes, ...]
    digest: str


class SnapshotStore(Protocol):
    """Keeps the newest `KEPT_SNAPSHOTS` snapshots of each fold."""

    async def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot and drop the oldest ones of the same fold."""
        ...

    async def newest(self, fold: str, *, schema_fingerprint: str, at_most: int | None = None) -> Snapshot | None:
        """Return the newest usable snapshot, or None.

        Args:
            fold: Name of the fold.
            schema_fingerprint: Only snapshots with this fingerprint and an intact digest are usable.
            at_most: Largest position; None: any.
        """
        ...

    async def sequences(self, fold: str) -> list[int]:
        """Return the positions that have a snapshot, ascending."""
        ...


def is_usable(snapshot: Snapshot, schema_fingerprint: str) -> bool:
    """Return whether the snapshot was written for this schema and its bytes are intact."""
    return snapshot.schema_fingerprint == schema_fingerprint and snapshot.digest == state_digest(snapshot.state)


def state_digest(state: Iterable[bytes]) -> str:
    """Return the BLAKE2b digest of these pieces in hex."""
    digest = hashlib.blake2b()
    for piece in state:
        digest.update(piece)
    return digest.hexdigest()
