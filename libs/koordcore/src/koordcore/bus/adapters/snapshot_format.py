"""The bytes of a stored snapshot, which are written while the state is encoded.

They begin with the name of the format. Frames follow: four bytes of length, and so many bytes. The first frame is the
head as MessagePack, the others are the pieces of the state. Behind an empty frame stands the digest. So neither the
number of pieces nor the digest need be known before the last piece is encoded.
"""

import struct
from collections.abc import Iterator
from typing import Final, cast

import msgspec

from koordcore.ports.snapshots import Snapshot, SnapshotHead, new_digest

_FORMAT: Final = b"koord-snapshot-2\n"
_LENGTH: Final = struct.Struct(">I")
_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(SnapshotHead).decode
_decode_first_format = msgspec.msgpack.Decoder(Snapshot).decode  # one map, as earlier releases have stored it


class EncodedSnapshot:
    """A snapshot as a file that the NATS client reads from the event loop: whoever has no `readinto`, but a `buffer`
    with one, is not read in a thread. The pieces show a state that tasks of this loop change meanwhile.

    Args:
        digest: That of the pieces; None to compute it.
    """

    def __init__(self, head: SnapshotHead, pieces: Iterator[bytes], digest: str | None = None) -> None:
        self.buffer = _Frames(_frames(head, pieces, digest))


class _Frames:
    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = memoryview(b"")

    def readinto(self, buffer: object) -> int:
        """Copy the next bytes into `buffer`. Return their number; 0 at the end."""
        into, filled = memoryview(cast(bytearray, buffer)), 0
        while filled < len(into):
            if not self._rest:
                self._rest = memoryview(next(self._parts, b""))
                if not self._rest:
                    break
            taken = self._rest[: len(into) - filled]
            into[filled : filled + len(taken)] = taken
            filled, self._rest = filled + len(taken), self._rest[len(taken) :]
        return filled


def _frames(head: SnapshotHead, pieces: Iterator[bytes], digest: str | None) -> Iterator[bytes]:
    hasher, encoded = new_digest(), _encode(head)
    yield _FORMAT + _LENGTH.pack(len(encoded)) + encoded
    for piece in pieces:
        if piece:
            hasher.update(piece)
            yield _LENGTH.pack(len(piece))
            yield piece
    yield _LENGTH.pack(0) + (hasher.hexdigest() if digest is None else digest).encode()


def decode_snapshot(data: memoryview) -> Snapshot:
    """Return the snapshot in an object.

    Raises:
        msgspec.DecodeError: The bytes are no snapshot.
    """
    if bytes(data[: len(_FORMAT)]) != _FORMAT:
        return _decode_first_format(data)
    frames: list[memoryview] = []
    at = len(_FORMAT)
    try:
        while length := _LENGTH.unpack_from(data, at)[0]:
            frames.append(data[at + _LENGTH.size : at + _LENGTH.size + length])
            at += _LENGTH.size + length
    except struct.error as error:
        raise msgspec.DecodeError(f"the snapshot ends after {len(data)} bytes") from error
    if not frames:
        raise msgspec.DecodeError("the snapshot has no head")
    head, *pieces = frames
    return Snapshot(
        **msgspec.structs.asdict(_decode_head(head)),
        state=tuple(map(bytes, pieces)),
        digest=bytes(data[at + _LENGTH.size :]).decode("ascii", "replace"),
    )
