"""The one wire codec: JSON by msgspec, behind three functions so that the library can be replaced.

Used by `koordcore.events` for bodies and by `koordcore.state` for canonical bytes.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

DecodeError = msgspec.DecodeError
"""Bytes that are not JSON, or JSON of another shape than the type asked for (ValidationError is a subclass)."""

_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="sorted")


def encode(value: object) -> bytes:
    """Return UTF-8 JSON of a struct, dataclass or builtin; a struct may leave out fields at their default."""
    return _encoder.encode(value)


def encode_canonical(value: object) -> bytes:
    """Return UTF-8 JSON with every object's keys sorted: equal values give equal bytes. Used for digests only."""
    return _canonical.encode(value)


def decode(data: bytes | str, kind: type[T]) -> T:
    """Return value of type `kind` from JSON.

    Unknown fields are ignored. Raises DecodeError naming the path and the rule.
    """
    return msgspec.json.decode(data, type=kind)


def convert(value: object, kind: type[T]) -> T:
    """Return value of type `kind` from builtins (dict, list, str ...).

    Raises DecodeError naming the path and the rule.
    """
    return msgspec.convert(value, type=kind)


def to_builtins(value: object) -> Any:
    """Return builtins (dict, list, str ...) of a struct, for YAML and for upcasters."""
    return msgspec.to_builtins(value)
