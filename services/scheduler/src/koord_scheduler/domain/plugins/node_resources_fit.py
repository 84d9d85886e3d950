"""Refuses nodes without room, prefers nodes by how much they have left. source    scheduler-core spec, 5.2 and 5.3

The number of pods is treated as one more resource, of which every pod takes one. Batch resources are resources like
any other.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY

from koord_scheduler.domain.columns import PODS_COLUMN, Demand, IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.plugins import resource_scores
from koord_scheduler.domain.plugins.interface import Reads
from koord_scheduler.domain.plugins.resource_scores import ShapePoint
from koord_scheduler.domain.templates import PodTemplate

StrategyType = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]

_MOST_REASONS: Final = 46
"""Codes have 48 bits: a pod with more resources than this shares the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitArgs:
    """NodeResourcesFitArgs. resources: name and weight, in order. The default is the shipped profile's.

    source    scheduler-core spec, 4 and 4.1
    """

    strategy: StrategyType = "LeastAllocated"
    resources: tuple[tuple[str, int], ...] = ((CPU, 1), (MEMORY, 1), (BATCH_CPU, 1), (BATCH_MEMORY, 1))
    shape: tuple[ShapePoint, ...] = (ShapePoint(0, 0), ShapePoint(100, 10))
    ignored_resources: frozenset[str] = frozenset()
    ignored_resource_groups: frozenset[str] = frozenset()

    def ignores(self, resource: str) -> bool:
        """Whether the filter passes over it: only resources with a domain outside kubernetes.io can be ignored."""
        if not can_be_ignored(resource):
            return False
        return resource in self.ignored_resources or resource.partition("/")[0] in self.ignored_resource_groups


def can_be_ignored(resource: str) -> bool:
    """Has a domain outside kubernetes.io. source    scheduler-core spec, 5.2 (4)"""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


class NodeResourcesFit:
    """Filter and score by resources. A code has bit j + 1 set when item j of the pod's demand is short."""

    name = "NodeResourcesFit"
    reads = Reads.LOAD
    normalizes = False

    def __init__(self, args: FitArgs | None = None) -> None:
        self.args = args or FitArgs()
        self._can_ignore = bool(self.args.ignored_resources or self.args.ignored_resource_groups)

    def filter(self, pod: PodTemplate, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """See `FilterPlugin.filter`; all shortages are told, not only the first."""
        demand = pod.demand
        columns, amounts, bits = demand.columns, demand.amounts, _bits(len(demand.columns))
        if self._can_ignore:
            kept = np.array([not self.args.ignores(nodes.resources[column]) for column in row_list(columns)])
            columns, amounts, bits = columns[kept], amounts[kept], bits[kept]
        short = amounts[:, None] > nodes.free[columns[:, None], rows]
        if not short.any():
            return None
        codes = np.zeros(len(rows), np.int64)
        for bit, lacking in zip(bits.tolist(), short, strict=True):
            codes |= np.where(lacking, bit, 0)
        return codes

    def reasons(self, pod: PodTemplate, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        """See `FilterPlugin.reasons`."""
        columns = row_list(pod.demand.columns)
        return tuple(
            "Too many pods" if column == PODS_COLUMN else f"Insufficient {nodes.resources[column]}"
            for index, column in enumerate(columns)
            if index < _MOST_REASONS and code >> (index + 1) & 1
        )

    def is_unresolvable(self, pod: PodTemplate, nodes: NodeColumns, row: int) -> bool:
        """Whether even the empty node would be too small: then no preemption helps."""
        return any(
            amount > int(nodes.allocatable[column, row])
            for column, amount in pod.demand.pairs
            if column != PODS_COLUMN and not self.args.ignores(nodes.resources[column])
        )

    def score(self, pod: PodTemplate, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """The strategy's score, already within 0..100."""
        items = self._items(pod.demand, nodes)
        if not items:
            return None
        columns = np.array([column for column, _, _ in items], np.intp)
        requested = nodes.requested[columns[:, None], rows]
        for index, (column, amount, _) in enumerate(items):
            resource = nodes.resources[column]
            if resource == CPU:
                requested[index] = nodes.non_zero[0, rows]
            elif resource == MEMORY:
                requested[index] = nodes.non_zero[1, rows]
            requested[index] += amount
        capacity = nodes.allocatable[columns[:, None], rows]
        weights = np.array([weight for _, _, weight in items], np.int64)
        match self.args.strategy:
            case "LeastAllocated":
                return resource_scores.least_allocated(requested, capacity, weights)
            case "MostAllocated":
                return resource_scores.most_allocated(requested, capacity, weights)
            case "RequestedToCapacityRatio":
                return resource_scores.requested_to_capacity_ratio(requested, capacity, weights, self.args.shape)

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        """As it is."""
        return raw

    def _items(self, demand: Demand, nodes: NodeColumns) -> list[tuple[int, int, int]]:
        """(column, amount of the pod, weight) of each configured resource that counts for the pod."""
        items: list[tuple[int, int, int]] = []
        for resource, weight in self.args.resources:
            if resource == CPU:
                amount = demand.non_zero[0]
            elif resource == MEMORY:
                amount = demand.non_zero[1]
            else:
                amount = max(0, demand.requests.get(resource, 0))
                if amount == 0 and _is_scalar(resource):
                    continue
            items.append((nodes.column(resource), amount, weight))
        return items


def _is_scalar(resource: str) -> bool:
    """Neither cpu, memory nor ephemeral-storage: counted by scores only for pods that request it."""
    return "/" in resource or resource.startswith(("hugepages-", "attachable-volumes-"))


def _bits(count: int) -> IntArray:
    return np.int64(1) << (1 + np.minimum(np.arange(count, dtype=np.int64), _MOST_REASONS - 1))
