"""Encode the JSON of large values in pieces of a few values each; joined, the pieces are the document.

A piece is encoded when it is consumed, so the consumer can run other tasks between two pieces.

    object_pieces({"position": [b"7"], "pods": array_pieces(pods)})  ->  {"position":7,"pods":[...]}
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from koordcore.values import codec

PIECE: Final = 200
"""Number of values in a piece; encoding a piece of pods takes about a millisecond."""


def array_pieces(values: Iterable[object], size: int = PIECE) -> Iterator[bytes]:
    """Yield the JSON array of these values in pieces; joined, the pieces are the array.

    Args:
        values: Values that msgspec can encode.
        size: Number of values in a piece.
    """
    taking, opening = iter(values), b"["
    while some := list(islice(taking, size)):
        yield opening + codec.encode(some)[1:-1]
        opening = b","
    yield b"[]" if opening == b"[" else b"]"


def mapping_pieces(items: Iterable[tuple[str, object]]) -> Iterator[bytes]:
    """Yield the JSON object of these (key, value) pairs in pieces; joined, the pieces are the object.

    Keys must be unique.
    """
    taking, opening = iter(items), b"{"
    while some := dict(islice(taking, PIECE)):
        yield opening + codec.encode(some)[1:-1]
        opening = b","
    yield b"{}" if opening == b"{" else b"}"


def object_pieces(members: Mapping[str, Iterable[bytes]]) -> Iterator[bytes]:
    """Yield a JSON object whose member values are already JSON in pieces; joined, the result is the object.

    Args:
        members: Key -> pieces of its JSON value.
    """
    opening = b"{"
    for name, pieces in members.items():
        yield opening + codec.encode(name) + b":"
        yield from pieces
        opening = b","
    yield b"{}" if opening == b"{" else b"}"
