"""The files of a backup: one for each stream, and a manifest with their hashes.

    backup.json                        the manifest (`Backup`)
    KOORD_EV_<cluster>.tar.s2 ...      the streams, in the format of the NATS server

The manifest is written last, so a place without one is not a complete backup.
"""

import hashlib
from pathlib import PurePosixPath
from typing import Any, Final, Literal

import msgspec

from koordcore.place import Place, PlaceTrouble
from koordcore.values import codec

MANIFEST: Final = "backup.json"


class InvalidBackup(Exception):
    """A place has no complete backup, or one of its files has changed since the backup."""


class StreamCopy(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of a backup's manifest about one stream and the file with its copy.

    Attributes:
        stream: Name of the stream.
        file: Name of its file.
        size: Number of bytes of the file.
        sha256: Hash of the file, hexadecimal.
        messages: Number of messages.
        first: Position of its first message; 0 if it has none.
        last: Position of its last message; 0 if it never had one.
        config: Configuration of the stream, as JSON of the JetStream API.
        state: State of the stream at the time of the copy, as JSON of the JetStream API.
    """

    stream: str
    file: str
    size: int
    sha256: str
    messages: int
    first: int
    last: int
    config: dict[str, Any]
    state: dict[str, Any]


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a backup.

    Attributes:
        version: Version of this format.
        cluster: Id of the cluster.
        taken_at: RFC 3339 time at which the backup began.
        server: Version of the NATS server.
        streams: The streams, in the order in which they were copied. The stream of facts is the last one.
    """

    version: Literal[1] = 1
    cluster: str
    taken_at: str
    server: str
    streams: list[StreamCopy]

    @property
    def position(self) -> int:
        """Position of the last fact in the backup."""
        return self.streams[-1].last


async def write_manifest(place: Place, backup: Backup) -> None:
    """Write the manifest `backup.json` of a backup. Call it after all other files are complete.

    Raises:
        PlaceTrouble: It cannot be written.
    """
    await place.write(MANIFEST, msgspec.json.format(codec.encode(backup)) + b"\n")


def name_of(copy: StreamCopy) -> str:
    """Return the name of the file of a stream. A manifest cannot name a file of another folder."""
    return PurePosixPath(copy.file).name


async def read_backup(place: Place) -> Backup:
    """Read the manifest of a backup, and compare the size and hash of each file with it.

    Raises:
        InvalidBackup: There is no valid manifest, or a file is missing or differs. The message names the file.
        PlaceTrouble: The place does not answer.
    """
    file = place.path_of(MANIFEST)
    if MANIFEST not in await place.files():
        raise InvalidBackup(f"{file}: no such file; this is not a complete backup")
    try:
        backup = codec.decode(await place.read(MANIFEST), Backup)
    except codec.DecodeError as error:
        raise InvalidBackup(f"{file}: {error}") from error
    if not backup.streams:
        raise InvalidBackup(f"{file}: streams: must have at least one entry, got 0")
    for copy in backup.streams:
        await _check(place, copy)
    return backup


async def _check(place: Place, copy: StreamCopy) -> None:
    name, digest, size = name_of(copy), hashlib.sha256(), 0
    try:
        async for chunk in place.chunks(name):
            digest.update(chunk)
            size += len(chunk)
    except PlaceTrouble as error:
        raise InvalidBackup(str(error)) from error
    if size != copy.size:
        raise InvalidBackup(f"{place.path_of(name)}: size: must be {copy.size} bytes, got {size}")
    if digest.hexdigest() != copy.sha256:
        raise InvalidBackup(f"{place.path_of(name)}: sha256: must be {copy.sha256}, got {digest.hexdigest()}")
