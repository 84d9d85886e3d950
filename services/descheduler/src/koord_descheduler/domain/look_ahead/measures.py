"""Measures of the spread of usage over a cluster and of its fragmentation, which a dry run shows before and after."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from koord_descheduler.domain.plugins.native.fragmentation_aware import imbalance
from koord_descheduler.domain.plugins.native.low_node_load.load import node_capacity
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeView

COMPARED: Final = ("cpu", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Shares of one resource over the nodes, in percent.

    Attributes:
        mean: Mean.
        deviation: Standard deviation.
        highest: Share of the node with the most.
    """

    mean: float
    deviation: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """The spread of usage and requests over the nodes of a cluster, and its fragmentation.

    Attributes:
        used: Resource -> spread of measured usage / capacity over the nodes with a report; absent if there are none.
        requested: Resource -> spread of requests / allocatable over all nodes that have the resource.
        fragmentation: Mean over the nodes of the imbalance between their resources (FragmentationAware), in percent.
    """

    used: Mapping[str, Spread]
    requested: Mapping[str, Spread]
    fragmentation: float


def measures_of(cluster: ClusterView) -> Measures:
    """Return the spread of usage and requests over the nodes of a cluster, and its fragmentation."""
    nodes = cluster.nodes
    requests = {node.name: cluster.occupancy(node.name).requested for node in nodes}
    used = {name: _spread([_used_share(node, name, cluster) for node in nodes]) for name in COMPARED}
    requested = {
        name: _spread([_share(requests[node.name].get(name, 0), node.allocatable.get(name, 0)) for node in nodes])
        for name in COMPARED
    }
    uneven = [imbalance(requests[node.name], node, COMPARED) for node in nodes]
    return Measures(
        used={name: spread for name, spread in used.items() if spread is not None},
        requested={name: spread for name, spread in requested.items() if spread is not None},
        fragmentation=100 * float(np.mean(uneven)) if uneven else 0.0,
    )


def _used_share(node: NodeView, resource: str, cluster: ClusterView) -> float | None:
    metric = cluster.metrics.get(node.name)
    if metric is None:
        return None
    total = metric.system.get(resource, 0) + sum(usage.get(resource, 0) for usage in metric.pods.values())
    return _share(total, node_capacity(node).get(resource, 0))


def _share(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole > 0 else None


def _spread(shares: list[float | None]) -> Spread | None:
    known = [share for share in shares if share is not None]
    if not known:
        return None
    return Spread(mean=float(np.mean(known)), deviation=float(np.std(known)), highest=max(known))
