"""Builds the view of the cluster from the folded log, and keeps it current with little work per event.

Views of nodes and pods are made again only for objects that changed. `ViewBuilder.view` puts them together. After a
start, all objects count as changed: `refresh` makes their views in pieces, so that other work runs in between.

The views have the decisions of the log: resources that the manager publishes, CPUs that the scheduler gave. With an API
server the objects have these themselves; without one only the log has them (descheduler spec, 1.2).
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, Final

import msgspec
from koordcore.events.envelope import AggregateRef, Event, StoredEvent, name_from_token, name_token
from koordcore.events.gateway import PodEvicted
from koordcore.events.objects import PodSpecAdded, PodSpecChanged, PodSpecDeleted, plural_of
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol.annotations.allocation import allocation_annotations
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.priority import priority_value
from koordcore.protocol.scheduling_objects import PodDisruptionBudget
from koordcore.protocol.storage import PersistentVolumeClaim
from koordcore.state import ClusterState, aggregates
from koordcore.state.aggregates import NodePolicyState, PodSpecState, PodState, policy_annotations, policy_resources
from koordcore.state.index import CustomObjects, NewestReports, PodIndex, PodKeys, priority_classes
from koordcore.state.pods_of_nodes import own_report
from koordcore.values.allocation import NOTHING
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.view.cluster import DEVICES, POD_GROUPS, ClusterView, gpu_inventory
from koord_descheduler.domain.view.disruptions import Disruptions, disruptions_of
from koord_descheduler.domain.view.nodes import NodeMetric, NodeView, metric_of_report, node_view
from koord_descheduler.domain.view.orders import PodOrder
from koord_descheduler.domain.view.pods import PodView, SharedParts, pod_view
from koord_descheduler.domain.view.workloads import WITH_REPLICAS, WorkloadIndex, WorkloadView, workload_index


def decided_node(node: Node, policy: NodePolicyState | None) -> Node:
    """The node with the resources and annotations that the manager has decided for it."""
    if policy is None:
        return node
    lent = {name: str(amount) for name, amount in policy_resources(policy).items()}
    annotations = policy_annotations(policy)
    if not lent and not annotations:
        return node
    status = msgspec.structs.replace(
        node.status, allocatable={**node.status.allocatable, **lent}, capacity={**node.status.capacity, **lent}
    )
    metadata = msgspec.structs.replace(node.metadata, annotations={**node.metadata.annotations, **annotations})
    return msgspec.structs.replace(node, metadata=metadata, status=status)


def decided_pod(spec: PodSpecState, placed: PodState | None) -> Pod:
    """The pod with the annotations of its allocation and a creation time, as an API server would show it."""
    changes: dict[str, Any] = {}
    metadata = spec.object.metadata
    if not metadata.creation_timestamp:
        changes["creation_timestamp"] = spec.added_at
    if placed is not None and placed.allocation is not NOTHING:
        written = allocation_annotations(placed.allocation, metadata.annotations)
        if written:
            changes["annotations"] = {**metadata.annotations, **written}
    if not changes:
        return spec.object
    return msgspec.structs.replace(spec.object, metadata=msgspec.structs.replace(metadata, **changes))


def with_priority_value(pod: Pod) -> Pod:
    """The pod with the default value of its priority class, if its own value is absent or zero (protocol spec, 2.2
    (8)).
    """
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority_value(pod)))


KINDS: Final = (
    "podspec",
    "nodespec",
    "pod",
    "nodepolicy",
    "nodestate",
    "namespace",
    "priorityclass",
    "workloadspec",
    "customspec",
    "eviction",
    "node",
    "reservation",
    "drain",
    "draingroup",
    "migration",
    "descheduling",
    "repack",
    "descheduler",
)
"""Aggregate kinds that the descheduler folds."""
BUDGETS: Final = "poddisruptionbudgets"
CLAIMS: Final = "persistentvolumeclaims"


class ViewBuilder:
    """The folded state of the cluster, with the views of its nodes and pods.

    With `replaces_priority`, pods without a priority value get that of their class (gate PriorityTransformer).
    """

    def __init__(self, *, replaces_priority: bool = False) -> None:
        self._replaces_priority = replaces_priority
        self.state = ClusterState()  # The folded state. Only `apply`, `skip` and `load` change it.
        # Aggregate of an object that is not valid -> reason. Such objects are left out of views.
        self.unreadable: dict[str, str] = {}
        self._pods: dict[str, PodView] = {}
        self._nodes: dict[str, NodeView] = {}
        self._changed_pods: set[str] = set()
        self._changed_nodes: set[str] = set()
        self.customs = CustomObjects(self.state, self.unreadable)
        self._index = PodIndex()
        self._evicted: set[str] = set()
        """Uids of the pods whose eviction has succeeded, but whose deletion is not folded yet."""
        self._order = PodOrder()
        self._metrics = NewestReports[NodeMetric]()
        self._workloads = WorkloadIndex()
        self._parts = SharedParts()
        self._is_restored = False
        """Whether pods of a snapshot have not been viewed yet. They share no parts."""

    def load(self, state: ClusterState) -> None:
        """Replace the folded state. All objects count as changed. Usage reports stay."""
        self.state = state
        self._pods.clear()
        self._nodes.clear()
        self._evicted.clear()
        self.unreadable.clear()
        self.customs = CustomObjects(state, self.unreadable)
        self._index = PodIndex()
        self._changed_pods = set(state.of_kind(aggregates.PodSpecState))
        self._changed_nodes = set(state.of_kind(aggregates.NodeSpecState))
        self._order = PodOrder()
        self._workloads = workload_index(state)
        self._is_restored = True

    def apply(self, stored: StoredEvent) -> Event | None:
        """Return the decoded event; None if it was ignored.

        Raises:
            UnreadableEvent: The event cannot be decoded. The state is unchanged.
        """
        ref = stored.ref
        before = self._running(ref.id) if ref.kind == "nodestate" else frozenset[str]()
        event = self.state.apply(stored)
        if isinstance(event, PodSpecAdded | PodSpecChanged):
            self._parts.share(event.object)
        if ref.kind in ("podspec", "pod"):
            self._changed_pods.add(ref.id)
        elif ref.kind in ("nodespec", "nodepolicy"):
            self._changed_nodes.add(ref.id)
        elif ref.kind == "customspec":
            self.customs.changed(ref.id)
            if plural_of(ref.id) in WITH_REPLICAS:
                self._workloads.note_custom(ref.id, self.state.of_kind(aggregates.CustomObjectState).get(ref.id))
        elif ref.kind == "workloadspec":
            self._workloads.note(ref.id, self.state.of_kind(aggregates.WorkloadState).get(ref.id))
        elif ref.kind == "nodestate":
            self._changed_pods |= before ^ self._running(ref.id)
        elif isinstance(event, PodEvicted) and ref.id in self.state.of_kind(aggregates.PodSpecState):
            self._evicted.add(ref.id)
        if isinstance(event, PodSpecDeleted):
            self._evicted.discard(ref.id)
        return event

    def skip(self, seq: int) -> None:
        self.state.skip(seq)

    def observe(self, node: str, report: NodeUsageReported, position: int) -> None:
        """Store the newest usage report of a node, by its subject token, without the pods of other nodes. No-op if
        nothing was measured yet.

        `position`: that of the report in the stream of observations.
        """
        own, _ = own_report(self.state, node, report, self._index.named)
        metric = metric_of_report(own, position)
        if metric is not None:
            self._metrics.put(node, metric, self.state)

    def node_refs(self) -> list[AggregateRef]:
        return [AggregateRef("node", token) for token in self.state.of_kind(aggregates.NodeSpecState)]

    def evictions(self) -> Mapping[str, aggregates.EvictionState]:
        """Uid of a pod -> its eviction that was requested and has not succeeded or failed yet."""
        return self.state.of_kind(aggregates.EvictionState)

    def leaving(self) -> Set[str]:
        """Uids of the pods whose eviction is requested, or has succeeded and does not show yet.

        With an API server, the deletion of a pod is folded a moment after the success of its eviction.
        """
        return self.evictions().keys() | self._evicted

    def view(self, now: float, migrating: Iterable[str] = ()) -> ClusterView:
        """The cluster as of the last applied event. `now`: Unix seconds.

        `migrating`: uids of the pods with a migration job in flight. Pods whose eviction is requested are added.
        """
        self._refresh()
        self._metrics.forget_gone(self.state)
        budgets: dict[str, list[PodDisruptionBudget]] = {}
        for budget in self.customs.decoded(BUDGETS, PodDisruptionBudget):
            budgets.setdefault(budget.metadata.namespace, []).append(budget)
        return ClusterView(
            now=now,
            nodes=tuple(self._nodes[token] for token in sorted(self._nodes)),
            pods=self._order.pods(),
            namespaces={
                each.object.metadata.name: each.object.metadata.labels
                for each in self.state.of_kind(aggregates.NamespaceState).values()
            },
            claims={
                (claim.metadata.namespace, claim.metadata.name): claim
                for claim in self.customs.decoded(CLAIMS, PersistentVolumeClaim)
            },
            budgets=budgets,
            priority_classes=priority_classes(self.state),
            metrics={name_from_token(token): metric for token, metric in self._metrics.of_node.items()},
            migrating=frozenset([*self.leaving(), *migrating]),
            workloads=dict(self.workloads()),
            disruptions=self.disruptions(),
            gpus=gpu_inventory(
                self.state,
                (document for _, document in self.customs.documents(DEVICES)),
                (document for _, document in self.customs.documents(POD_GROUPS)),
            ),
        )

    def workloads(self) -> Mapping[str, WorkloadView]:
        """Uid of the controller of a pod -> its workload. It changes with the next applied event."""
        return self._workloads.views

    def disruptions(self) -> Disruptions:
        """The pods that are being taken from their workloads, with the cause, as of the last applied event."""
        self._refresh()
        return disruptions_of(self.state, self._nodes.values())

    def pods_on(self, node: str) -> list[PodView]:
        """All pods of a node, ordered by namespace and name. It looks at the pods of this node only."""
        self._refresh()
        pods = [self._pods[uid] for uid in self._index.on_node(node)]
        return sorted(pods, key=lambda pod: (pod.namespace, pod.name))

    def pods_of(self, owner: str) -> list[PodView]:
        """All pods with this owner, by the uid of the owner. It looks at these pods only."""
        self._refresh()
        return [self._pods[uid] for uid in self._index.of_owner(owner)]

    def pod_named(self, namespace: str, name: str) -> PodView | None:
        self._refresh()
        uid = self._index.named(namespace, name)
        return None if uid is None else self._pods.get(uid)

    def has_node(self, name: str) -> bool:
        return name_token(name) in self.state.of_kind(aggregates.NodeSpecState)

    def has_namespace(self, name: str) -> bool:
        """Whether a namespace exists, or has pods. Without an API server, it may have pods and no object."""
        return name_token(name) in self.state.of_kind(aggregates.NamespaceState) or self._order.has_namespace(name)

    def refresh(self, most: int) -> bool:
        """Make the views of at most so many changed objects. Return whether the views of all objects are current."""
        specs, placed = self.state.of_kind(aggregates.PodSpecState), self.state.of_kind(aggregates.PodState)
        for uid in _taken(self._changed_pods, most):
            spec = specs.get(uid)
            if spec is None:
                self.unreadable.pop(f"podspec.{uid}", None)
            elif self._is_restored:
                self._parts.share(spec.object)
            self._renew_pod(uid, spec, placed.get(uid))
        self._is_restored = self._is_restored and bool(self._changed_pods)
        nodes = self.state.of_kind(aggregates.NodeSpecState)
        for token in _taken(self._changed_nodes, most):
            state = nodes.get(token)
            view = self._node(token, state) if state is not None else None
            if state is None:
                self.unreadable.pop(f"nodespec.{token}", None)
            if view is None:
                self._nodes.pop(token, None)
            else:
                self._nodes[token] = view
        return not self._changed_pods and not self._changed_nodes

    def _refresh(self) -> None:
        self.refresh(len(self._changed_pods) + len(self._changed_nodes))

    def _renew_pod(self, uid: str, spec: aggregates.PodSpecState | None, placed: aggregates.PodState | None) -> None:
        view = None if spec is None else self._pod(uid, spec, placed)
        before = self._pods.pop(uid, None)
        if view is not None:
            self._pods[uid] = view
        self._index.change(uid, None if view is None else _keys(view))
        self._order.change(before, view)

    def _pod(self, uid: str, spec: aggregates.PodSpecState, placed: aggregates.PodState | None) -> PodView | None:
        """None if the object is not valid.

        Without an API server, no condition says that a pod is ready. Then it is ready if its agent runs it.
        """
        node = placed.node if placed is not None and placed.node else spec.object.spec.node_name
        try:
            pod = decided_pod(spec, placed)
            view = pod_view(with_priority_value(pod) if self._replaces_priority else pod, node, self._parts.amounts)
        except InvalidInput as error:
            self.unreadable[f"podspec.{uid}"] = str(error)
            return None
        self.unreadable.pop(f"podspec.{uid}", None)
        if view.is_ready or any(each.type == "Ready" for each in spec.object.status.conditions):
            return view
        return replace(view, is_ready=True) if uid in self._running(name_token(node)) else view

    def _node(self, token: str, state: aggregates.NodeSpecState) -> NodeView | None:
        try:
            policy = self.state.of_kind(aggregates.NodePolicyState).get(token)
            view = node_view(decided_node(state.object, policy))
        except InvalidInput as error:
            self.unreadable[f"nodespec.{token}"] = str(error)
            return None
        self.unreadable.pop(f"nodespec.{token}", None)
        return view

    def _running(self, node: str) -> frozenset[str]:
        agent = self.state.of_kind(aggregates.NodeAgentState).get(node)
        return frozenset() if agent is None else frozenset(agent.running)


def _keys(pod: PodView) -> PodKeys:
    return PodKeys(pod.namespace, pod.name, pod.node, tuple(owner.uid for owner in pod.owners))


def _taken(names: set[str], most: int) -> Iterator[str]:
    """Remove up to `most` names from a set, and yield them."""
    for _ in range(min(most, len(names))):
        yield names.pop()
