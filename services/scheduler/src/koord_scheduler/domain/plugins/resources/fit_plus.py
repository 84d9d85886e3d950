"""NodeResourcesFitPlus scores each resource by a strategy of its own. ScarceResourceAvoidance keeps pods away from
nodes with scarce resources that they do not request.

Source: scheduler-core spec, 11.4, 11.5
"""

from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from koordcore.protocol.resource_names import CPU, MEMORY

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import PODS_COLUMN, IntArray, NodeColumns, Rows
from koord_scheduler.domain.config.koordinator_args import NodeResourcesFitPlusArgs, ScarceResourceAvoidanceArgs
from koord_scheduler.domain.framework.extension_points import SCORE
from koord_scheduler.domain.framework.node_points import Reads
from koord_scheduler.domain.plugins.resources.scores import MAX_SCORE, RawScores

_NON_ZERO: Final = (CPU, MEMORY)


class _Item(NamedTuple):
    column: int
    non_zero: int | None  # Row of `NodeColumns.non_zero`; None if real requests count
    amount: int  # What the pod requests of it
    is_most: bool  # Whether its strategy is MostAllocated instead of LeastAllocated
    weight: int  # Its weight in the score


class NodeResourcesFitPlus(RawScores):
    """The plugin NodeResourcesFitPlus: scores each resource by its own strategy, and takes the weighted mean. Only
    configured resources that the pod requests count; without any, the score is 100. Containers without cpu or memory
    request count with defaults. A node that lacks a resource scores 0 for it.
    """

    name = "NodeResourcesFitPlus"
    extension_points = (SCORE,)
    reads = Reads.LOAD

    def __init__(self, args: NodeResourcesFitPlusArgs | None = None) -> None:
        self.args = args or NodeResourcesFitPlusArgs()
        self._items: WeakKeyDictionary[PodClass, tuple[_Item, ...]] = WeakKeyDictionary()

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        total, weights = np.zeros(len(rows), np.int64), 0
        for item in self._items_of(pod, nodes):
            held = nodes.requested[item.column] if item.non_zero is None else nodes.non_zero[item.non_zero]
            capacity = nodes.allocatable[item.column, rows]
            requested = held[rows] + item.amount
            used = np.minimum(requested, capacity) if item.is_most else np.maximum(capacity - requested, 0)
            total += used * MAX_SCORE // np.maximum(capacity, 1) * item.weight
            weights += item.weight
        return total // weights if weights else np.full(len(rows), MAX_SCORE, np.int64)

    def _items_of(self, pod: PodClass, nodes: NodeColumns) -> tuple[_Item, ...]:
        items = self._items.get(pod)
        if items is None:
            items = self._items[pod] = tuple(
                item
                for name, strategy in self.args.resources.items()
                if (item := _item(pod, nodes, name, strategy.weight, is_most=strategy.type == "MostAllocated")).amount
            )
        return items


def _item(pod: PodClass, nodes: NodeColumns, name: str, weight: int, *, is_most: bool) -> _Item:
    non_zero = _NON_ZERO.index(name) if name in _NON_ZERO else None
    amount = pod.requests.get(name, 0) if non_zero is None else pod.demand.non_zero[non_zero]
    return _Item(nodes.column(name), non_zero, max(0, amount), is_most, weight)


class ScarceResourceAvoidance(RawScores):
    """The plugin ScarceResourceAvoidance: prefers nodes without scarce resources that the pod does not request. The
    score is (|D| - |S|) * 100 // |D|. D are the resources of the node that the pod does not request; S are the scarce
    resources in D. The score is 100 if D or S is empty. The number of pods does not count as a resource.
    """

    name = "ScarceResourceAvoidance"
    extension_points = (SCORE,)
    reads = Reads.LOAD

    def __init__(self, args: ScarceResourceAvoidanceArgs | None = None) -> None:
        self.args = args or ScarceResourceAvoidanceArgs()

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        scarce = [nodes.column(name) for name in dict.fromkeys(self.args.resources)]
        unwanted = nodes.allocatable[:, rows] > 0
        unwanted[pod.demand.columns] = False
        unwanted[PODS_COLUMN] = False
        different = unwanted.sum(axis=0)
        avoided = different - unwanted[scarce].sum(axis=0)
        return np.where(avoided == different, MAX_SCORE, avoided * MAX_SCORE // np.maximum(different, 1))
