"""Which rows changed since a reader last looked: how cached answers are brought up to date row by row."""

from typing import Final

_LONGEST: Final = 8192


class Journal:
    """Row numbers in the order in which they changed. Old entries are forgotten; a reader that slept too long is told.

    Attributes:
        position: Where the next entry goes; readers keep it.
    """

    def __init__(self) -> None:
        self._base = 0
        self._rows: list[int] = []

    @property
    def position(self) -> int:
        """Number of all entries ever written."""
        return self._base + len(self._rows)

    def record(self, row: int) -> None:
        """The row changed."""
        rows = self._rows
        if len(rows) >= _LONGEST:
            forget = _LONGEST // 2
            del rows[:forget]
            self._base += forget
        rows.append(row)

    def since(self, position: int) -> set[int] | None:
        """Rows that changed at or after `position`; None when entries after it have been forgotten."""
        if position < self._base:
            return None
        return set(self._rows[position - self._base :])
