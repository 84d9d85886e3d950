"""A queue of byte strings in one file that survives the process: appended, marked as done, compacted.

Records: length (4 bytes), CRC-32 of the rest (4), kind (1: item, 2: done), number (8), payload. A record that was cut
by a crash ends the file: everything before it is kept. Written through to the kernel with each call, so a killed
process loses nothing; a machine that loses power may lose the last seconds.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

_HEAD = struct.Struct("<II")
_BODY = struct.Struct("<BQ")
_ITEM, _DONE = 1, 2
_COMPACT_BYTES = 1024 * 1024


class QueueFile:
    """One file, one owner. Blocking, in microseconds: writes go to the page cache."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._items: dict[int, bytes] = {}
        self._next = 1
        self._live_bytes = 0
        good = self._load()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, good)
        os.lseek(self._file, 0, os.SEEK_END)
        self._size = good

    def items(self) -> Iterator[tuple[int, bytes]]:
        """(number, payload) of all items in the order of `add`."""
        yield from list(self._items.items())

    def __len__(self) -> int:
        return len(self._items)

    def add(self, payload: bytes) -> int:
        """Append an item; gives its number. Raises OSError, e.g. when the disk is full: nothing was added then."""
        number = self._next
        self._write(_record(_ITEM, number, payload))
        self._next += 1
        self._items[number] = payload
        self._live_bytes += len(payload)
        return number

    def remove(self, number: int) -> None:
        """Mark an item as done."""
        self._live_bytes -= len(self._items.pop(number))
        if not self._items:
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
            self._size = 0
            return
        self._write(_record(_DONE, number, b""))
        if self._size > _COMPACT_BYTES and self._size > 4 * self._live_bytes:
            self._compact()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, record: bytes) -> None:
        written = os.write(self._file, record)
        if written != len(record):
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, 0, os.SEEK_END)
            raise OSError(f"{self._path}: only {written} of {len(record)} bytes could be written")
        self._size += written

    def _load(self) -> int:
        """Read the file; gives the number of its good bytes."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        at = 0
        while at + _HEAD.size + _BODY.size <= len(data):
            length, checksum = _HEAD.unpack_from(data, at)
            body = data[at + _HEAD.size : at + _HEAD.size + length]
            if length < _BODY.size or len(body) < length or zlib.crc32(body) != checksum:
                break
            kind, number = _BODY.unpack_from(body)
            if kind == _ITEM:
                self._items[number] = body[_BODY.size :]
                self._live_bytes += length - _BODY.size
            else:
                self._live_bytes -= len(self._items.pop(number, b""))
            self._next = max(self._next, number + 1)
            at += _HEAD.size + length
        return at

    def _compact(self) -> None:
        fresh = self._path.with_suffix(".compact")
        fresh.write_bytes(b"".join(_record(_ITEM, number, payload) for number, payload in self._items.items()))
        fresh.replace(self._path)
        os.close(self._file)
        self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._size = os.lseek(self._file, 0, os.SEEK_END)


def _record(kind: int, number: int, payload: bytes) -> bytes:
    body = _BODY.pack(kind, number) + payload
    return _HEAD.pack(len(body), zlib.crc32(body)) + body
