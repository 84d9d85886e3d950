"""The native check of one pod against many nodes at once.

Free amounts are arrays with one row per node, so that a pod costs a few array operations instead of a loop over nodes.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from koordcore.protocol.placement import first_untolerated
from numpy.typing import NDArray

from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.fit import meets_node_selection
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView

Mask = NDArray[np.bool_]
Column = NDArray[np.int64]
_MOST: Final = int(np.iinfo(np.int64).max)


class FitIndex:
    """Nodes with their free amounts. `fitting` returns the nodes that a pod fits by the native check.

    Args:
        nodes: The nodes, in the order in which they are tried.
        cluster: The cluster at the start of the round.

    Source:
        descheduler spec, 1.3
    """

    def __init__(self, nodes: Sequence[NodeView], cluster: ClusterView) -> None:
        self.nodes = nodes
        self._cluster = cluster
        self._open: Mask = np.array([not node.is_unschedulable for node in nodes], dtype=np.bool_)
        self._free: dict[str, Column] = {}

    def fitting(self, pod: PodView, among: Mask | None = None) -> Iterator[int]:
        """Yield the positions of the nodes that a pod fits, in order.

        Args:
            pod: The pod.
            among: bool (N,) nodes to consider; None for all.
        """
        mask = self._open if among is None else self._open & among
        for name, amount in pod.requests.items():
            mask = mask & (self.free(name) >= amount)
        tolerations = pod.object.spec.tolerations
        position = 0
        # argmax stops at the first True: usually the first node with room fits.
        while position < len(mask) and mask[position := position + int(mask[position:].argmax())]:
            node = self.nodes[position]
            if first_untolerated(node.taints, tolerations) is None and meets_node_selection(pod, node):
                yield position
            position += 1

    def fits_any(self, pod: PodView, *, other_than: str = "") -> bool:
        """Return whether a pod fits any of the nodes, except the node named `other_than`."""
        return any(self.nodes[position].name != other_than for position in self.fitting(pod))

    def free(self, resource: str) -> Column:
        """Return allocatable minus requests of the unfinished pods: int64 (N,), below 0 on an overcommitted node.

        A quantity may have more than 64 bits, so amounts are cut to int64.
        """
        known = self._free.get(resource)
        if known is None:
            known = self._free[resource] = np.array(
                [max(-_MOST, min(self._free_on(node, resource), _MOST)) for node in self.nodes], dtype=np.int64
            )
        return known

    def _free_on(self, node: NodeView, resource: str) -> int:
        return node.allocatable.get(resource, 0) - self._cluster.occupancy(node.name).requested.get(resource, 0)
