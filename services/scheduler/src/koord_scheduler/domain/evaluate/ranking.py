"""Orders the feasible nodes of one view by preference.

The node with the greatest total is first. Nodes with equal totals are ordered on a ring by a hash of their name. A
pod starts at its own place on the ring, a hash of its uid. So pods spread over equal nodes, every replay makes the
same choice, and the choice depends only on totals and names.

`best_of` searches all totals. `Ranking` keeps buckets, so that a search does not grow with the cluster; both give the
same answer (tested). `PartedRanking` keeps such buckets for each domain of a topology key.

Source:
    scheduler-core spec, 1.2
"""

from bisect import bisect_left, insort
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koord_scheduler.domain.columns.node_columns import IntArray, LabelColumn, row_list

INFEASIBLE: Final = -1
RING: Final = (1 << 64) - 1
"""Largest place on the ring. Distances are taken modulo this number plus one."""
HashArray = NDArray[np.uint64]


def best_of(
    totals: IntArray, hashes: HashArray, seed: int, count: int, rows: NDArray[np.intp] | None = None
) -> list[int]:
    """Return the indexes of the `count` best entries, best first. Entries below 0 are not candidates.

    Args:
        totals: int64 (N,).
        hashes: uint64 (M,), the places on the ring.
        seed: The pod's place on the ring, 64 bits.
        count: Number of entries to return.
        rows: (N,) the index of each entry in `hashes`. None: the entries are in the order of `hashes`.
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
    """Candidates in buckets of equal totals, each bucket sorted by place on the ring.

    `len` is the number of candidates.
    """

    def __init__(self, totals: IntArray, hashes: HashArray) -> None:
        self._row_at: dict[int, int] = {}
        self._buckets: dict[int, list[int]] = {}
        feasible = np.flatnonzero(totals >= 0)
        order = feasible[np.lexsort((hashes[feasible], totals[feasible]))]
        places, values = hashes[order].tolist(), totals[order]
        self._row_at = dict(zip(places, row_list(order), strict=True))
        edges = [0, *row_list(np.flatnonzero(np.diff(values)) + 1), len(places)] if len(places) else [0]
        for begin, end in pairwise(edges):
            self._buckets[int(values[begin])] = places[begin:end]
        self._levels = sorted(self._buckets)
        self._size = len(places)

    def __len__(self) -> int:
        return self._size

    def move(self, row: int, place: int, before: int, after: int) -> None:
        """Update the total of a row.

        Args:
            row: The row.
            place: Its place on the ring.
            before: Its total until now; INFEASIBLE if it was not a candidate.
            after: Its new total; INFEASIBLE removes it from the candidates.
        """
        self._size += (after >= 0) - (before >= 0)
        if before >= 0:
            bucket = self._buckets[before]
            del bucket[bisect_left(bucket, place)]
            if not bucket:
                del self._buckets[before]
                del self._levels[bisect_left(self._levels, before)]
        if after >= 0:
            joined = self._buckets.get(after)
            if joined is None:
                self._buckets[after] = [place]
                insort(self._levels, after)
            else:
                insort(joined, place)
            self._row_at[place] = row

    def best(self, seed: int, count: int) -> list[int]:
        """Return the `count` best rows, best first."""
        chosen: list[int] = []
        row_at = self._row_at
        for level in reversed(self._levels):
            bucket = self._buckets[level]
            first = bisect_left(bucket, seed)
            wanted = count - len(chosen)
            places = bucket[first : first + wanted]
            places += bucket[: min(first, wanted - len(places))]
            chosen += [row_at[place] for place in places]
            if len(chosen) >= count:
                break
        return chosen


class PartedRanking:
    """One ranking for each value of a label, as of the time when it was made.

    Attributes:
        of: Id of a value -> ranking of the candidates with this value.
    """

    def __init__(self, totals: IntArray, hashes: HashArray, label: LabelColumn) -> None:
        self.of: dict[int, Ranking] = {}
        self._label = label
        self._version = label.version
        self._values = label.values.copy()
        for value in sorted(set(self._values.tolist())):
            self.of[value] = Ranking(np.where(self._values == value, totals, INFEASIBLE), hashes)

    def is_by(self, label: LabelColumn) -> bool:
        """Return whether the label's values are still those with which the ranking was made."""
        return label is self._label and label.version == self._version

    def move(self, row: int, place: int, before: int, after: int) -> None:
        """See `Ranking.move`."""
        self.of[self._values.item(row)].move(row, place, before, after)
