"""How many nodes the filter phase examines.

Source:
    scheduler-core spec, 1.1
"""

from typing import Final

MIN_FEASIBLE_NODES: Final = 100
"""Smaller clusters are examined in full, larger ones until at least so many feasible nodes are found."""
_MIN_ADAPTIVE_PERCENT: Final = 5


def feasible_nodes_to_find(nodes: int, percentage_of_nodes_to_score: int) -> int:
    """Return the number of feasible nodes after which the search stops.

        fewer than 100 nodes: all;  else max(100, N * p // 100) with p as configured, 0: max(5, 50 - N // 125)

    Args:
        nodes: N, after a PreFilter node set its size.

    Source:
        vectors scheduler/node_sampling
    """
    if nodes < MIN_FEASIBLE_NODES:
        return nodes
    percent = percentage_of_nodes_to_score or max(_MIN_ADAPTIVE_PERCENT, 50 - nodes // 125)
    return min(nodes, max(MIN_FEASIBLE_NODES, nodes * percent // 100))
