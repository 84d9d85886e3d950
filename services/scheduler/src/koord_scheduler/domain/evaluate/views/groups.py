"""Groups of nodes with equal raw scores of the plugins that normalize.

The normalized score of a node depends on the range of raw scores over all feasible nodes. It is the same for all nodes
with the same raw score. So the other scores are ranked within each group. A change of the range then changes one
number for each group and no ranking.
"""

from collections.abc import Sequence

import numpy as np

from koord_scheduler.domain.columns.node_columns import IntArray, row_list
from koord_scheduler.domain.framework.node_points import ScorePlugin


class Groups:
    """The groups of one view: nodes with equal raw scores from each plugin that normalizes are one group.

    Without plugins that normalize, all nodes are in group 0.

    Args:
        scorers: (index in the profile's scores, plugin, weight) of the plugins that normalize.

    Attributes:
        places: Indexes of the plugins in the profile's scores.
        added: For each group, the sum of the weighted scores from these plugins; 0 for a group without feasible nodes.
        parts: For each group, plugin -> weighted score.
        bounds: Least and greatest raw score of each plugin over the feasible nodes; (0, 0) without a feasible node.
    """

    def __init__(self, scorers: Sequence[tuple[int, ScorePlugin, int]] = ()) -> None:
        self._scorers = list(scorers)
        self.places = [place for place, _, _ in scorers]
        self._keys: list[tuple[int, ...]] = []
        self._ids: dict[tuple[int, ...], int] = {}
        self._sizes: list[int] = []
        self._is_settled = True
        self.added: list[int] = []
        self.parts: list[dict[str, int]] = []
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
        """Return the group number of each of `count` nodes, int64 (K,).

        Args:
            raws: For each plugin of `places`, the raw scores of the nodes, int64 (K,).
            count: K.
        """
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
        """Compute `bounds`, `added` and `parts` again if groups got their first node or lost their last one.

        Returns:
            Whether they may have changed.
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
