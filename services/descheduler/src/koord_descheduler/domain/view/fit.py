"""Checks whether a pod fits a node: the native check, which returns all failures, and the upstream check.

`FitIndex` makes the native check of one pod against many nodes at once: free amounts are arrays with one row per node.
No check reserves room: several pods may fit the same free room.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from koordcore.protocol.objects import PodAffinityTerm
from koordcore.protocol.placement import first_untolerated, term_matches_one
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.protocol.selectors import is_matching
from numpy.typing import NDArray

from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView

NODE_SELECTOR: Final = "node_selector"
TAINT: Final = "taint"
INSUFFICIENT: Final = "insufficient_"
UNSCHEDULABLE: Final = "unschedulable"
ANTI_AFFINITY: Final = "anti_affinity"
_PODS: Final = "pods"
_BASIC: Final = (CPU, MEMORY)


def native_misfits(pod: PodView, node: NodeView, cluster: ClusterView) -> list[str]:
    """Codes of all reasons why a pod does not fit a node; empty if it fits (descheduler spec, 1.3).

    The codes are `node_selector`, `taint`, `insufficient_<resource>` and `unschedulable`. The number of pods is not
    checked. A pod that already runs on the node counts as one more pod.
    """
    misfits: list[str] = []
    if not meets_node_selection(pod, node):
        misfits.append(NODE_SELECTOR)
    if first_untolerated(node.taints, pod.object.spec.tolerations) is not None:
        misfits.append(TAINT)
    misfits += [INSUFFICIENT + name for name in _insufficient(pod, node, cluster)]
    if node.is_unschedulable:
        misfits.append(UNSCHEDULABLE)
    return misfits


def upstream_misfit(pod: PodView, node: NodeView, cluster: ClusterView) -> str:
    """Code of the first reason why a pod does not fit a node; "" if it fits (descheduler spec, 1.4).

    Other than the native check, it also compares the required anti-affinity of the pod with the pods on the node, and
    requires a free place for one more pod. If the pod already runs on the node, its resources are not checked.
    """
    if node.is_unschedulable:
        return UNSCHEDULABLE
    if not meets_node_selection(pod, node):
        return NODE_SELECTOR
    if first_untolerated(node.taints, pod.object.spec.tolerations) is not None:
        return TAINT
    if clashes_on_node(pod, node, cluster.unfinished_on(node.name)):
        return ANTI_AFFINITY
    if pod.node == node.name:
        return ""
    short = next(_insufficient(pod, node, cluster), None)
    if short is not None:
        return INSUFFICIENT + short
    if node.allocatable.get(_PODS, 0) - cluster.occupancy(node.name).pods <= 0:
        return INSUFFICIENT + _PODS
    return ""


def fits_upstream(pod: PodView, node: NodeView, cluster: ClusterView) -> bool:
    return not upstream_misfit(pod, node, cluster)


def meets_node_selection(pod: PodView, node: NodeView) -> bool:
    """Whether labels and name of a node meet node selector and required affinity of a pod (descheduler spec, 1.3)."""
    spec, labels = pod.object.spec, node.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return any(term_matches_one(term, labels, node.name) for term in affinity.required.node_selector_terms)


def anti_affinity_terms(pod: PodView) -> list[PodAffinityTerm]:
    affinity = pod.object.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return []
    return affinity.pod_anti_affinity.required


def is_selected(term: PodAffinityTerm, pod: PodView, other: PodView) -> bool:
    """Whether a term of `pod` selects `other`: by namespace, and by labels (descheduler spec, 1.4, 10.6).

    A term without namespaces selects the namespace of `pod`. A term without label selector selects nothing.
    """
    namespaces = term.namespaces or [pod.namespace]
    return other.namespace in namespaces and is_matching(term.label_selector, other.labels, missing=False)


def clashes_on_node(pod: PodView, node: NodeView, others: Iterable[PodView]) -> bool:
    """Whether required anti-affinity of a pod excludes one of the pods on a node (descheduler spec, 1.4).

    A term counts only if the node has its topology key. Pods with the name of the pod are not compared.
    """
    terms = [term for term in anti_affinity_terms(pod) if term.topology_key in node.labels]
    return bool(terms) and any(
        other.name != pod.name and is_selected(term, pod, other) for other in others for term in terms
    )


def _insufficient(pod: PodView, node: NodeView, cluster: ClusterView) -> Iterator[str]:
    """The resources of which the node has less left than the pod requests."""
    for name, amount in pod.requests.items():
        if amount > _free(node, name, cluster):
            yield name


def _free(node: NodeView, name: str, cluster: ClusterView) -> int:
    """Allocatable minus the requests of the unfinished pods: below 0 if they request more.

    A node without an extended resource has 0 left, even if a pod there requests it: a request of 0 fits.
    """
    if name not in node.allocatable and name not in _BASIC:
        return 0
    return node.allocatable.get(name, 0) - cluster.occupancy(node.name).requested.get(name, 0)


Mask = NDArray[np.bool_]
Column = NDArray[np.int64]
_MOST: Final = int(np.iinfo(np.int64).max)


class FitIndex:
    """Nodes in the order in which they are tried, with their free amounts, for the native check (descheduler spec,
    1.3).
    """

    def __init__(self, nodes: Sequence[NodeView], cluster: ClusterView) -> None:
        self.nodes = nodes
        self._cluster = cluster
        self._open: Mask = np.array([not node.is_unschedulable for node in nodes], dtype=np.bool_)
        self._free: dict[str, Column] = {}

    def fitting(self, pod: PodView, among: Mask | None = None) -> Iterator[int]:
        """Yield the positions of the nodes that a pod fits, in order.

        `among`: bool (N,) nodes to consider; None for all.
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
        """Whether a pod fits any of the nodes, except the one named `other_than`."""
        return any(self.nodes[position].name != other_than for position in self.fitting(pod))

    def free(self, resource: str) -> Column:
        """Allocatable minus requests of the unfinished pods: int64 (N,), below 0 on an overcommitted node.

        A quantity may have more than 64 bits, so amounts are cut to int64.
        """
        known = self._free.get(resource)
        if known is None:
            known = self._free[resource] = np.array(
                [max(-_MOST, min(_free(node, resource, self._cluster), _MOST)) for node in self.nodes], dtype=np.int64
            )
        return known
