"""The feasible nodes of one view in the order in which a pod would take them.

Greatest total first. Nodes with equal totals stand on a ring by a hash of their name; a pod begins at its own place on
the ring, a hash of its uid. So the choice among equals is spread over them, is the same on every replay, and depends
on nothing but the totals and the names.

`best_of` finds it by a pass over all totals; `Ranking` keeps buckets, so that finding it does not grow with the
cluster. Both give the same answer (tested). `PartedRanking` keeps such buckets for each domain of a topology key.

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
"""Distances on the ring are taken modulo one more than this."""
HashArray = NDArray[np.uint64]


def best_of(
    totals: IntArray, hashes: HashArray, seed: int, count: int, rows: NDArray[np.intp] | None = None
) -> list[int]:
    """Return the indexes of the `count` best entries, best first. Entries below 0 are not candidates.

    Args:
        totals: int64 (N,).
        hashes: uint64 (M,), the places on the ring.
        seed: The pod's place on the ring, 64 bits.
        rows: (N,) the entries' indexes into `hashes`; None: the entries are in its order.
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
    """Buckets of equal totals, each sorted by place on the ring. Its length: the number of candidates."""

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
        """Update the total of a row. INFEASIBLE removes the row from the candidates."""
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
    """A ranking for each value that a label has, as things stood when it was made.

    of    value -> the candidates with it
    """

    def __init__(self, totals: IntArray, hashes: HashArray, label: LabelColumn) -> None:
        self.of: dict[int, Ranking] = {}
        self._label = label
        self._version = label.version
        self._values = label.values.copy()
        for value in sorted(set(self._values.tolist())):
            self.of[value] = Ranking(np.where(self._values == value, totals, INFEASIBLE), hashes)

    def is_by(self, label: LabelColumn) -> bool:
        """Return whether the ranking still matches the label's values."""
        return label is self._label and label.version == self._version

    def move(self, row: int, place: int, before: int, after: int) -> None:
        """See `Ranking.move`."""
        self.of[self._values.item(row)].move(row, place, before, after)
