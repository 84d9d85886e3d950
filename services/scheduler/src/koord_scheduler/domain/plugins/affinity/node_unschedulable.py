"""NodeUnschedulable: refuses cordoned nodes.

Source:
    scheduler-core spec, 5.5
"""

from typing import Final

import numpy as np
from koordcore.protocol.objects import Taint
from koordcore.protocol.placement import is_tolerated

from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.extension_points import FILTER, TOLERATION_FILTER
from koord_scheduler.domain.framework.node_points import Reads
from koord_scheduler.domain.pods.equivalence_classes import PodClass

_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable:
    """The plugin NodeUnschedulable: refuses cordoned nodes.

    Pods that tolerate `node.kubernetes.io/unschedulable:NoSchedule` pass.
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
        """Return the only reason: the node is unschedulable."""
        return ("node(s) were unschedulable",)
