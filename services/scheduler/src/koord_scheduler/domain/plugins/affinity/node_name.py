"""NodeName: if the pod names a node, refuses all other nodes.

Source: scheduler-core spec, 5.5
"""

import numpy as np

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.extension_points import FILTER, TOLERATION_FILTER
from koord_scheduler.domain.framework.node_points import Reads


class NodeName:
    """The plugin NodeName: if the pod's spec names a node, refuses all other nodes."""

    name = "NodeName"
    extension_points = (FILTER, TOLERATION_FILTER)
    reads = Reads.SHAPE
    by_tolerations = True

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Refuse all nodes but the one that `spec.nodeName` names. None if the pod names no node."""
        if not pod.node_name:
            return None
        row = nodes.row(pod.node_name)
        return (rows != (-1 if row is None else row)).astype(np.int64)

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """Return True for all nodes: preemption cannot help, because it does not change the name of a node."""
        return np.ones(len(rows), np.bool_)

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        """Return the only reason: the node is not the one that the pod requests by name."""
        return ("node(s) didn't match the requested node name",)
