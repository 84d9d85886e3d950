"""Makes a case with a difference as small as it gets, by leaving out what the difference does not need."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, cast

from support.oracle.program import Document

Path = tuple[str | int, ...]

KEPT = ("metadata", "name", "uid")
"""Fields without which an object is none."""


def shrunk(case: Document, differs: Callable[[Document], bool]) -> Document:
    """The case without each part that `differs` does not need. It asks some hundred times."""
    smaller = True
    while smaller:
        smaller = False
        for path in list(_paths(case)):
            left = _without(case, path)
            if left is not None and differs(left):
                case, smaller = left, True
    return case


def _paths(part: Any, before: Path = ()) -> Iterator[Path]:
    """The places of all parts, large ones first, and of a list the last elements first."""
    inner: list[tuple[str | int, Any]] = []
    if isinstance(part, dict):
        inner.extend(cast("Document", part).items())
    elif isinstance(part, list):
        inner.extend(reversed(list(enumerate(cast("list[Any]", part)))))
    yield from ((*before, key) for key, _ in inner if key not in KEPT)
    for key, value in inner:
        yield from _paths(value, (*before, key))


def _without(case: Document, path: Path) -> Document | None:
    """A copy without one part. None if it is gone already."""
    left: Any = deepcopy(case)
    part = left
    try:
        for key in path[:-1]:
            part = part[key]
        del part[path[-1]]
    except (KeyError, IndexError, TypeError):
        return None
    return left
