"""Codes of the reasons why a pod is not evicted, and the checks that several evictors share.

The codes appear in records, explanations and metrics.
"""

from collections.abc import Iterator
from typing import Final

from koordcore.events.descheduling import Inputs, Number
from koordcore.protocol.selectors import Selector

from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.fit import fits_upstream
from koord_descheduler.domain.view.pods import PodView

DAEMON_SET: Final = "daemonset"
MIRROR: Final = "mirror"
STATIC: Final = "static"
TERMINATING: Final = "terminating"
BARE_POD: Final = "bare_pod"
SYSTEM_CRITICAL: Final = "system_critical"
PRIORITY_THRESHOLD: Final = "priority_threshold"
LOCAL_STORAGE: Final = "local_storage"
PVC: Final = "pvc"
LABEL_SELECTOR: Final = "label_selector"
MAX_EVICTION_COST: Final = "max_eviction_cost"
DO_NOT_DISRUPT: Final = "do_not_disrupt"
NAMESPACE: Final = "namespace"
NODE_FIT: Final = "node_fit"
NO_EVICTION: Final = "no_eviction"
NO_PDB: Final = "no_pdb"
RESOURCE_CLAIMS: Final = "resource_claims"
MIN_REPLICAS: Final = "min_replicas"
MIN_POD_AGE: Final = "min_pod_age"
NAMESPACE_LABEL_SELECTOR: Final = "namespace_label_selector"


def priority_number(pod: PodView, threshold: int | None) -> Inputs:
    """The priority of a pod, and the threshold that it must not reach.

    Empty if there is no threshold, or no priority.
    """
    if threshold is None or pod.priority is None:
        return {}
    return {PRIORITY_THRESHOLD: Number(value=pod.priority, limit=threshold)}


def identity_refusals(pod: PodView) -> Iterator[str]:
    """The reasons against a pod that no argument switches off: mirror, static or terminating."""
    if pod.is_mirror:
        yield MIRROR
    if pod.is_static:
        yield STATIC
    if pod.is_terminating:
        yield TERMINATING


class NodeFit:
    """Whether a pod would fit another of the selected nodes, by the rules of the Kubernetes descheduler.

    Source:
        descheduler spec, 6.1 (`nodeFit`)
    """

    def __init__(self, nodes: Selector) -> None:
        self._nodes = nodes

    def has_place(self, pod: PodView, cluster: ClusterView) -> bool:
        """Only ready, selected nodes other than the pod's own count."""
        return any(
            fits_upstream(pod, node, cluster)
            for node in cluster.nodes
            if node.name != pod.node and node.is_ready and self._nodes.matches(node.labels)
        )
