"""The folder of a backup: one file for each stream, and a manifest with their hashes.

    backup.json                        the manifest (`Backup`)
    KOORD_EV_<cluster>.tar.s2 ...      the streams, in the format of the NATS server

The manifest is written last, so a folder without one is not a complete backup.
"""

import hashlib
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from koordcore.values import codec

MANIFEST: Final = "backup.json"


class InvalidBackup(Exception):
    """A folder is not a complete backup, or one of its files has changed since the backup."""


class StreamCopy(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of a backup's manifest about one stream and the file with its copy.

    Attributes:
        stream: Name of the stream.
        file: Name of its file in the folder.
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


def write_manifest(folder: Path, backup: Backup) -> None:
    """Write the manifest `backup.json` into the folder of a backup. Call it after all other files are complete."""
    (folder / MANIFEST).write_bytes(msgspec.json.format(codec.encode(backup)) + b"\n")


def read_backup(folder: Path) -> Backup:
    """Read the manifest of a backup, and compare the size and hash of each file with it.

    Raises:
        InvalidBackup: The folder has no valid manifest, or a file is missing or differs. The message names it.
    """
    file = folder / MANIFEST
    try:
        backup = codec.decode(file.read_bytes(), Backup)
    except OSError as error:
        raise InvalidBackup(f"{file}: {error.strerror or error}; the folder is not a complete backup") from error
    except codec.DecodeError as error:
        raise InvalidBackup(f"{file}: {error}") from error
    if not backup.streams:
        raise InvalidBackup(f"{file}: streams: must have at least one entry, got 0")
    for copy in backup.streams:
        _check(folder / Path(copy.file).name, copy)
    return backup


def _check(file: Path, copy: StreamCopy) -> None:
    try:
        size = file.stat().st_size
        if size != copy.size:
            raise InvalidBackup(f"{file}: size: must be {copy.size} bytes, got {size}")
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise InvalidBackup(f"{file}: {error.strerror or error}") from error
    if found != copy.sha256:
        raise InvalidBackup(f"{file}: sha256: must be {copy.sha256}, got {found}")
