"""Orders the feasible nodes of one view by preference.

The node with the greatest total score is first. Nodes with equal totals are ordered on a ring of 64-bit numbers by a
hash of their name. A pod starts at its own place on the ring, a hash of its uid. So pods spread over equal nodes,
every replay makes the same choice, and the choice depends only on totals and names.

`best_of` searches all totals. `Ranking` has buckets of equal totals, so that a search does not grow with the cluster;
both give the same answer (tested). `rankings_by` makes such buckets for each domain of a topology key, or for each
group of nodes whose totals differ from the ranked ones by one number; `best_of_groups` compares the groups.

Source: scheduler-core spec, 1.2
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koord_scheduler.domain.columns.node_columns import IntArray, row_list

INFEASIBLE: Final = -1
RING: Final = (1 << 64) - 1
"""Largest place on the ring. Distances are taken modulo this number plus one."""
HashArray = NDArray[np.uint64]


def best_of(
    totals: IntArray, hashes: HashArray, seed: int, count: int, rows: NDArray[np.intp] | None = None
) -> list[int]:
    """The indexes of the `count` greatest totals, best first; totals below 0 are not candidates. Equal totals are
    ordered by the distance of their hash from `seed` on a ring of 64-bit numbers.

    Args:
        totals: int64 (N,).
        hashes: Hashes of the node names, uint64 (M,).
        rows: (N,) the index in `hashes` of each total. None: totals and hashes have the same order.
    """
    chosen: list[int] = []
    level = int(totals.max(initial=INFEASIBLE))
    while level >= 0:
        equal = np.flatnonzero(totals == level)
        wanted = count - len(chosen)
        if len(equal) > 1:
            distance = hashes[equal if rows is None else rows[equal]] - np.uint64(seed)
            if wanted < len(equal):
                nearest = np.argpartition(distance, wanted - 1)[:wanted]
                equal, distance = equal[nearest], distance[nearest]
            equal = equal[np.argsort(distance)]
        chosen += row_list(equal)
        if len(chosen) >= count:
            break
        level = int(totals.max(initial=INFEASIBLE, where=totals < level))
    return chosen


class Ranking:
    """Feasible nodes in buckets of equal totals. In a bucket, nodes are sorted by the hash of their name. `len` is the
    number of nodes. `row_at`: hash of a node's name -> its position in the node columns.
    """

    def __init__(self, row_at: Mapping[int, int]) -> None:
        self._row_at = row_at
        self._buckets: dict[int, list[int]] = {}
        self.levels: list[int] = []  # The totals that occur, ascending
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, total: int, places: list[int]) -> None:
        """Add nodes with one total, greater than all in the ranking. `places`: hashes of their names, ascending."""
        self._buckets[total] = places
        self.levels.append(total)
        self._size += len(places)

    def move(self, place: int, before: int, after: int) -> None:
        """Change the total of a node, whose name has the hash `place`. INFEASIBLE: it is not in the ranking."""
        self._size += (after >= 0) - (before >= 0)
        if before >= 0:
            bucket = self._buckets[before]
            del bucket[bisect_left(bucket, place)]
            if not bucket:
                del self._buckets[before]
                del self.levels[bisect_left(self.levels, before)]
        if after >= 0:
            joined = self._buckets.get(after)
            if joined is None:
                self._buckets[after] = [place]
                insort(self.levels, after)
            else:
                insort(joined, place)

    def nearest(self, level: int, seed: int, count: int) -> list[int]:
        """Name hashes of the `count` nodes with the total `level` (the ranking must have it) that follow `seed` on the
        ring, nearest first; all of them if they are fewer.
        """
        bucket = self._buckets[level]
        first = bisect_left(bucket, seed)
        places = bucket[first : first + count]
        places += bucket[: min(first, count - len(places))]
        return places

    def best(self, seed: int, count: int) -> list[int]:
        """Positions of the `count` best nodes, best first."""
        chosen: list[int] = []
        row_at = self._row_at
        for level in reversed(self.levels):
            chosen += [row_at[place] for place in self.nearest(level, seed, count - len(chosen))]
            if len(chosen) >= count:
                break
        return chosen


def on_ring(places: list[int], seed: int) -> list[int]:
    """Return name hashes in the order in which they follow `seed` on the ring. Sort `places` in place."""
    places.sort()
    first = bisect_left(places, seed)
    return places[first:] + places[:first]


def rankings_by(
    groups: NDArray[np.integer], totals: IntArray, hashes: HashArray, row_at: Mapping[int, int]
) -> dict[int, Ranking]:
    """Group number -> ranking of the feasible nodes of this group. A group without such nodes has no entry. `groups`
    (N,), `totals` int64 (N,), below 0 if not feasible, `hashes` uint64 (N,): by position of the node.
    """
    feasible = np.flatnonzero(totals >= 0)
    order = feasible[np.lexsort((hashes[feasible], totals[feasible], groups[feasible]))]
    rankings: dict[int, Ranking] = {}
    if len(order) == 0:
        return rankings
    places, values, keys = hashes[order].tolist(), totals[order], groups[order]
    inner = np.flatnonzero((np.diff(values) != 0) | (np.diff(keys) != 0)) + 1
    for begin, end in pairwise([0, *row_list(inner), len(places)]):
        key = int(keys[begin])
        ranking = rankings.get(key)
        if ranking is None:
            ranking = rankings[key] = Ranking(row_at)
        ranking.append(int(values[begin]), places[begin:end])
    return rankings


def best_of_groups(
    rankings: Mapping[int, Ranking], added: Sequence[int], row_at: Mapping[int, int], seed: int, count: int
) -> list[int]:
    """Positions of the `count` best nodes of all groups, best first. `added`: group number -> amount to add to the
    totals in its ranking; the sums are at least 0.
    """
    heads: list[tuple[int, int]] = [
        (each.levels[-1] + added[group], group) for group, each in rankings.items() if each.levels
    ]
    chosen: list[int] = []
    while heads:
        top, wanted = max(heads)[0], count - len(chosen)
        groups = [group for total, group in heads if total == top]
        places: list[int] = []
        for group in groups:
            places += rankings[group].nearest(top - added[group], seed, wanted)
        chosen += [row_at[place] for place in on_ring(places, seed)[:wanted]]
        if len(chosen) >= count:
            break
        heads = [head for head in heads if head[0] != top]
        for group in groups:
            levels, extra = rankings[group].levels, added[group]
            at = bisect_left(levels, top - extra)
            if at:
                heads.append((levels[at - 1] + extra, group))
    return chosen
