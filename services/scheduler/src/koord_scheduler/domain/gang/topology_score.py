"""Coscheduling's score for a single pod of a running job: nodes near the others first.

Source:
    scheduler-core spec, 9 (elastic scale-out)
"""

from collections.abc import Mapping, Sequence

import numpy as np

from koord_scheduler.domain.columns.node_columns import IntArray
from koord_scheduler.domain.gang.placement import order_nodes
from koord_scheduler.domain.gang.topology import NetworkTopology


class RunningPeers:
    """Running pods by their network-topology-selector: selector -> node -> number of pods."""

    def __init__(self) -> None:
        self._where: dict[str, tuple[str, str]] = {}
        self._counts: dict[str, dict[str, int]] = {}

    def of(self, selector: str) -> Mapping[str, int]:
        """Node -> running pods with this selector; nodes without any are absent."""
        return self._counts.get(selector, {})

    def put(self, uid: str, selector: str, node: str) -> None:
        """Record that the pod runs on the node. Without a selector or a node, it is a peer of no pod."""
        self.drop(uid)
        if selector and node:
            self._where[uid] = (selector, node)
            nodes = self._counts.setdefault(selector, {})
            nodes[node] = nodes.get(node, 0) + 1

    def drop(self, uid: str) -> None:
        """Record that the pod runs on no node."""
        where = self._where.pop(uid, None)
        if where is None:
            return
        selector, node = where
        nodes = self._counts[selector]
        nodes[node] -= 1
        if nodes[node] == 0:
            del nodes[node]
        if not nodes:
            del self._counts[selector]


def scale_out_scores(topology: NetworkTopology, nodes: Sequence[str], existing: Mapping[str, int]) -> IntArray:
    """100 for the best node down to 0 for the last: 100 - 100 * position // (N - 1); a single node has 100.

    Args:
        nodes: Names of the candidates, shape (N,).
        existing: Node -> running pods with the pod's selector, see `RunningPeers`.

    Returns:
        int64 (N,), aligned with nodes.
    """
    positions = {node: position for position, node in enumerate(order_nodes(topology, nodes, existing))}
    last = max(len(nodes) - 1, 1)
    return np.array([100 - 100 * positions[node] // last for node in nodes], np.int64)
