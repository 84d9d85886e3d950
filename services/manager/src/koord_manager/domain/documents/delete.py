"""`koord delete`: the facts that remove an object."""

from typing import NamedTuple

from koordcore.events.envelope import AggregateRef, Draft, name_token, namespaced_token
from koordcore.events.objects.mirror import (
    ConfigDeleted,
    NamespaceDeleted,
    NodeSpecDeleted,
    PodSpecDeleted,
    PriorityClassDeleted,
    WorkloadDeleted,
)
from koordcore.state.aggregates import ConfigState, NamespaceState, NodeSpecState, PriorityClassState

from koord_manager.domain.admission.options import Options
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.apply_custom import delete_custom


class Target(NamedTuple):
    """The object to delete; an empty namespace for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str


def decide_delete(view: ManagerView, target: Target, options: Options | None = None) -> list[Draft] | None:
    """Return the facts of one deletion, to append together, or None if there is no such object.

    The workload controller deletes the pods of a deleted workload. The scheduler returns what a deleted pod holds on
    its node.

    Raises:
        InvalidManifest: Admission refuses the deletion.
    """
    kind, namespace, name = target
    token = name_token(name)
    match kind:
        case "Pod":
            found = view.pod(namespace, name)
            if found is None:
                return None
            uid, spec = found
            return [Draft(AggregateRef("podspec", uid), PodSpecDeleted(namespace=namespace, name=name), spec.seq)]
        case "Deployment" | "Job":
            workload = view.workload(kind, namespace, name)
            if workload is None:
                return None
            uid, state = workload
            return [
                Draft(AggregateRef("workloadspec", uid), WorkloadDeleted(namespace=namespace, name=name), state.seq)
            ]
        case "Node":
            node = view.state.of_kind(NodeSpecState).get(token)
            if node is None or node.object is None:
                return None
            return [Draft(AggregateRef("nodespec", token), NodeSpecDeleted(name=name), node.seq)]
        case "ConfigMap":
            key = namespaced_token(namespace, name)
            config = view.state.of_kind(ConfigState).get(key)
            if config is None or config.object is None:
                return None
            return [Draft(AggregateRef("config", key), ConfigDeleted(namespace=namespace, name=name), config.seq)]
        case "Namespace":
            state = view.state.of_kind(NamespaceState).get(token)
            if state is None or state.object is None:
                return None
            return [Draft(AggregateRef("namespace", token), NamespaceDeleted(name=name), state.seq)]
        case "PriorityClass":
            priority_class = view.state.of_kind(PriorityClassState).get(token)
            if priority_class is None or priority_class.object is None:
                return None
            return [Draft(AggregateRef("priorityclass", token), PriorityClassDeleted(name=name), priority_class.seq)]
        case _:
            return delete_custom(view, kind, namespace, name, options or Options())
