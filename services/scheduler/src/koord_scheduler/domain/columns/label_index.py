"""Index of nodes by label: key -> value -> rows, updated with every change of a node.

A key is indexed if it is asked for repeatedly, and dropped if it is no longer asked for.

Source: scheduler-core spec, 12.2 a
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

_WORTH_IT: Final = 2
"""Number of questions after which a key is indexed, because indexing costs one pass over all nodes."""
_IDLE: Final = 65_536
"""Number of questions about other keys after which a key is dropped."""


class _Labelled(Protocol):
    @property
    def labels(self) -> Mapping[str, str]: ...


class _Key:
    """Rows by value of one label key."""

    __slots__ = ("asked", "by_value")

    def __init__(self) -> None:
        self.asked = 0  # Number of the last question about the key
        self.by_value: dict[str, set[int]] = {}  # Value -> rows

    def move(self, row: int, before: str | None, after: str | None) -> None:
        if before is not None:
            rows = self.by_value[before]
            rows.discard(row)
            if not rows:
                del self.by_value[before]
        if after is not None:
            self.by_value.setdefault(after, set()).add(row)


class LabelIndex:
    """Node label -> value -> positions of the nodes that have it, for the labels that pods select by. `shapes`:
    position of a node -> its labels and other properties; read when a label key is first indexed.
    """

    def __init__(self, shapes: Mapping[int, _Labelled]) -> None:
        self._shapes = shapes
        self._keys: dict[str, _Key] = {}
        self._asked_for: dict[str, int] = {}
        self._questions = 0

    def changed(self, row: int, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """`before` is empty for a new node, `after` for a deleted one."""
        for key, index in self._keys.items():
            old, new = before.get(key), after.get(key)
            if old != new:
                index.move(row, old, new)

    def rows(self, key: str, values: Iterable[str], most: int) -> set[int] | None:
        """Positions of the nodes whose label `key` has one of the values. None: the key is not indexed yet, or there
        are more than `most`; all nodes must be examined.
        """
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
