"""Decode the arguments of a plugin: strictly for native plugins; unknown fields of upstream plugins are ignored.

Errors have path, rule and value.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from koordcore.protocol.manifests.shapes import shape_mismatch
from koordcore.protocol.objects import without_nulls
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput


class NativeArgs(msgspec.Struct, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of arguments that are decoded strictly: an unknown field is an error."""


class UpstreamArgs(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Base class of the arguments of upstream plugins: unknown fields are ignored."""


T = TypeVar("T", bound=msgspec.Struct)


def decoded(raw: Mapping[str, object], kind: type[T]) -> T:
    """Return arguments with their defaults. `null` counts as absent.

    Args:
        raw: Decoded JSON object.
        kind: Type of the arguments.

    Raises:
        InvalidInput: A field is unknown to a strict type, or has a wrong type. The error has its path.

    Source:
        descheduler spec, 3.2 (1), (4)
    """
    value: Any = without_nulls(raw)
    try:
        return codec.convert(value, kind)
    except codec.DecodeError as error:
        raise shape_mismatch(error, value) from error
    except RecursionError as error:
        raise InvalidInput("an object of limited depth", "a deeper one") from error
