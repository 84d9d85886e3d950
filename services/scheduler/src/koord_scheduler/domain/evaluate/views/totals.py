"""The total score of each row, and rankings by it, which are kept while few totals change at a time."""

import numpy as np

from koord_scheduler.domain.columns.node_columns import IntArray, LabelColumn, NodeColumns, Rows, row_list
from koord_scheduler.domain.evaluate.ranking import INFEASIBLE, PartedRanking, Ranking, best_of


class Totals:
    """Sums of weight * normalized score for one class of pods. `INFEASIBLE` marks rows that refuse the class."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._totals: IntArray = np.zeros(0, np.int64)
        self._ranking: Ranking | None = None
        self._parted: PartedRanking | None = None
        self._to_part: tuple[LabelColumn, int] | None = None
        self._is_unsettled = True

    def clear(self) -> None:
        """Mark all rows as infeasible, and adopt a new number of rows."""
        self._totals = np.full(self._nodes.capacity, INFEASIBLE, np.int64)
        self._ranking = None

    def of(self, row: int) -> int:
        """Return the total of a row."""
        return self._totals.item(row)

    def among(self, rows: Rows) -> IntArray:
        """Return the totals of some rows, int64 (K,)."""
        return self._totals[rows]

    def put(self, row: int, total: int) -> None:
        """Set the total of one row."""
        before = self._totals.item(row)
        if before != total:
            if self._ranking is not None:
                self._ranking.move(row, self._nodes.name_hash.item(row), before, total)
            if self._parted is not None:
                self._parted.move(row, self._nodes.name_hash.item(row), before, total)
            self._totals[row] = total

    def put_many(self, rows: Rows, totals: IntArray) -> None:
        """Set the totals of some rows.

        Args:
            rows: The rows, shape (K,).
            totals: Their totals, int64 (K,).
        """
        orders = [order for order in (self._ranking, self._parted) if order is not None]
        if orders and 8 * len(rows) < len(self._nodes):
            places = self._nodes.name_hash[rows].tolist()
            before = row_list(self._totals[rows])
            for row, place, old, new in zip(row_list(rows), places, before, row_list(totals), strict=True):
                if old != new:
                    for order in orders:
                        order.move(row, place, old, new)
        else:
            self._ranking, self._is_unsettled = None, True
            self._parted = self._to_part = None
        self._totals[rows] = totals

    def best(self, count: int, seed: int) -> list[int]:
        """Return the `count` best feasible rows, best first; see `ranking`."""
        if self._ranking is None:
            if self._is_unsettled:
                # Everything has just been judged anew; buckets are worth their making only if that does not go on.
                self._is_unsettled = False
                return best_of(self._totals, self._nodes.name_hash, seed, count)
            self._ranking = Ranking(self._totals, self._nodes.name_hash)
        return self._ranking.best(seed, count)

    def parted(self, label: LabelColumn) -> PartedRanking | None:
        """Return the ranking of the feasible rows for each value of a label.

        None if all rows were just evaluated again, or if the label has changed: the ranking is made when changes are
        few again.
        """
        if self._parted is None or not self._parted.is_by(label):
            wanted, self._to_part = self._to_part, (label, label.version)
            if wanted is None or wanted[0] is not label or wanted[1] != label.version:
                self._parted = None
                return None
            self._parted = PartedRanking(self._totals, self._nodes.name_hash, label)
        return self._parted
