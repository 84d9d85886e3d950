"""Turn an error of the JSON decoder about a wrong type in a manifest into an error with field, rule and value."""

import re
from typing import cast

from koordcore.values.invalid import InvalidInput

_MISMATCH = re.compile(r"^(?P<rule>.*?)(?: - at `\$?(?P<path>.*)`)?$", re.DOTALL)


def shape_mismatch(error: Exception, value: object) -> InvalidInput:
    """Return the error for users that corresponds to a decoding error: with path, expected type and value.

    Args:
        error: Error of the decoder for a field with a wrong type.
        value: The decoded JSON value of the document.
    """
    match = _MISMATCH.match(str(error))
    assert match is not None
    path = (match["path"] or "").lstrip(".")
    rule = match["rule"].removeprefix("Expected ").replace("`", "")
    if "[...]" in path:
        # msgspec does not say which entry of a map it was; the map itself is named instead
        path, _, below = path.partition("[...]")
        unquoted = None if below else _unquoted(_value_at(value, path), path)
        if unquoted is not None:
            return unquoted
    return InvalidInput(rule, _value_at(value, path), path)


def _unquoted(entries: object, path: str) -> InvalidInput | None:
    """Return the error about the first value of a map of texts that YAML reads as boolean or number; None if none is.

    Args:
        entries: The map, for example the labels of an object.
        path: Path of the map.
    """
    for name, entry in cast("dict[str, object]", entries).items() if isinstance(entries, dict) else ():
        if isinstance(entry, bool | int | float):
            text = str(entry).lower() if isinstance(entry, bool) else str(entry)
            return InvalidInput(f'a text (quote it: "{text}")', entry, f"{path}[{name}]")
    return None


_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def _value_at(value: object, path: str) -> object:
    """Return the value at a path such as `a.b[0].c`; None if the path does not exist."""
    for name, index in _STEP.findall(path):
        if index and isinstance(value, list):
            items = cast("list[object]", value)
            value = items[int(index)] if int(index) < len(items) else None
        elif isinstance(value, dict):
            value = cast("dict[str, object]", value).get(name)
        else:
            return None
    return value
