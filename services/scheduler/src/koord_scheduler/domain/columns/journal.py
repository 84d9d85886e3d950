"""Journal of changed rows, so that cached answers are updated row by row."""

from typing import Final

_LONGEST: Final = 8192


class Journal:
    """Row numbers in the order of their changes.

    Old entries are dropped; a reader that needs them must read all rows.
    """

    def __init__(self) -> None:
        self._base = 0
        self._rows: list[int] = []

    @property
    def position(self) -> int:
        """Return the number of entries so far, which is the position of the next entry."""
        return self._base + len(self._rows)

    def record(self, row: int) -> None:
        """Record that a row has changed."""
        rows = self._rows
        if len(rows) >= _LONGEST:
            forget = _LONGEST // 2
            del rows[:forget]
            self._base += forget
        rows.append(row)

    def since(self, position: int) -> set[int] | None:
        """Return the rows that changed from `position` on, or None if some of these entries were dropped."""
        if position < self._base:
            return None
        return set(self._rows[position - self._base :])
