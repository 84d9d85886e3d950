"""Suggest the known name that an unknown name probably means."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_CLOSE: Final = 0.7
_LONGEST: Final = 80
"""Longer names are truncated and not compared, because the time grows with the square of the length."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return text such as `; did you mean nodeSelector?` with the most similar known name, or "" if none is similar.

    The case of letters is ignored.

    Args:
        name: The unknown name.
        known: All known names.
    """
    if len(name) > _LONGEST:
        return ""
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower, 1, _CLOSE)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""


def place(path: str, name: str) -> str:
    """Return the path `path.name` of a field. A long name is truncated."""
    shown = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
    return f"{path}.{shown}" if path else shown
