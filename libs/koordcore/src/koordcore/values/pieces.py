"""JSON of large values, encoded in pieces of a few values each; the pieces joined are the document.

A piece is encoded when it is asked for, so whoever writes it can do something else between two of them.

    object_pieces({"position": [b"7"], "pods": array_pieces(pods)})  ->  {"position":7,"pods":[...]}
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from koordcore.values import codec

PIECE: Final = 200
"""Values in a piece: with objects as pods are, a millisecond's work."""


def array_pieces(values: Iterable[object], size: int = PIECE) -> Iterator[bytes]:
    """Yield the values as an array, so many in a piece."""
    taking, opening = iter(values), b"["
    while some := list(islice(taking, size)):
        yield opening + codec.encode(some)[1:-1]
        opening = b","
    yield b"[]" if opening == b"[" else b"]"


def mapping_pieces(items: Iterable[tuple[str, object]]) -> Iterator[bytes]:
    """Yield the items as an object; no key occurs twice."""
    taking, opening = iter(items), b"{"
    while some := dict(islice(taking, PIECE)):
        yield opening + codec.encode(some)[1:-1]
        opening = b","
    yield b"{}" if opening == b"{" else b"}"


def object_pieces(members: Mapping[str, Iterable[bytes]]) -> Iterator[bytes]:
    """Yield an object of members that are in pieces themselves."""
    opening = b"{"
    for name, pieces in members.items():
        yield opening + codec.encode(name) + b":"
        yield from pieces
        opening = b","
    yield b"{}" if opening == b"{" else b"}"
