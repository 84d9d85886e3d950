"""The lowest priority of a pod on each node."""

from typing import Final

import numpy as np

from koord_scheduler.domain.columns.node_columns import IntArray
from koord_scheduler.domain.pods.equivalence_classes import PodClass
from koord_scheduler.domain.pods.info import PodInfo

NOBODY: Final = 1 << 40
"""Larger than any priority; stands for a node without pods."""


class LowestPriorities:
    """The lowest priority of the pods on each node, for preemption. The number of pods of each priority is counted."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[int, int]] = {}
        self._lowest: IntArray = np.full(64, NOBODY, np.int64)

    def lowest(self, capacity: int) -> IntArray:
        """Return the lowest priority of a pod on each node by its position, int64 (N,), N at least `capacity`.

        NOBODY, greater than every priority, stands for a node without pods.
        """
        self._grow(capacity)
        return self._lowest

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return False, because no filter uses priorities."""
        return False

    def took(self, row: int, pod_info: PodInfo) -> None:
        """Count the priority of a pod on its node, and update the lowest priority of the node."""
        self._grow(row + 1)
        counts = self._counts.setdefault(row, {})
        counts[pod_info.priority] = counts.get(pod_info.priority, 0) + 1
        if pod_info.priority < self._lowest.item(row):
            self._lowest[row] = pod_info.priority

    def gave(self, row: int, pod_info: PodInfo) -> None:
        """Subtract the priority of a pod. If it was the last one with the lowest priority, find the next lowest."""
        counts = self._counts[row]
        counts[pod_info.priority] -= 1
        if not counts[pod_info.priority]:
            del counts[pod_info.priority]
            if pod_info.priority == self._lowest[row]:
                self._lowest[row] = min(counts, default=NOBODY)

    def _grow(self, capacity: int) -> None:
        if capacity > len(self._lowest):
            larger = np.full(2 * capacity, NOBODY, np.int64)
            larger[: len(self._lowest)] = self._lowest
            self._lowest = larger
