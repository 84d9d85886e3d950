"""The JSON codec of the log: encode and decode bodies, states and digests with msgspec.

`koordcore.events` uses it for event bodies, `koordcore.state` for canonical bytes.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

DecodeError = msgspec.DecodeError
"""The bytes are not JSON, or the JSON does not match the type. ValidationError is a subclass."""

_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="sorted")


def encode(value: object) -> bytes:
    """Encode a struct, dataclass or builtin as UTF-8 JSON.

    Fields with their default are omitted if the class of the struct is declared with `omit_defaults`.
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
