"""On which node a pod is, as the facts of the control plane say, to judge what a node says about pods.

Source: reality spec, 6.2; decision 0049.
"""

from collections.abc import Callable

import msgspec

from koordcore.events.envelope import name_token
from koordcore.events.observation import NodeUsageReported, PodUsage
from koordcore.state.aggregates import PodSpecState, PodState
from koordcore.state.cluster import ClusterState


def node_of_pod(state: ClusterState, uid: str) -> str:
    """Return the token of the node on which a pod was placed or bound; "" for a pod without a node, or no pod."""
    placed = state.of_kind(PodState).get(uid)
    if placed is not None and placed.node:
        return name_token(placed.node)
    spec = state.of_kind(PodSpecState).get(uid)
    return name_token(spec.object.spec.node_name) if spec is not None else ""


def is_foreign(state: ClusterState, uid: str, token: str) -> bool:
    """Return whether a pod exists and is not on this node. So what the node says about it must not count. A pod that is
    not known, for example because it was deleted, is nobody's: what a node says about it concerns the node alone.
    """
    return uid in state.of_kind(PodSpecState) and node_of_pod(state, uid) != token


def is_elsewhere(state: ClusterState, uid: str, token: str) -> bool:
    """Return whether a pod exists and is on another node. A pod that has just left its node is on none."""
    return node_of_pod(state, uid) not in ("", token)


def own_report(
    state: ClusterState, token: str, report: NodeUsageReported, named: Callable[[str, str], str | None]
) -> tuple[NodeUsageReported, list[PodUsage]]:
    """Return a report without the pods that are on other nodes, and the samples of these pods.

    Args:
        token: Subject token of the reporting node.
        named: Returns the uid of the pod with a namespace and name; reports of stock agents have no uids.
    """
    own: list[PodUsage] = []
    foreign: list[PodUsage] = []
    for sample in report.pods:
        uid = sample.uid or named(sample.namespace, sample.name) or ""
        (foreign if is_elsewhere(state, uid, token) else own).append(sample)
    return (msgspec.structs.replace(report, pods=own) if foreign else report), foreign
