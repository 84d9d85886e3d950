"""The total score of each node for one class of pods, and rankings of the feasible nodes by it.

The normalized score of a node depends on the range of raw scores over all feasible nodes. It is the same for all nodes
with the same raw score. So the other scores are ranked within each group. A change of the range then changes one
number for each group and no ranking. Rankings are updated while few totals change at a time, and dropped if many
change.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from koord_scheduler.domain.columns.label_column import LabelColumn
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.engine.ranking import INFEASIBLE, Ranking, best_of, best_of_groups, rankings_by
from koord_scheduler.domain.framework.node_points import ScorePlugin


class Groups:
    """The groups of one view: nodes with equal raw scores from each plugin that normalizes are one group. Without
    plugins that normalize, all nodes are in group 0. `scorers`: (index in the profile's scores, plugin, weight) of the
    plugins that normalize.
    """

    def __init__(self, scorers: Sequence[tuple[int, ScorePlugin, int]] = ()) -> None:
        self._scorers = list(scorers)
        self.places = [place for place, _, _ in scorers]  # Indexes of the plugins in the profile's scores
        self._keys: list[tuple[int, ...]] = []
        self._ids: dict[tuple[int, ...], int] = {}
        self._sizes: list[int] = []
        self._is_settled = True
        # For each group, the sum of the weighted scores from these plugins; 0 for a group without feasible nodes.
        self.added: list[int] = []
        self.parts: list[dict[str, int]] = []  # For each group, plugin -> weighted score
        # Least and greatest raw score of each plugin over the feasible nodes; (0, 0) without a feasible node.
        self.bounds: list[tuple[int, int]] = [(0, 0)] * len(self._scorers)
        if not self._scorers:
            self.id_of(())

    def id_of(self, key: tuple[int, ...]) -> int:
        """Return the number of the group whose nodes have these raw scores, one for each plugin of `places`."""
        group = self._ids.get(key)
        if group is None:
            group = self._ids[key] = len(self._keys)
            self._keys.append(key)
            self._sizes.append(0)
            self.added.append(0)
            self.parts.append({})
        return group

    def ids_of(self, raws: Sequence[IntArray], count: int) -> IntArray:
        """Group numbers of `count` nodes, int64 (K,). `raws`: for each plugin of `places`, raw scores int64 (K,)."""
        if not raws or count == 0:
            return np.zeros(count, np.int64)
        codes = raws[0]  # numbers instead of tuples: sorting tuples takes 20 times as long
        for raw in raws[1:]:
            values, inverse = np.unique(raw, return_inverse=True)
            codes = np.unique(codes, return_inverse=True)[1] * len(values) + inverse
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        keys = zip(*(row_list(raw[first]) for raw in raws), strict=True)
        ids = np.array([self.id_of(key) for key in keys], np.int64)
        found: IntArray = ids[inverse.reshape(-1)]
        return found

    def moved(self, group: int, by: int) -> None:
        """Add `by` to the number of feasible nodes in a group; `by` is negative if nodes left the group."""
        before = self._sizes[group]
        self._sizes[group] = before + by
        if before == 0 or before + by == 0:
            self._is_settled = False

    @property
    def present(self) -> int:
        """Return the number of groups with feasible nodes. It is at most one without plugins that normalize."""
        return len(self._sizes) - self._sizes.count(0)

    def settle(self) -> bool:
        """Compute `bounds`, `added` and `parts` again if groups got their first node or lost their last one. Returns
        whether they may have changed.
        """
        if self._is_settled:
            return False
        self._is_settled = True
        if not self._scorers:
            return False
        present = [group for group, size in enumerate(self._sizes) if size]
        self.added = [0] * len(self._keys)
        self.parts = [{} for _ in self._keys]
        if not present:
            self.bounds = [(0, 0)] * len(self._scorers)
            return True
        for index, (_, plugin, weight) in enumerate(self._scorers):
            raws = [self._keys[group][index] for group in present]
            low, high = min(raws), max(raws)
            self.bounds[index] = (low, high)
            scores = row_list(plugin.normalize(np.array(raws, np.int64), low, high))
            for group, score in zip(present, scores, strict=True):
                self.added[group] += weight * score
                self.parts[group][plugin.name] = weight * score
        return True


_MOST_GROUPS: Final = 256
"""With more groups, it is faster to search all totals."""
_FEW_MOVES: Final = 16
_NODES_A_MOVE: Final = 160
"""A search of the totals of so many nodes takes as long as one move in the rankings (measured)."""
_SEARCHES_A_RANKING: Final = 16
"""So many searches of all totals take as long as making the rankings (measured)."""


class PartedRanking:
    """One ranking of the feasible nodes for each value of a label, valid until the label's values change."""

    def __init__(self, totals: IntArray, nodes: NodeColumns, label: LabelColumn) -> None:
        self._label = label
        self._version = label.version
        self._values = label.values.copy()
        self._row_at = nodes.row_at
        # Id of a label value -> ranking of the nodes with this value.
        self.of = rankings_by(self._values, totals, nodes.name_hash, nodes.row_at)

    def is_by(self, label: LabelColumn) -> bool:
        """Return whether the ranking was made for this label and the label's values have not changed since."""
        return label is self._label and label.version == self._version

    def move(self, row: int, place: int, before: int, after: int) -> None:
        """Change the total of a node in the ranking for the node's label value. See `Ranking.move`."""
        value = self._values.item(row)
        ranking = self.of.get(value)
        if ranking is None:
            ranking = self.of[value] = Ranking(self._row_at)
        ranking.move(place, before, after)


class Totals:
    """The total score of each node for one class of pods, and a ranking of the feasible nodes. A total is the sum of a
    fixed part, which depends on the node alone, and of the score that its group gets from plugins that normalize.
    """

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._fixed: IntArray = np.zeros(0, np.int64)
        self._group_of: IntArray = np.zeros(0, np.int64)
        self._look_at_single()
        self.groups = Groups()  # The scores of each group of nodes from the plugins that normalize
        self._rankings: dict[int, Ranking] | None = None
        self._single: Ranking | None = None  # the ranking of group 0
        self._parted: PartedRanking | None = None
        self._to_part: tuple[LabelColumn, int] | None = None
        self._searches = 0  # searches of all totals since many nodes changed between two looks

    def clear(self, groups: Groups) -> None:
        """Mark all nodes as infeasible, and start with new groups and the present capacity of the node columns."""
        self._fixed = np.full(self._nodes.capacity, INFEASIBLE, np.int64)
        self._group_of = np.zeros(self._nodes.capacity, np.int64)
        self._look_at_single()
        self.groups = groups
        self._forget()

    def of(self, row: int) -> int:
        """Return the total of the node at position `row`; `INFEASIBLE` if it refuses the class."""
        fixed = self._fixed.item(row)
        return fixed if fixed < 0 else fixed + self.groups.added[self._group_of.item(row)]

    def among(self, rows: Rows) -> IntArray:
        """Return the fixed parts of these nodes, int64 (K,). Without plugins that normalize, they are the totals."""
        return self._fixed[rows]

    def group_of(self, row: int) -> int:
        return self._group_of.item(row)

    def put(self, row: int, fixed: int, group: int = 0) -> None:
        """Set the fixed part and the group of the node at position `row`. `INFEASIBLE`: the node refuses the class."""
        before, group_before = self._fixed_at[row], self._group_at[row]
        if before == fixed and group_before == group:
            return
        if self._rankings is not None or self._parted is not None:
            self._move(row, self._nodes.name_hash.item(row), before, group_before, fixed, group)
        self._fixed_at[row] = fixed
        if group_before != group or before < 0 or fixed < 0:
            self._group_at[row] = group
            if before >= 0:
                self.groups.moved(group_before, -1)
            if fixed >= 0:
                self.groups.moved(group, 1)

    def put_many(self, rows: Rows, fixed: IntArray, groups: IntArray) -> None:
        """All arrays have shape (K,), int64 except `rows`."""
        is_kept = self._rankings is not None or self._parted is not None
        if is_kept and 8 * len(rows) < len(self._nodes):
            for row, value, group in zip(row_list(rows), row_list(fixed), row_list(groups), strict=True):
                self.put(row, value, group)
            return
        self._forget()
        self._recount(rows, -1)
        self._fixed[rows] = fixed
        self._group_of[rows] = groups
        self._recount(rows, 1)

    def unsettle(self, changes: int) -> None:
        """Drop the rankings if so many nodes have changed that searching all totals is cheaper than an update. Rankings
        by the values of a label stay, because only they find the best nodes of each value. `changes`: number of nodes
        that have changed.
        """
        if changes > _FEW_MOVES and _NODES_A_MOVE * changes > len(self._nodes):
            self._rankings = self._single = None
            self._searches = 0

    def settle(self) -> None:
        """Compute the scores of the groups again, once after several calls of `put` or `put_many`."""
        if self.groups.settle():
            self._parted = None

    def best(self, count: int, seed: int) -> list[int]:
        """Positions of the `count` best feasible nodes, best first. `seed`, a hash of the pod: see `ranking`."""
        rankings = self._rankings
        if rankings is not None and self._single is not None and len(rankings) == 1:
            return self._single.best(seed, count)
        nodes = self._nodes
        is_by_hand = len(self.groups.added) > _MOST_GROUPS and self.groups.present > _MOST_GROUPS
        if rankings is None or is_by_hand:
            if self._searches < _SEARCHES_A_RANKING or is_by_hand:
                # Rankings are made only after they would have paid off. With many classes of pods, looks with few and
                # with many changes alternate, and each look with many changes drops the rankings.
                self._searches += 1
                self._rankings = self._single = None
                return best_of(self._all(), nodes.name_hash, seed, count)
            rankings = self._rankings = rankings_by(self._group_of, self._fixed, nodes.name_hash, nodes.row_at)
            self._single = rankings.get(0)
        return best_of_groups(rankings, self.groups.added, nodes.row_at, seed, count)

    def parted(self, label: LabelColumn) -> PartedRanking | None:
        """Return a ranking of the feasible nodes for each value of a label, or None if the rankings are not built. The
        rankings are dropped when all nodes are evaluated again or the label's values change. The first call after that
        returns None; the second one builds them, because only repeated use is worth the cost.
        """
        if self._parted is None or not self._parted.is_by(label):
            wanted, self._to_part = self._to_part, (label, label.version)
            if wanted is None or wanted[0] is not label or wanted[1] != label.version:
                self._parted = None
                return None
            self._parted = PartedRanking(self._all(), self._nodes, label)
        return self._parted

    def _look_at_single(self) -> None:
        self._fixed_at, self._group_at = self._fixed.data, self._group_of.data

    def _all(self) -> IntArray:
        """Return the total of every row, int64 (N,)."""
        if len(self.groups.added) == 1:
            return np.where(self._fixed >= 0, self._fixed + self.groups.added[0], INFEASIBLE)
        added = np.array([*self.groups.added, 0], np.int64)
        return np.where(self._fixed >= 0, self._fixed + added[self._group_of], INFEASIBLE)

    def _forget(self) -> None:
        self._rankings = self._single = None
        self._searches = 0
        self._parted = self._to_part = None

    def _recount(self, rows: Rows, sign: int) -> None:
        feasible = rows[self._fixed[rows] >= 0]
        for group, size in enumerate(row_list(np.bincount(self._group_of[feasible]))):
            if size:
                self.groups.moved(group, sign * size)

    def _move(self, row: int, place: int, before: int, group_before: int, after: int, group: int) -> None:
        if self._rankings is not None:
            if group_before == group:
                self._ranking(group).move(place, before, after)
            else:
                if before >= 0:
                    self._ranking(group_before).move(place, before, INFEASIBLE)
                if after >= 0:
                    self._ranking(group).move(place, INFEASIBLE, after)
        if self._parted is not None:
            added = self.groups.added
            self._parted.move(
                row,
                place,
                before if before < 0 else before + added[group_before],
                after if after < 0 else after + added[group],
            )

    def _ranking(self, group: int) -> Ranking:
        if group == 0 and self._single is not None:
            return self._single
        assert self._rankings is not None, "there are rankings"
        ranking = self._rankings.get(group)
        if ranking is None:
            ranking = self._rankings[group] = Ranking(self._nodes.row_at)
        return ranking
