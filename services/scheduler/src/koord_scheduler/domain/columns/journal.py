"""Journal of changed rows, so that cached answers are updated row by row."""

from typing import Final

_LONGEST: Final = 8192


class Journal:
    """Row numbers in order of change. A reader that is behind the kept entries is told to read everything.

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
        """Return rows that changed at or after `position`; None when entries after it have been forgotten."""
        if position < self._base:
            return None
        return set(self._rows[position - self._base :])
