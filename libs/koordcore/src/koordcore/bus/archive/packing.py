"""Compress what an archive holds, and expand it within a limit: a small file of an archive never fills the memory.

The hash of a file does not help, because whoever can change a file of an archive can change the list with the hashes.
"""

import zlib
from collections.abc import Iterable
from typing import Final

GZIP: Final = 16 + zlib.MAX_WBITS
GROWTH: Final = 100
"""How many times larger than its file a content may be. Facts and states, which are JSON, are 5 to 30 times larger."""
ALWAYS: Final = 64 << 20
"""Size in bytes up to which a content may grow in any case."""


class Unreadable(Exception):
    """A packed content is damaged, or expands beyond the limit."""


def limit_of(packed: int) -> int:
    """Return the largest size in bytes of the content of a file with this number of bytes."""
    return max(ALWAYS, packed * GROWTH)


def pack(pieces: Iterable[bytes], level: int) -> bytes:
    """Return the pieces as one gzip stream. Only the compressed form is ever complete in memory.

    What compresses so well that `unpack` would refuse it is stored without compression.
    """
    size = 0

    def counted(piece: bytes) -> bytes:
        nonlocal size
        size += len(piece)
        return packer.compress(piece)

    packer = zlib.compressobj(level, wbits=GZIP)
    packed = b"".join([*map(counted, pieces), packer.flush()])
    if size <= limit_of(len(packed)):
        return packed
    plain = zlib.compressobj(0, wbits=GZIP)
    return plain.compress(zlib.decompress(packed, GZIP)) + plain.flush()


def unpack(packed: bytes) -> bytes:
    """Return the content of one gzip stream.

    Raises:
        Unreadable: It is no complete gzip stream, or larger than `limit_of` allows. The message says which.
    """
    most = limit_of(len(packed))
    reader = zlib.decompressobj(GZIP)
    try:
        content = reader.decompress(packed, most + 1)
    except zlib.error as error:
        raise Unreadable(f"no gzip stream: {error}") from error
    if len(content) > most:
        raise Unreadable(f"expanded: must be at most {most} bytes, which is {GROWTH} times the file, got more")
    if not reader.eof or reader.unused_data:
        raise Unreadable("must be one complete gzip stream")
    return content
