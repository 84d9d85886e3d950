"""Numbers of pods per node with a journal of changes, and their sums by topology domain, updated from the journal."""

from typing import Final

import numpy as np

from koord_scheduler.domain.columns.label_column import LabelColumn
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray

_LONGEST_JOURNAL: Final = 4096


class Counter:
    """The number of pods on each node that some constraint selects, with a journal of changes."""

    __slots__ = ("__weakref__", "_base", "_changes", "rows", "total")

    def __init__(self, capacity: int) -> None:
        # Number of pods for each position in the node columns, int64 (N,).
        self.rows: IntArray = np.zeros(capacity, np.int64)
        self.total = 0  # Sum over all nodes
        self._base = 0
        self._changes: list[tuple[int, int]] = []

    @property
    def position(self) -> int:
        """The number of changes recorded so far."""
        return self._base + len(self._changes)

    def add(self, row: int, delta: int) -> None:
        """`delta` is negative if pods leave."""
        self.rows[row] += delta
        self.total += delta
        changes = self._changes
        if len(changes) >= _LONGEST_JOURNAL:
            del changes[: _LONGEST_JOURNAL // 2]
            self._base += _LONGEST_JOURNAL // 2
        changes.append((row, delta))

    def since(self, position: int) -> list[tuple[int, int]] | None:
        """Return the changes from a former `position` on, as (position of the node, delta), oldest first. None: the
        journal no longer contains all of them, so the caller must read `rows` anew.
        """
        return None if position < self._base else self._changes[position - self._base :]

    def grow(self, capacity: int) -> None:
        larger = np.zeros(capacity, np.int64)
        larger[: len(self.rows)] = self.rows
        self.rows = larger


class DomainSums:
    """The pods of a `Counter`, summed over topology domains. A domain is one value of a node label. Nodes without the
    label (value id 0) belong to no domain; entry 0 of the sums is always 0.
    """

    def __init__(self, counter: Counter, column: LabelColumn) -> None:
        self.counter = counter
        self.column = column
        self.sums: IntArray = np.zeros(0, np.int64)  # Id of the label's value -> number of pods, int64 (V,)
        self.version = 0  # Number that grows with every change of the sums
        self._eligible: BoolArray | None = None
        self._position = -1
        self._column_version = -1

    def refresh(self, eligible: BoolArray | None = None) -> IntArray:
        """Apply the counter's changes since the last call. `eligible`: whether each node counts, bool (N,), not changed
        in place; None for all nodes.
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
