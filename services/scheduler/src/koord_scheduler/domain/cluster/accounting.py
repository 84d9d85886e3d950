"""Counts pods on nodes: resources, host ports, constraints of other pods, load, the lowest priority of each node.

`take` counts a pod that is assumed or found on a node, `give` removes it. All sums over pods follow from these two,
so a trial (`give`, look, `take`) leaves no trace.

Source: scheduler-core spec, 1 (step 11), 5.1
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import numpy as np
from koordcore.values.allocation import NOTHING

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.population import Population
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns


class Follower(Protocol):
    """An object that keeps sums over the pods of each node, such as host ports or load."""

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return whether a filter may refuse pods of this class because of the follower's sums."""
        ...

    def took(self, row: int, pod_info: PodInfo) -> None: ...

    def gave(self, row: int, pod_info: PodInfo) -> None:
        """The inverse of `took`."""
        ...


class NodeAccounting:
    """Counts pods on nodes: in the node columns, in the population, and in the sums of plugins (followers)."""

    def __init__(self, nodes: NodeColumns, population: Population | None, followers: Sequence[Follower] = ()) -> None:
        self.nodes = nodes
        self.population = population
        self.followers = list(followers)  # Objects that are called for every pod
        # (bit, follower): called for pods whose `PodClass.concerned` has the bit.
        self.concerned: list[tuple[int, Follower]] = []
        # Called for pods with an allocation, for pods on trial (`PodInfo.is_guest`), and for `operating`.
        self.allocations: list[Follower] = []
        # Uids of pods in operating mode Reservation whose resources another pod may use.
        self.operating: set[str] = set()

    def every_follower(self) -> list[Follower]:
        """Return all followers, of every pod, of some pods, and of pods with allocations."""
        return [*self.followers, *(follower for _, follower in self.concerned), *self.allocations]

    def take(self, row: int, pod_info: PodInfo) -> None:
        """Count the pod on the node, and notify the followers."""
        self.nodes.take(row, pod_info.demand)
        if self.population is not None and pod_info.kind is not None:
            self.population.arrive(row, pod_info.kind)
        for follower in self.followers:
            follower.took(row, pod_info)
        pod_class = pod_info.pod_class
        for bit, follower in self.concerned:
            if pod_class is not None and pod_class.concerned & bit:
                follower.took(row, pod_info)
        if pod_info.allocation is not NOTHING or pod_info.is_guest or pod_info.uid in self.operating:
            for follower in self.allocations:
                follower.took(row, pod_info)

    def give(self, row: int, pod_info: PodInfo) -> None:
        """The inverse of `take`."""
        self.nodes.give(row, pod_info.demand)
        if self.population is not None and pod_info.kind is not None:
            self.population.leave(row, pod_info.kind)
        for follower in self.followers:
            follower.gave(row, pod_info)
        pod_class = pod_info.pod_class
        for bit, follower in self.concerned:
            if pod_class is not None and pod_class.concerned & bit:
                follower.gave(row, pod_info)
        if pod_info.allocation is not NOTHING or pod_info.is_guest or pod_info.uid in self.operating:
            for follower in self.allocations:
                follower.gave(row, pod_info)

    def parts_for(self, pod_class: PodClass, *, coupled: bool) -> "NodeAccounting":
        """An accounting of the same nodes with only the sums that filters of this class read. To try whether a pod fits
        after others leave: it takes and gives pods faster than the whole accounting. Sums that are left out do not
        change, so undo every trial before anything else reads them. `coupled`: whether the filters depend on pods on
        other nodes; then the population is kept, too.
        """
        followers = [follower for follower in self.followers if follower.may_refuse(pod_class)]
        parts = NodeAccounting(self.nodes, self.population if coupled else None, followers)
        parts.concerned = [each for each in self.concerned if each[1].may_refuse(pod_class)]
        parts.operating = self.operating
        parts.allocations = [each for each in self.allocations if each.may_refuse(pod_class)]
        return parts

    @contextmanager
    def trial(self) -> Generator[None]:
        """Keep cached filter results valid inside this context although pods are taken and given. The caller must undo
        its calls of `take` and `give` before the context ends.
        """
        with self.nodes.unrecorded():
            yield


NOBODY: Final = 1 << 40
"""Larger than any priority; stands for a node without pods."""


class LowestPriorities:
    """The lowest priority of the pods on each node, for preemption. The number of pods of each priority is counted."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[int, int]] = {}
        self._lowest: IntArray = np.full(64, NOBODY, np.int64)

    def lowest(self, capacity: int) -> IntArray:
        """Return the lowest priority of a pod on each node by its position, int64 (N,), N at least `capacity`. NOBODY,
        greater than every priority, stands for a node without pods.
        """
        self._grow(capacity)
        return self._lowest

    def may_refuse(self, pod_class: PodClass) -> bool:
        return False

    def took(self, row: int, pod_info: PodInfo) -> None:
        self._grow(row + 1)
        counts = self._counts.setdefault(row, {})
        counts[pod_info.priority] = counts.get(pod_info.priority, 0) + 1
        if pod_info.priority < self._lowest.item(row):
            self._lowest[row] = pod_info.priority

    def gave(self, row: int, pod_info: PodInfo) -> None:
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
