"""TaintToleration: taints NoSchedule and NoExecute refuse nodes, PreferNoSchedule lowers their score. NodeUnschedulable
refuses cordoned nodes, as if they had a taint. Nodes share few distinct sets of taints (`NodeColumns.taint_sets`). Each
set is evaluated once per pod class.

Source: scheduler-core spec, 5.4, 5.5
"""

from typing import Final

import numpy as np
from koordcore.protocol.objects import Taint
from koordcore.protocol.placement import TolerationIndex, is_tolerated

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.framework.extension_points import FILTER, ROW_SCORE, SCORE, TOLERATION_FILTER
from koord_scheduler.domain.framework.node_points import Reads, RowFunction

_TAINT_BITS: Final = 16


class TaintToleration:
    """The plugin TaintToleration: refuses nodes with untolerated taints, and scores by PreferNoSchedule taints. A
    filter code combines the id of the set of taints and the index of the taint.
    """

    name = "TaintToleration"
    extension_points = (FILTER, TOLERATION_FILTER, SCORE, ROW_SCORE)
    reads = Reads.SHAPE
    by_tolerations = True
    normalizes = True

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Refuse nodes with a NoSchedule or NoExecute taint that the pod does not tolerate. The code identifies the
        taint.
        """
        sets = nodes.taint_set[rows].astype(np.intp)
        codes = np.zeros(len(nodes.taint_sets.sets), np.int64)
        tolerations = TolerationIndex(pod.tolerations)
        for set_id in set(row_list(sets)):
            index = tolerations.first_untolerated(nodes.taint_sets.sets[set_id])
            if index is not None:
                codes[set_id] = (set_id << _TAINT_BITS) | index
        return codes[sets] if codes.any() else None

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """Return True for all nodes: preemption cannot help, because it does not remove a taint."""
        return np.ones(len(rows), np.bool_)

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        taint = nodes.taint_sets.sets[code >> _TAINT_BITS][code & ((1 << _TAINT_BITS) - 1)]
        return (f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}",)

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        sets = nodes.taint_set[rows].astype(np.intp)
        counts = np.zeros(len(nodes.taint_sets.sets), np.int64)
        tolerations = TolerationIndex(pod.tolerations)
        for set_id in set(row_list(sets)):
            counts[set_id] = tolerations.intolerable_preferences(nodes.taint_sets.sets[set_id])
        return counts[sets] if counts.any() else None

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        tolerations = TolerationIndex(pod.tolerations)

        def score(row: int) -> int:
            return tolerations.intolerable_preferences(nodes.taint_sets.sets[nodes.taint_set.item(row)])

        return score

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        """Return scores within 0..100: 100 - 100 * raw // high, so that the fewest taints score best. 100 if `high` is
        0.
        """
        if high == 0:
            return np.full_like(raw, 100)
        return 100 - 100 * raw // high


_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable:
    """The plugin NodeUnschedulable: refuses cordoned nodes. Pods that tolerate
    `node.kubernetes.io/unschedulable:NoSchedule` pass.
    """

    name = "NodeUnschedulable"
    extension_points = (FILTER, TOLERATION_FILTER)
    reads = Reads.SHAPE
    by_tolerations = True

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Refuse cordoned nodes. None if the pod tolerates the taint of cordoned nodes."""
        if is_tolerated(_CORDON, pod.tolerations):
            return None
        return nodes.unschedulable[rows].astype(np.int64)

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """Return True for all nodes: preemption cannot help, because it does not uncordon a node."""
        return np.ones(len(rows), np.bool_)

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        return ("node(s) were unschedulable",)
