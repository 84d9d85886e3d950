"""The cluster as the log has it: the view of a folded state.

Source:
    descheduler spec, 1.2, 7.8, 14
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar, cast

import msgspec
from koordcore.protocol.annotations.allocation import allocation_annotations
from koordcore.protocol.kube_struct import KubeStruct
from koordcore.protocol.objects import Node, Pod, object_from_json
from koordcore.protocol.pod_status import PodCondition
from koordcore.protocol.scheduling_objects import PersistentVolumeClaim, PodDisruptionBudget
from koordcore.state import ClusterState
from koordcore.state.aggregates import (
    CustomObjectState,
    NamespaceState,
    NodeAgentState,
    NodePolicyState,
    NodeSpecState,
    PodSpecState,
    PodState,
    PriorityClassState,
    WorkloadState,
)
from koordcore.state.node_policy import decided_annotations, lent_resources
from koordcore.values.allocation import NOTHING

from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.metrics import NodeMetric
from koord_descheduler.domain.view.nodes import NodeView, node_view
from koord_descheduler.domain.view.pods import PodView, pod_view
from koord_descheduler.domain.view.workloads import WorkloadView

_READY: Final = "Ready"
_RUNNING: Final = "Running"
_PENDING: Final = "Pending"
_NO_SCALE: Final = "Job"
"""Kind of controller that has no scale: the number of its pods is not a number of replicas."""

K = TypeVar("K", bound=KubeStruct)


def view_of_state(state: ClusterState, metrics: Mapping[str, NodeMetric], now: float) -> ClusterView:
    """Return the cluster of a folded log. Nodes are ordered by name, pods by their arrival.

    Args:
        state: The folded log.
        metrics: Name of a node -> its latest usage report. Reports are not facts of the log.
        now: Unix seconds.

    Raises:
        InvalidInput: A quantity of an object is invalid. Admission refuses such objects.
    """
    budgets: dict[str, list[PodDisruptionBudget]] = {}
    for budget in _objects(state, "PodDisruptionBudget", PodDisruptionBudget):
        budgets.setdefault(budget.metadata.namespace, []).append(budget)
    claims = _objects(state, "PersistentVolumeClaim", PersistentVolumeClaim)
    namespaces = state.of_kind(NamespaceState).values()
    classes = state.of_kind(PriorityClassState).values()
    return ClusterView(
        now=now,
        nodes=tuple(sorted(_nodes(state), key=lambda node: node.name)),
        pods=tuple(_pods(state)),
        namespaces={each.object.metadata.name: each.object.metadata.labels for each in namespaces if each.object},
        claims={(claim.metadata.namespace, claim.metadata.name): claim for claim in claims},
        budgets=budgets,
        priority_classes={each.object.metadata.name: each.object.value for each in classes if each.object},
        metrics=metrics,
        workloads=_workloads(state),
    )


def _nodes(state: ClusterState) -> Iterator[NodeView]:
    policies = state.of_kind(NodePolicyState)
    for token, spec in state.of_kind(NodeSpecState).items():
        if spec.object is not None:
            policy = policies.get(token)
            yield node_view(spec.object if policy is None else _with_policy(spec.object, policy))


def _with_policy(node: Node, policy: NodePolicyState) -> Node:
    """Return a node with the resources and annotations that the manager decided."""
    lent = {name: str(amount) for name, amount in lent_resources(policy).items()}
    annotations = decided_annotations(policy)
    if not lent and not annotations:
        return node
    status = msgspec.structs.replace(
        node.status, allocatable={**node.status.allocatable, **lent}, capacity={**node.status.capacity, **lent}
    )
    metadata = msgspec.structs.replace(node.metadata, annotations={**node.metadata.annotations, **annotations})
    return msgspec.structs.replace(node, metadata=metadata, status=status)


def _pods(state: ClusterState) -> Iterator[PodView]:
    placements = state.of_kind(PodState)
    running = {uid for agent in state.of_kind(NodeAgentState).values() for uid in agent.running}
    for uid, spec in sorted(state.of_kind(PodSpecState).items(), key=lambda each: each[1].added_seq):
        placed = placements.get(uid)
        pod = spec.object
        if not pod.metadata.uid or not pod.metadata.creation_timestamp:
            created = pod.metadata.creation_timestamp or spec.added_at
            pod = _with_metadata(pod, uid=uid, creation_timestamp=created)
        if placed is not None and placed.allocation is not NOTHING:
            written = allocation_annotations(placed.allocation, pod.metadata.annotations)
            pod = _with_metadata(pod, annotations={**pod.metadata.annotations, **written})
        yield pod_view(_as_running(pod) if uid in running else pod, placed.node if placed and placed.node else None)


def _with_metadata(pod: Pod, **changes: Any) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **changes))


def _as_running(pod: Pod) -> Pod:
    """Return a pod that an agent runs as running and ready. Without Kubernetes nobody writes its status."""
    status = pod.status
    if status.phase not in ("", _PENDING) or any(each.type == _READY for each in status.conditions):
        return pod
    ready = PodCondition(type=_READY, status="True")
    status = msgspec.structs.replace(status, phase=_RUNNING, conditions=[*status.conditions, ready])
    return msgspec.structs.replace(pod, status=status)


def _objects(state: ClusterState, kind: str, struct: type[K]) -> list[K]:
    found = (each.object for each in state.of_kind(CustomObjectState).values())
    return [object_from_json(each, struct) for each in found if each is not None and each.get("kind") == kind]


def _workloads(state: ClusterState) -> dict[str, WorkloadView]:
    """Return uid of a controller -> its workload. A ReplicaSet of a Deployment belongs to the Deployment.

    Source:
        descheduler spec, 7.8
    """
    replicas: dict[str, int] = {}
    members: dict[str, list[str]] = {}
    parents: dict[str, str] = {}
    for uid, stored in state.of_kind(WorkloadState).items():
        if stored.object.kind != _NO_SCALE:
            replicas[uid] = stored.object.replicas
            owners = stored.object.metadata.owner_references
            parents[uid] = next((owner.uid for owner in owners if owner.controller), "")
    for stored in state.of_kind(CustomObjectState).values():
        document = stored.object or {}
        spec, metadata = document.get("spec"), document.get("metadata")
        if isinstance(spec, dict) and isinstance(metadata, dict):
            count = cast("dict[str, object]", spec).get("replicas")
            written = cast("dict[str, Any]", metadata)
            if isinstance(count, int) and written.get("uid"):
                replicas[written["uid"]] = count
                owners = cast("list[dict[str, Any]]", written.get("ownerReferences") or [])
                parents[written["uid"]] = next((owner["uid"] for owner in owners if owner.get("controller")), "")
    tops = {uid: parent if (parent := parents.get(uid, "")) in replicas else uid for uid in replicas}
    for uid, top in tops.items():
        members.setdefault(top, []).append(uid)
    return {uid: WorkloadView(replicas[top], tuple(members[top])) for uid, top in tops.items()}
