"""The values of one node label as numbers: one number per node, so that a plugin compares all nodes at once."""

from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

_Scalar = TypeVar("_Scalar", bound=np.generic)

NO_VALUE: Final = 0
"""Value id of nodes without the label."""


class LabelColumn:
    """The values of one label key on all nodes, as numbers (value ids). The id of a value that no node has any more is
    used again for the next new value. So the number of ids is bounded by the largest number of values at one time,
    although each node that ever lived has its own hostname.
    """

    __slots__ = ("_at_rows", "_at_values", "_at_version", "_free", "_ids", "_nodes", "texts", "values", "version")

    def __init__(self, capacity: int) -> None:
        # Value id of each node by its position, int32 (N,); 0 for nodes without the label.
        self.values = np.zeros(capacity, np.int32)
        self.texts: list[str | None] = [None]  # Value id -> the label's value as text; None for an id that no node has
        self.version = 0  # Number that grows with every change
        self._ids: dict[str, int] = {}
        self._nodes: list[int] = [0]
        self._free: list[int] = []
        self._at_rows: NDArray[np.intp] = np.zeros(0, np.intp)
        self._at_values: NDArray[np.int32] = np.zeros(0, np.int32)
        self._at_version = -1

    def at(self, rows: NDArray[np.intp]) -> NDArray[np.int32]:
        """Return the value ids of some rows, shape (K,). Do not change the array: it is cached for the last rows."""
        if rows is not self._at_rows or self._at_version != self.version:
            self._at_rows, self._at_values, self._at_version = rows, self.values[rows], self.version
        return self._at_values

    def put(self, row: int, text: str | None) -> None:
        """None if the node does not have the label."""
        before: int = self.values.item(row)
        if self.texts[before] == text:
            return
        value = NO_VALUE if text is None else self._id(text)
        self.values[row] = value
        self.version += 1
        if value != NO_VALUE:
            self._nodes[value] += 1
        if before != NO_VALUE:
            self._nodes[before] -= 1
            if not self._nodes[before]:
                self._release(before)

    def grow(self, capacity: int) -> None:
        self.values = grown_to(self.values, capacity)
        self.version += 1

    def _id(self, text: str) -> int:
        value = self._ids.get(text)
        if value is None:
            if self._free:
                value = self._free.pop()
                self.texts[value] = text
            else:
                value = len(self.texts)
                self.texts.append(text)
                self._nodes.append(0)
            self._ids[text] = value
        return value

    def _release(self, value: int) -> None:
        text = self.texts[value]
        if text is not None:
            del self._ids[text]
        self.texts[value] = None
        self._free.append(value)


def grown_to(array: NDArray[_Scalar], shape: int | tuple[int, int]) -> NDArray[_Scalar]:
    """A larger copy; the new elements are 0."""
    larger = np.zeros(shape, array.dtype)
    larger[tuple(slice(length) for length in array.shape)] = array
    return larger
