"""Index of nodes by label: key -> value -> rows, updated by every change of a node.

A key is indexed when it is asked for again and again, and dropped when nobody asks for it any more.

Source:
    scheduler-core spec, 12.2 a
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

_WORTH_IT: Final = 2
"""A key is indexed with this question for it: the index costs one pass over all nodes."""
_IDLE: Final = 65_536
"""So many questions about other keys, and a key is dropped."""


class _Labelled(Protocol):
    @property
    def labels(self) -> Mapping[str, str]: ...


class _Key:
    """Rows by value of one key. asked: number of the last question for it."""

    __slots__ = ("asked", "by_value")

    def __init__(self) -> None:
        self.asked = 0
        self.by_value: dict[str, set[int]] = {}

    def move(self, row: int, before: str | None, after: str | None) -> None:
        if before is not None:
            rows = self.by_value[before]
            rows.discard(row)
            if not rows:
                del self.by_value[before]
        if after is not None:
            self.by_value.setdefault(after, set()).add(row)


class LabelIndex:
    """The index over the nodes of one cluster.

    Args:
        shapes: Row -> what the node is; read when a key is first indexed.
    """

    def __init__(self, shapes: Mapping[int, _Labelled]) -> None:
        self._shapes = shapes
        self._keys: dict[str, _Key] = {}
        self._asked_for: dict[str, int] = {}
        self._questions = 0

    def changed(self, row: int, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """The node of a row has other labels now; a row that is no node has none."""
        for key, index in self._keys.items():
            old, new = before.get(key), after.get(key)
            if old != new:
                index.move(row, old, new)

    def rows(self, key: str, values: Iterable[str], most: int) -> set[int] | None:
        """Return rows whose label has one of the values; None: not indexed, or more than `most`."""
        index = self._index(key)
        if index is None:
            return None
        found: set[int] = set()
        for value in values:
            rows = index.by_value.get(value, ())
            if len(found) + len(rows) > most:
                return None
            found.update(rows)
        return found

    def indexed(self) -> frozenset[str]:
        """Return the keys that are indexed at present."""
        return frozenset(self._keys)

    def _index(self, key: str) -> _Key | None:
        self._questions += 1
        if self._questions % _IDLE == 0:
            self._drop_idle()
        index = self._keys.get(key)
        if index is None:
            times = self._asked_for[key] = self._asked_for.get(key, 0) + 1
            if times < _WORTH_IT:
                return None
            index = self._keys[key] = _Key()
            for row, shape in self._shapes.items():
                index.move(row, None, shape.labels.get(key))
        index.asked = self._questions
        return index

    def _drop_idle(self) -> None:
        self._asked_for.clear()
        for key in [key for key, index in self._keys.items() if index.asked <= self._questions - _IDLE]:
            del self._keys[key]
