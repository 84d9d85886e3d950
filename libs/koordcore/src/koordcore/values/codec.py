"""The JSON codec of the log: encode and decode bodies, states and digests with msgspec.

`koordcore.events` uses it for event bodies, `koordcore.state` for canonical bytes. Large values are encoded in pieces
of a few values each, which joined are the document. A piece is encoded when it is consumed, so the consumer can run
other tasks between two pieces.

    object_pieces({"position": [b"7"], "pods": array_pieces(pods)})  ->  {"position":7,"pods":[...]}

A snapshot with another digest of its schemas was written by a different version.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar, cast

import msgspec

T = TypeVar("T")

# The bytes are not JSON, or the JSON does not match the type. ValidationError is a subclass.
DecodeError = msgspec.DecodeError

_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="sorted")


def encode(value: object) -> bytes:
    """Encode a struct, dataclass or builtin as UTF-8 JSON. Fields with their default are omitted if the class of the
    struct is declared with `omit_defaults`.
    """
    return _encoder.encode(value)


def encode_canonical(value: object) -> bytes:
    """Encode a value as UTF-8 JSON with sorted keys, so that equal values give equal bytes. Used for digests."""
    return _canonical.encode(value)


def decode(data: bytes | str, kind: type[T]) -> T:
    """Decode JSON as a value of type `kind`. Unknown fields are ignored.

    Raises:
        DecodeError: The text is not JSON of this type. The error contains path and rule.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (UnicodeDecodeError, RecursionError) as error:  # msgspec's own errors for broken UTF-8 and deep nesting
        raise DecodeError(str(error)) from error


def convert(value: object, kind: type[T]) -> T:
    """Convert builtins (dict, list, str ...) to a value of type `kind`. Unknown fields are ignored.

    Raises:
        DecodeError: The value does not have this type. The error contains path and rule.
    """
    return msgspec.convert(value, type=kind)


def to_builtins(value: object) -> Any:
    """Convert a struct to builtins (dict, list, str ...), for YAML and for upcasters."""
    return msgspec.to_builtins(value)


PIECE: Final = 200  # Number of values in a piece; encoding a piece of pods takes about a millisecond


def array_pieces(values: Iterable[object], size: int = PIECE) -> Iterator[bytes]:
    """Yield the JSON array of these values in pieces; joined, the pieces are the array. `values`: values that msgspec
    can encode.
    """
    taking, opening = iter(values), b"["
    while some := list(islice(taking, size)):
        yield opening + encode(some)[1:-1]
        opening = b","
    yield b"[]" if opening == b"[" else b"]"


def mapping_pieces(items: Iterable[tuple[str, object]]) -> Iterator[bytes]:
    """Yield the JSON object of these (key, value) pairs in pieces; joined, the pieces are the object. Keys must be
    unique.
    """
    taking, opening = iter(items), b"{"
    while some := dict(islice(taking, PIECE)):
        yield opening + encode(some)[1:-1]
        opening = b","
    yield b"{}" if opening == b"{" else b"}"


def object_pieces(members: Mapping[str, Iterable[bytes]]) -> Iterator[bytes]:
    """Yield a JSON object whose member values are already JSON in pieces; joined, the result is the object. `members`:
    Key -> pieces of its JSON value.
    """
    opening = b"{"
    for name, pieces in members.items():
        yield opening + encode(name) + b":"
        yield from pieces
        opening = b","
    yield b"{}" if opening == b"{" else b"}"


def schema_digest(types: Sequence[type], more: Iterable[str] = ()) -> str:
    """Return the digest of the schemas of some classes. Docstrings do not count. So a snapshot stays usable if only the
    docstring of a class changes. `types`: the classes; another order gives another digest. `more`: texts that the
    digest depends on besides the classes; their order does not matter.
    """
    schemas, components = msgspec.json.schema_components(types)
    stripped = _without_docstrings({"schemas": list(schemas), "components": components})
    return hashlib.blake2b(encode_canonical([stripped, sorted(more)]), digest_size=16).hexdigest()


def _without_docstrings(schema: Any) -> Any:
    match schema:
        case dict():
            entries = cast("dict[str, Any]", schema).items()
            # A field may be called `description`; its schema is an object and not a text.
            kept = ((name, value) for name, value in entries if name != "description" or not isinstance(value, str))
            return {name: _without_docstrings(value) for name, value in kept}
        case list():
            return [_without_docstrings(item) for item in cast("list[Any]", schema)]
        case _:
            return schema
