"""Journal of changed rows, so that cached answers are updated row by row."""

from typing import Final

_LONGEST: Final = 8192


class Journal:
    """The positions of nodes in the order in which they changed, so that caches update only changed nodes. Old entries
    are dropped. A reader that has not read them must read all nodes.
    """

    def __init__(self) -> None:
        self._base = 0
        self._rows: list[int] = []
        # Number of changes of each node so far, by position. Nodes behind its end never changed.
        self.versions: list[int] = []

    @property
    def position(self) -> int:
        """The number of entries so far."""
        return self._base + len(self._rows)

    def record(self, row: int) -> None:
        rows = self._rows
        if len(rows) >= _LONGEST:
            forget = _LONGEST // 2
            del rows[:forget]
            self._base += forget
        rows.append(row)
        versions = self.versions
        if row >= len(versions):
            versions += [0] * (row + 1 - len(versions) + len(versions) // 2)
        versions[row] += 1

    def since(self, position: int) -> set[int] | None:
        """Return the positions of the nodes that changed since the journal had this `position`. None: some of these
        entries were dropped, so any node may have changed.
        """
        if position < self._base:
            return None
        return set(self._rows[position - self._base :])
