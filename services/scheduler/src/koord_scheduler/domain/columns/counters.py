"""Counts of pods per node, with a journal of changes, and their sums by topology domain, kept up to date from it."""

from typing import Final

import numpy as np

from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, LabelColumn

_LONGEST_JOURNAL: Final = 4096


class Counter:
    """How many pods of some sort run on each node.

    rows    int64 (N,)
    total   their sum
    """

    __slots__ = ("__weakref__", "_base", "_changes", "rows", "total")

    def __init__(self, capacity: int) -> None:
        self.rows: IntArray = np.zeros(capacity, np.int64)
        self.total = 0
        self._base = 0
        self._changes: list[tuple[int, int]] = []

    @property
    def position(self) -> int:
        """Number of all changes ever made."""
        return self._base + len(self._changes)

    def add(self, row: int, delta: int) -> None:
        """So many pods more, or fewer, on one node."""
        self.rows[row] += delta
        self.total += delta
        changes = self._changes
        if len(changes) >= _LONGEST_JOURNAL:
            del changes[: _LONGEST_JOURNAL // 2]
            self._base += _LONGEST_JOURNAL // 2
        changes.append((row, delta))

    def since(self, position: int) -> list[tuple[int, int]] | None:
        """Changes (row, delta) at or after a position; None when the journal no longer reaches back so far."""
        return None if position < self._base else self._changes[position - self._base :]

    def restart(self, rows: IntArray) -> None:
        """Count anew."""
        self.rows, self.total = rows, int(rows.sum())
        self._base = self.position + 1
        self._changes.clear()

    def grow(self, capacity: int) -> None:
        """Room for more rows."""
        larger = np.zeros(capacity, np.int64)
        larger[: len(self.rows)] = self.rows
        self.rows = larger


class DomainSums:
    """A counter summed over the domains of a topology key: `sums[id of the label's value]`, int64.

    Rows that lack the key (value id 0) count in no domain; entry 0 is always 0.
    """

    def __init__(self, counter: Counter, column: LabelColumn) -> None:
        self.counter = counter
        self.column = column
        self.sums: IntArray = np.zeros(0, np.int64)
        self.version = 0
        self._eligible: BoolArray | None = None
        self._position = -1
        self._column_version = -1

    def refresh(self, eligible: BoolArray | None = None) -> IntArray:
        """Return the sums as of now.

        Args:
            eligible: Bool (N,): only these rows count; the array may be replaced, not changed in place. None: all rows.
        """
        counter, column = self.counter, self.column
        is_same_base = eligible is self._eligible and self._column_version == column.version
        changes = counter.since(self._position) if is_same_base else None
        if changes is None:
            self._recount(eligible)
        elif changes:
            values = column.values
            for row, delta in changes:
                value = int(values[row])
                if value and (eligible is None or eligible[row]):
                    self.sums[value] += delta
            self.version += 1
        self._position = counter.position
        return self.sums

    def _recount(self, eligible: BoolArray | None) -> None:
        if len(self.counter.rows) < len(self.column.values):
            self.counter.grow(len(self.column.values))
        counted = self.counter.rows if eligible is None else self.counter.rows * eligible
        sums = np.bincount(self.column.values, weights=counted, minlength=len(self.column.texts))
        self.sums = sums.astype(np.int64)
        self.sums[0] = 0
        self._eligible, self._column_version = eligible, self.column.version
        self.version += 1
