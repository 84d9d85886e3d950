"""NodeResourcesBalancedAllocation: prefers nodes whose resources would be used evenly.

Source: scheduler-core spec, 5.3 (the formula of Kubernetes 1.35)
"""

from weakref import WeakKeyDictionary

import numpy as np

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows
from koord_scheduler.domain.columns.resource_names import is_scalar
from koord_scheduler.domain.config.kubernetes_args import NodeResourcesBalancedAllocationArgs
from koord_scheduler.domain.framework.extension_points import ROW_SCORE, ROW_STATES, SCORE
from koord_scheduler.domain.framework.node_points import Reads, RowFunction, RowStates
from koord_scheduler.domain.plugins.resources import scores
from koord_scheduler.domain.plugins.resources.single_rows import SharedScores, balanced


class NodeResourcesBalancedAllocation(scores.RawScores):
    """The plugin NodeResourcesBalancedAllocation: scores nodes higher whose resources would be used evenly. A container
    that states no request counts with 0. Extended resources that the pod does not request are left out.
    """

    name = "NodeResourcesBalancedAllocation"
    extension_points = (SCORE, ROW_SCORE, ROW_STATES)
    reads = Reads.LOAD

    def __init__(self, args: NodeResourcesBalancedAllocationArgs) -> None:
        self.args = args
        self._items: WeakKeyDictionary[PodClass, tuple[tuple[int, int], ...]] = WeakKeyDictionary()
        self._shared = SharedScores()

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return the scores of balanced use, 0..100; 100 if all resources are used in equal fractions. None if the pod
        requests none of the configured resources.
        """
        items = self._items_of(pod, nodes)
        if not items:
            return None
        columns = np.array([column for column, _ in items], np.intp)
        amounts = np.array([amount for _, amount in items], np.int64)
        requested = nodes.requested[columns[:, None], rows] + amounts[:, None]
        return scores.balanced_allocation(requested, nodes.allocatable[columns[:, None], rows])

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        items = self._items_of(pod, nodes)
        return self._shared.of(nodes, items, lambda: balanced(nodes, items)) if items else None

    def row_states(self, pod: PodClass, nodes: NodeColumns) -> RowStates:
        return RowStates(self._items_of(pod, nodes), score=self.row_score(pod, nodes))

    def _items_of(self, pod: PodClass, nodes: NodeColumns) -> tuple[tuple[int, int], ...]:
        """Return (column, amount) of each configured resource that counts for the pod. Empty: every score is 0."""
        items = self._items.get(pod)
        if items is None:
            amounts = [(each.name, max(0, pod.requests.get(each.name, 0))) for each in self.args.resources]
            counted = [(nodes.column(name), amount) for name, amount in amounts if amount or not is_scalar(name)]
            is_skipped = not any(amount for _, amount in amounts)
            items = self._items[pod] = () if is_skipped else tuple(counted)
        return items
