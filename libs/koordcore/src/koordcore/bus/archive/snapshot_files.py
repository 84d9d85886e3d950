"""The files of archived snapshots: compressed states of folds, and a list of them with their hashes.

    snapshots.json                                                   the list (`SnapshotList`)
    snapshots/manager/000000050000-3f9a0c51d2e7.json.gz ...          a state; the name ends with the hash of the file

A snapshot is listed after its file was written, and its file is deleted after it has left the list.
"""

import asyncio
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Final, Literal

import msgspec

from koordcore.bus.archive.files import InvalidArchive, read_document, read_unchanged, write_document
from koordcore.bus.archive.snapshot_choice import ArchivedSnapshot, FoldVersion
from koordcore.events.envelope import StoredEvent
from koordcore.place import Place

SNAPSHOT_LIST: Final = "snapshots.json"
SNAPSHOT_FOLDER: Final = "snapshots/"
_LEVEL: Final = 1
"""Level of compression. Level 6 takes three times as long and saves a quarter of the space."""
_GZIP: Final = 16 + zlib.MAX_WBITS


class UnusableSnapshot(InvalidArchive):
    """The file of a snapshot has changed since it was written, or the snapshot is of another log."""


class SnapshotList(msgspec.Struct, frozen=True, kw_only=True):
    """The list of the snapshots of an archive.

    Attributes:
        version: Version of this format.
        cluster: Id of the cluster.
        snapshots: The snapshots, in the order in which they were taken.
    """

    version: Literal[1] = 1
    cluster: str
    snapshots: list[ArchivedSnapshot]


def version_of(fold: str, schema_fingerprint: str) -> FoldVersion:
    """Return the version that a fold has in this process."""
    return FoldVersion(fold, version("koordcore"), schema_fingerprint)


async def read_snapshot_list(place: Place) -> SnapshotList | None:
    """Return the list of the snapshots at a place; None if there is none.

    Raises:
        InvalidArchive: The list is not valid.
        PlaceTrouble: The place does not answer.
    """
    return await read_document(place, SNAPSHOT_LIST, SnapshotList)


async def write_snapshot_list(place: Place, listed: SnapshotList) -> None:
    """Write the list.

    Raises:
        PlaceTrouble: The place does not answer.
    """
    await write_document(place, SNAPSHOT_LIST, listed)


async def write_snapshot(
    place: Place, fold: FoldVersion, last: StoredEvent, pieces: Iterator[bytes], taken_at: str
) -> ArchivedSnapshot:
    """Write the state of a fold to a file, and return its entry for the list.

    Args:
        place: Place of the archive.
        fold: Version of the fold.
        last: The last folded fact.
        pieces: The state. It must not change before the call returns.
        taken_at: RFC 3339 time.

    Raises:
        PlaceTrouble: The place does not answer.
    """
    packed = await asyncio.to_thread(_packed, pieces)
    sha256 = hashlib.sha256(packed).hexdigest()
    file = f"{SNAPSHOT_FOLDER}{fold.fold}/{last.seq:012}-{sha256[:12]}.json.gz"
    await place.write(file, packed)
    return ArchivedSnapshot(
        fold=fold.fold,
        code_version=fold.code_version,
        schema_fingerprint=fold.schema_fingerprint,
        position=last.seq,
        fact_id=last.event_id,
        occurred_at=last.occurred_at,
        taken_at=taken_at,
        file=file,
        size=len(packed),
        sha256=sha256,
    )


async def read_snapshot(place: Place, snapshot: ArchivedSnapshot) -> bytes:
    """Return the state in a snapshot.

    Raises:
        UnusableSnapshot: The file has changed since it was written.
        PlaceTrouble: The file cannot be read.
    """
    packed = await read_unchanged(place, snapshot.file, snapshot.sha256, UnusableSnapshot)
    return await asyncio.to_thread(zlib.decompress, packed, _GZIP)


def _packed(pieces: Iterable[bytes]) -> bytes:
    """Return the compressed state. Only the compressed form is ever complete in memory."""
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
    return b"".join([*map(packer.compress, pieces), packer.flush()])
