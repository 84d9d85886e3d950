"""Coscheduling's score for one more pod of a running job: nodes near the running pods are better.

Source:
    scheduler-core spec, 9 (elastic scale-out)
"""

from collections.abc import Mapping, Sequence

import numpy as np

from koord_scheduler.domain.columns.node_columns import IntArray
from koord_scheduler.domain.gang.placement import order_nodes
from koord_scheduler.domain.gang.topology import NetworkTopology


class RunningPeers:
    """Counts the running pods of each job per node. The annotation network-topology-selector names the job.

    The full key is `scheduling.koordinator.sh/network-topology-selector`.
    """

    def __init__(self) -> None:
        self._where: dict[str, tuple[str, str]] = {}
        self._counts: dict[str, dict[str, int]] = {}

    def of(self, selector: str) -> Mapping[str, int]:
        """Return node -> number of running pods with this network-topology-selector.

        A node without such pods has no entry.
        """
        return self._counts.get(selector, {})

    def put(self, uid: str, selector: str, node: str) -> None:
        """Record that the pod runs on the node. If `selector` or `node` is "", the pod is not counted."""
        self.drop(uid)
        if selector and node:
            self._where[uid] = (selector, node)
            nodes = self._counts.setdefault(selector, {})
            nodes[node] = nodes.get(node, 0) + 1

    def drop(self, uid: str) -> None:
        """Record that the pod no longer runs on any node. No-op if it is not counted."""
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
    """Return the score of each node: 100 for the best one, 0 for the last.

        100 - 100 * position // (N - 1); a single node has 100

    Args:
        topology: The network.
        nodes: Names of the candidates, shape (N,).
        existing: Node -> running pods with the pod's selector, see `RunningPeers`.

    Returns:
        int64 (N,), aligned with `nodes`.
    """
    positions = {node: position for position, node in enumerate(order_nodes(topology, nodes, existing))}
    last = max(len(nodes) - 1, 1)
    return np.array([100 - 100 * positions[node] // last for node in nodes], np.int64)
