"""The files of an archive: parts with consecutive facts, and a list of them with their hashes.

    archive.json                                   the list (`Archive`)
    facts/000000000001-000000100000.jsonl.gz ...   the parts, one fact a line

A part is listed after it was written, read back and compared. So a file that is not listed is not part of the archive.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Final, Literal, TypeVar

import msgspec

from koordcore.bus.archive.packing import Unreadable, pack, unpack
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.place import NoSuchFile, Place
from koordcore.values import codec

T = TypeVar("T")

LIST: Final = "archive.json"
LARGEST_DOCUMENT: Final = 64 << 20
"""Size in bytes above which a list is refused. An entry has about 400 bytes, and stands for up to 100,000 facts."""
_LEVEL: Final = 6


class InvalidArchive(Exception):
    """The list of an archive is not valid, or one of its files has changed."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    first: int  # Position of its first fact
    last: int  # Position of its last fact
    facts: int  # Number of facts
    begins_at: str  # RFC 3339 time of its first fact
    ends_at: str  # RFC 3339 time of its last fact
    # Greatest time at which the server stored one of its facts, in nanoseconds since 1970; 0: not known, because an
    # earlier version wrote it.
    stored_until_ns: int = 0
    sha256: str  # Hash of the file, hexadecimal


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    cluster: str
    parts: list[Part]  # The parts, in the order of the log, without a gap between them

    @property
    def first(self) -> int:
        """Position of the oldest fact in the archive; 0 if it is empty."""
        return self.parts[0].first if self.parts else 0

    @property
    def last(self) -> int:
        """Position of the newest fact in the archive; 0 if it is empty."""
        return self.parts[-1].last if self.parts else 0


class _Line(msgspec.Struct, omit_defaults=True):
    seq: int
    kind: str
    id: str
    stored_at_ns: int
    headers: dict[str, str]
    body: str = ""
    raw: bytes = b""  # The body if it is not valid UTF-8


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode


async def read_document(place: Place, name: str, form: type[T]) -> T | None:
    """Return a JSON document of an archive; None if the archive does not have it.

    Raises:
        InvalidArchive: The document is not valid.
        PlaceTrouble: The place does not answer.
    """
    try:
        return codec.decode(await place.read(name, most=LARGEST_DOCUMENT), form)
    except NoSuchFile:
        return None
    except codec.DecodeError as error:
        raise InvalidArchive(f"{place.path_of(name)}: {error}") from error


async def write_document(place: Place, name: str, document: msgspec.Struct) -> None:
    """Write a JSON document of an archive.

    Raises:
        PlaceTrouble: The place does not answer.
    """
    await place.write(name, msgspec.json.format(codec.encode(document)) + b"\n")


async def read_unchanged(place: Place, name: str, sha256: str, changed: type[InvalidArchive]) -> bytes:
    """Return the content of a file if it has not changed since it was written. `sha256`: Hash of the file when it was
    written, hexadecimal. `changed`: Error to raise if the file has another hash now.

    Raises:
        InvalidArchive: The file has changed. The type of the error is `changed`.
        PlaceTrouble: The file cannot be read.
    """
    content = await place.read(name)
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise changed(f"{place.path_of(name)}: sha256: must be {sha256}, got {found}")
    return content


async def read_list(place: Place) -> Archive | None:
    """Return the list of the archive at a place; None if there is none.

    Raises:
        InvalidArchive: The list is not valid.
        PlaceTrouble: The place does not answer.
    """
    return await read_document(place, LIST, Archive)


async def write_list(place: Place, archive: Archive) -> None:
    """Write the list of the archive.

    Raises:
        PlaceTrouble: The place does not answer.
    """
    await write_document(place, LIST, archive)


async def write_part(place: Place, events: Sequence[StoredEvent]) -> Part:
    """Write consecutive facts to a file, read it back, and return its entry.

    Raises:
        InvalidArchive: The file, read back, differs from the written facts.
        PlaceTrouble: The place does not answer.
    """
    first, last = events[0], events[-1]
    packed = await asyncio.to_thread(_packed, events)
    part = Part(
        file=f"facts/{first.seq:012}-{last.seq:012}.jsonl.gz",
        first=first.seq,
        last=last.seq,
        facts=len(events),
        begins_at=first.occurred_at,
        ends_at=last.occurred_at,
        stored_until_ns=max(event.stored_at_ns for event in events),
        sha256=hashlib.sha256(packed).hexdigest(),
    )
    await place.write(part.file, packed)
    if await read_part(place, part) != list(events):
        raise InvalidArchive(f"{place.path_of(part.file)}: the facts that were read back differ")
    return part


async def read_part(place: Place, part: Part) -> list[StoredEvent]:
    """Return the facts of a part.

    Raises:
        InvalidArchive: The file has changed since it was written, or holds something else than facts.
        PlaceTrouble: The file cannot be read.
    """
    packed = await read_unchanged(place, part.file, part.sha256, InvalidArchive)
    try:
        return await asyncio.to_thread(_unpacked, packed)
    except (Unreadable, msgspec.DecodeError) as error:
        raise InvalidArchive(f"{place.path_of(part.file)}: {error}") from error


def _packed(events: Sequence[StoredEvent]) -> bytes:
    return pack(map(_line, events), _LEVEL)


def _line(event: StoredEvent) -> bytes:
    line = _Line(event.seq, event.ref.kind, event.ref.id, event.stored_at_ns, dict(event.headers))
    try:
        line.body = event.body.decode()
    except UnicodeDecodeError:
        line.raw = event.body
    return _encode(line) + b"\n"


def _unpacked(packed: bytes) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    for text in unpack(packed).splitlines():
        line = _decode(text)
        body = line.raw or line.body.encode()
        found.append(StoredEvent(line.seq, AggregateRef(line.kind, line.id), line.headers, body, line.stored_at_ns))
    return found
