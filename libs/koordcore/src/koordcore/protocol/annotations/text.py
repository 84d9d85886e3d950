"""Parse one label or annotation, so that an error names its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from koordcore.values.invalid import InvalidInput

T = TypeVar("T")

TRUE = "true"
FALSE = "false"


def parse_present(entries: Mapping[str, str], key: str, parse: Callable[[str], T]) -> T | None:
    """Return the value of one label or annotation, converted by `parse`; None if the key is absent. An `InvalidInput`
    that it raises gets the key as its path.
    """
    text = entries.get(key)
    if text is None:
        return None
    try:
        return parse(text)
    except InvalidInput as error:
        raise error.at(f"[{key}]") from error
