"""Snapshots of folds. Adapters in `koordcore.bus`.

source    event-bus spec, 6
"""

from typing import Protocol

import msgspec


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State of one fold at one position.

    schema_fingerprint  digest of the state's own schema; a snapshot with another one is not loaded
    state               bytes as the fold encodes itself, in pieces
    digest              blake2b of `state`, hex
    """

    fold: str
    seq: int
    code_version: str
    schema_fingerprint: str
    taken_at: str
    state: tuple[bytes, ...]
    digest: str


class SnapshotStore(Protocol):
    """Keeps the last five snapshots of each fold."""

    async def save(self, snapshot: Snapshot) -> None:
        """Store it and drop the fold's oldest beyond five."""
        ...

    async def newest(self, fold: str, *, schema_fingerprint: str, at_most: int | None = None) -> Snapshot | None:
        """Newest snapshot with that fingerprint, an intact digest and seq <= at_most; older ones are tried in turn."""
        ...

    async def sequences(self, fold: str) -> list[int]:
        """Positions that have a snapshot, ascending."""
        ...
