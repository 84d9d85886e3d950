"""Digest of the schemas of stored classes. A snapshot with another digest was written by a different version."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from koordcore.values import codec


def schema_digest(types: Sequence[type], more: Iterable[str] = ()) -> str:
    """Return the digest of the schemas of some classes.

    Docstrings do not count. So a snapshot stays usable if only the docstring of a class changes.

    Args:
        types: The classes; another order gives another digest.
        more: Texts that the digest depends on besides the classes; their order does not matter.
    """
    schemas, components = msgspec.json.schema_components(types)
    stripped = _without_docstrings({"schemas": list(schemas), "components": components})
    return hashlib.blake2b(codec.encode_canonical([stripped, sorted(more)]), digest_size=16).hexdigest()


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
