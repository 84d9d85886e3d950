"""Makes a case with a difference as small as it gets, by leaving out what the difference does not need."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, cast

from support.oracle.lines import Document

Path = tuple[str | int, ...]

KEPT = ("metadata", "name", "uid")
"""Fields without which an object is none."""


def reproduction(
    seed: int, case: Document, found: Sequence[str], differences: Callable[[Document], Sequence[str]]
) -> str:
    """JSON that reproduces the differences of a seed, with a case as small as it gets; "" if there are none.

    `differences`: returns the differences of a case; a case that the program cannot read has none.
    """
    if not found:
        return ""

    def of(smaller: Document) -> Sequence[str]:
        try:
            return differences(smaller)
        except AssertionError:
            return []

    kind = _kind(found[0])
    case = shrunk(case, lambda smaller: kind in map(_kind, of(smaller)))
    return json.dumps({"seed": seed, "differences": [*found[:5]], "smallest": [*of(case)[:3]], "case": case})


def _kind(difference: str) -> str:
    """A difference without names of pods and nodes, and amounts."""
    return re.sub(r"\b[pnr]?\d+\b", "", difference)


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
