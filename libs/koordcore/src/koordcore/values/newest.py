"""A dictionary of limited size, for hints whose loss costs one more request."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Newest(dict[K, V]):
    """A dictionary that keeps at most `most` keys. A new key drops the oldest one if there are too many. A key that is
    set again keeps its age.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        """Set a value, and drop the oldest key if there are too many."""
        super().__setitem__(key, value)
        if len(self) > self._most:
            del self[next(iter(self))]
