"""Counts how often pods look for Reservations by a label, and how many nodes remain for them.

An index of labels is not needed here: the owner rules find the Reservations of a pod, and no more nodes remain than an
index would find. The counters exist only because the metrics of Koordinator have them. The argument
`reservationSelectorIndex` says which labels are counted.

Source: scheduler-fine-grained spec, 3.13.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

MOST_POWER: Final = 23


class SelectorQueries:
    """The queries of pods with a `reservationSelector`.

    Attributes:
        hits: Queries with at least one indexed label.
        misses: Queries without an indexed label.
        nodes: Sum of the numbers of nodes that remained for hits.
        by_power: Power p -> number of hits for which more than 2^(p-1) and at most 2^p nodes remained. Power 0 stands
            for at most one node, and a power above `MOST_POWER` for all larger numbers.
    """

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0
        self.nodes = 0
        self.by_power: Counter[int] = Counter()

    def count(self, indexed: Iterable[bool], nodes: int) -> None:
        """Count one query.

        Args:
            indexed: For each label of the selector, whether it is indexed.
            nodes: Number of nodes with a Reservation that the pod may use.
        """
        if not any(indexed):
            self.misses += 1
            return
        self.hits += 1
        self.nodes += nodes
        self.by_power[min((nodes - 1).bit_length() if nodes else 0, MOST_POWER + 1)] += 1
