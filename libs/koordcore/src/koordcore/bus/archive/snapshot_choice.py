"""From which archived snapshot a fold starts, and which snapshots an archive keeps.

Both are pure functions of the list of the archive (`koordcore.bus.archive.snapshot_files`).

Source:
    event-bus spec, 6
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

SNAPSHOT_FACTS: Final = 50_000
"""Number of facts between two snapshots of a fold."""
DENSE_FACTS: Final = 10_000_000
"""Number of newest facts in which no snapshot is dropped."""


class FoldVersion(NamedTuple):
    """What must be equal for a snapshot to be loaded: a snapshot of another version is passed over.

    Attributes:
        fold: Name of the fold, for example "manager".
        code_version: Version of koordcore.
        schema_fingerprint: Digest of the schema of the state.
    """

    fold: str
    code_version: str
    schema_fingerprint: str


class ArchivedSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot in the list of an archive.

    Attributes:
        fold: Name of the fold.
        code_version: Version of koordcore that wrote it.
        schema_fingerprint: Digest of the schema of the state.
        position: Position of the last folded fact.
        fact_id: Id of this fact. In another log, another fact or none has the position.
        occurred_at: RFC 3339 time of this fact.
        taken_at: RFC 3339 time at which the snapshot was taken.
        file: Name of the file.
        size: Size of the file in bytes.
        sha256: Hash of the file, hexadecimal.
    """

    fold: str
    code_version: str
    schema_fingerprint: str
    position: int
    fact_id: str
    occurred_at: str
    taken_at: str
    file: str
    size: int
    sha256: str

    @property
    def version(self) -> FoldVersion:
        """The version of the fold that wrote it."""
        return FoldVersion(self.fold, self.code_version, self.schema_fingerprint)


def serving(
    snapshots: Iterable[ArchivedSnapshot], version: FoldVersion, at_most: int | None = None, *, after: int = 0
) -> list[ArchivedSnapshot]:
    """Return the snapshots from which a fold of this version reaches a position, the nearest one first.

    The later ones of the result are for the case that the nearest one cannot be read.

    Args:
        snapshots: All snapshots of the archive.
        version: Version of the fold.
        at_most: The position; None: any.
        after: Only snapshots behind this position are worth loading.
    """
    found = [
        each
        for each in snapshots
        if each.version == version and each.position > after and (at_most is None or each.position <= at_most)
    ]
    return sorted(found, key=lambda each: each.position, reverse=True)


def next_position(position: int, every: int) -> int:
    """Return the first multiple of `every` behind a position: there, the next snapshot is due."""
    return (position // every + 1) * every


def kept_positions(positions: Iterable[int], last: int, *, every: int, dense: int) -> set[int]:
    """Return the positions whose snapshots an archive keeps.

    Among the newest `dense` facts, the distance stays `every`. It doubles between `dense` and 2 * `dense` facts ago,
    again between 2 * `dense` and 4 * `dense`, and so on. So if the log doubles, half of `dense / every` is added.

    Args:
        positions: Positions of the snapshots of one fold.
        last: Position of the last fact of the log.
        every: Number of facts between two snapshots.
        dense: Number of newest facts in which no snapshot is dropped, except one that is nearer than `every`.
    """
    newest: dict[tuple[int, int], int] = {}
    for position in sorted(positions, reverse=True):
        age = max(0, last - position)
        distance = every << (age // dense).bit_length()
        newest.setdefault((distance, -(-position // distance)), position)
    return set(newest.values())
