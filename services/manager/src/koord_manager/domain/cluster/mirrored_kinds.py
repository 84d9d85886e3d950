"""The kinds of objects that the log mirrors, with their aggregates, their states and the facts of their deletion.

All custom resources share one kind of aggregate, so their kinds are not in `AGGREGATES`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from koordcore.events import objects
from koordcore.events.envelope import AggregateRef, Event, name_token, namespaced_token
from koordcore.events.objects import CustomObjectDeleted
from koordcore.protocol.objects import ConfigMap, Namespace, Node, Pod, PriorityClass, Workload
from koordcore.state.aggregates import (
    ConfigState,
    CustomObjectState,
    NamespaceState,
    NodeSpecState,
    PodSpecState,
    PriorityClassState,
    WorkloadState,
)
from koordcore.state.fold import AggregateState
from koordcore.state.registry import STATE_TYPES

from koord_manager.domain.cluster.view import ManagerView

KubeObject = Pod | Node | ConfigMap | Namespace | PriorityClass | Workload
AGGREGATES: Final[Mapping[str, str]] = {
    "Pod": "podspec",
    "Node": "nodespec",
    "ConfigMap": "config",
    "Namespace": "namespace",
    "PriorityClass": "priorityclass",
    "Deployment": "workloadspec",
    "Job": "workloadspec",
}
"""Kind of an object -> kind of its aggregate."""
CUSTOM: Final = "customspec"
"""Kind of the aggregates of all custom resources."""
BUDGETS: Final = "poddisruptionbudgets"


def objects_of_kind(view: ManagerView, kind: str) -> Iterator[tuple[AggregateRef, KubeObject | dict[str, Any]]]:
    """Yield every existing mirrored object of a kind. If it is not in `AGGREGATES`, yield all custom resources."""
    for ref, found in objects_of_aggregate(view, AGGREGATES.get(kind, CUSTOM)):
        if not isinstance(found, Workload) or found.kind == kind:
            yield ref, found


def objects_of_aggregate(
    view: ManagerView, aggregate: str
) -> Iterator[tuple[AggregateRef, KubeObject | dict[str, Any]]]:
    """Yield every existing mirrored object of a kind of aggregate. Facts may be folded between two steps."""
    for id_, state in list(view.state.of_kind(STATE_TYPES[aggregate]).items()):
        found = object_of(state)
        if found is not None:
            yield AggregateRef(aggregate, id_), found


def object_of(state: AggregateState | None) -> KubeObject | dict[str, Any] | None:
    """Return the object that a state mirrors; None if it was deleted, or if aggregates of this kind mirror none."""
    match state:
        case PodSpecState() | NodeSpecState() | ConfigState() | NamespaceState() | PriorityClassState():
            return state.object
        case WorkloadState() | CustomObjectState():
            return state.object
        case _:
            return None


def ref_of_name(view: ManagerView, kind: str, namespace: str, name: str) -> AggregateRef | None:
    """Return the aggregate of an object of a kind in `AGGREGATES`.

    Pods and workloads are identified by their uid in the log. Return None if no existing one has this name. Objects of
    the other kinds need not exist.
    """
    found = view.pod(namespace, name) if kind == "Pod" else None
    if kind in ("Deployment", "Job"):
        found = view.workload(kind, namespace, name)
    if kind in ("Pod", "Deployment", "Job"):
        return AggregateRef(AGGREGATES[kind], found[0]) if found is not None else None
    id_ = namespaced_token(namespace, name) if kind == "ConfigMap" else name_token(name)
    return AggregateRef(AGGREGATES[kind], id_)


def deleted(kind: str, namespace: str, name: str) -> Event:
    """Return the event that an object was deleted; that of a custom resource if the kind is not in `AGGREGATES`."""
    match kind:
        case "Pod":
            return objects.PodSpecDeleted(namespace=namespace, name=name)
        case "Deployment" | "Job":
            return objects.WorkloadDeleted(namespace=namespace, name=name)
        case "ConfigMap":
            return objects.ConfigDeleted(namespace=namespace, name=name)
        case "Node":
            return objects.NodeSpecDeleted(name=name)
        case "Namespace":
            return objects.NamespaceDeleted(name=name)
        case "PriorityClass":
            return objects.PriorityClassDeleted(name=name)
        case _:
            return CustomObjectDeleted(kind=kind, namespace=namespace, name=name)
