"""The manager's look at the cluster: the fold of the log, and the indexes that its decisions need.

Every index is maintained from the event that changes it, at a cost that does not grow with the cluster.
"""

from collections.abc import Iterator

from koordcore.events.agents.nodestate import NodeTopologyReported, PodsEvictedByAgent
from koordcore.events.agents.observation import NodeUsageReported
from koordcore.events.envelope import AggregateRef, Event, StoredEvent, name_from_token, name_token, namespaced_token
from koordcore.events.management.adjustment import NodeHealthAssessed
from koordcore.events.management.nodepolicy import (
    NodeDevicesComputed,
    NodeMetricPolicyRendered,
    NodeOvercommitComputed,
    NodeRatiosComputed,
    NodeSloRendered,
)
from koordcore.events.objects.custom import CustomObjectDeleted, CustomObjectObserved, custom_ref, plural_of
from koordcore.events.objects.mirror import (
    NamespaceObserved,
    NodeSpecAdded,
    NodeSpecChanged,
    NodeSpecDeleted,
    PodSpecAdded,
    PodSpecChanged,
    PodSpecDeleted,
    PriorityClassObserved,
    WorkloadDeleted,
    WorkloadObserved,
)
from koordcore.events.scheduling.node_ledger import NodeResourcesReturned, NodeResourcesTaken
from koordcore.protocol.objects import Node, Pod
from koordcore.state import ClusterState
from koordcore.state.aggregates import (
    ConfigState,
    CustomObjectState,
    NodeAgentState,
    NodeLedger,
    NodePolicyState,
    NodeSpecState,
    PodSpecState,
    PodState,
    PriorityClassState,
    WorkloadState,
)

from koord_manager.domain.admission.context.facts import ADMISSION_KINDS, ConfigNames, Recommend
from koord_manager.domain.admission.context.fold_facts import facts_of, fold_fact
from koord_manager.domain.node_resources.amounts import PodFacts, pod_facts
from koord_manager.domain.node_resources.topology import (
    Device,
    NodeResourceTopology,
    device_from,
    topology_from,
    topology_of_agent,
)

TOPOLOGIES = "noderesourcetopologies"
DEVICES = "devices"
_FINISHED = ("Succeeded", "Failed")
KEPT_EVICTIONS = 32
"""Evictions by an agent that are remembered for each node: those of ten minutes are asked for."""


class ManagerView:
    """The folded cluster with indexes by name, by workload and by node, and the newest report of each node.

    reports         node token -> newest report (from observations, may be lost: absent means never seen)
    obs_position    last folded observation
    touched_desired nodes (tokens) whose desired state changed since it was last taken
    touched_nodes   nodes (tokens) whose object changed since they were last taken
    touched_inputs  nodes (tokens) whose overcommit inputs changed since they were last taken
    config_touched  whether a ConfigMap changed since it was last taken
    node_version    grows whenever a node object changes
    evictions       node (token) -> (time, best-effort pods evicted by its agent), newest last
    admission       what admission knows beside an object, from the same fold
    """

    def __init__(self, state: ClusterState | None = None, config_names: ConfigNames | None = None) -> None:
        self._config_names = config_names or ConfigNames()
        self._recommend: Recommend | None = None
        self.reports: dict[str, NodeUsageReported] = {}
        self.obs_position = 0
        self.touched_desired: set[str] = set()
        self.touched_nodes: set[str] = set()
        self.touched_inputs: set[str] = set()
        self.touched_workloads: set[str] = set()
        self._held_workloads: set[str] = set()
        self.config_touched = True
        self.node_version = 0
        self.evictions: dict[str, list[tuple[str, int]]] = {}
        self.load(state if state is not None else ClusterState())

    @property
    def slo_config_name(self) -> tuple[str, str]:
        """(namespace, name) of the configuration ConfigMap."""
        return self._config_names.slo_namespace, self._config_names.slo_name

    def load(self, state: ClusterState) -> None:
        """Take over a whole state, e.g. a snapshot's; every node and workload counts as changed."""
        self.state = state
        self._pod_uids: dict[tuple[str, str], str] = {}
        self._workload_uids: dict[tuple[str, str, str], str] = {}
        self._workload_keys: dict[str, tuple[str, str, str]] = {}
        self._pods_of_owner: dict[str, set[str]] = {}
        self._owners: dict[str, tuple[str, ...]] = {}
        self._bound_on: dict[str, set[str]] = {}
        self._bound: dict[str, str] = {}
        self._pod_facts: dict[str, tuple[Pod, PodFacts]] = {}
        self._topologies: dict[str, NodeResourceTopology | None] = {}
        self._devices: dict[str, Device | None] = {}
        self._customs: dict[str, set[str]] = {}
        self._custom_versions: dict[str, int] = {}
        self._loaded_at = state.position
        for id_, custom in state.of_kind(CustomObjectState).items():
            if custom.object is not None:
                self._customs.setdefault(plural_of(id_), set()).add(id_)
        self.admission = facts_of(state, self._config_names)
        self.admission.recommend = self._recommend
        for uid, spec in state.of_kind(PodSpecState).items():
            self._index_pod(uid, spec.object)
        for uid, workload in state.of_kind(WorkloadState).items():
            meta = workload.object.metadata
            key = (workload.object.kind, meta.namespace, meta.name)
            self._workload_uids[key] = uid
            self._workload_keys[uid] = key
        self.touched_workloads.update(state.of_kind(WorkloadState))
        self.touched_workloads.update(self._pods_of_owner)  # also of workloads whose deletion is not carried out yet
        self.touched_desired.update(state.of_kind(NodeSpecState))
        self.touched_nodes.update(state.of_kind(NodeSpecState))
        self.touched_inputs.update(state.of_kind(NodeSpecState))
        self.config_touched = True

    def recommend_with(self, recommend: Recommend) -> None:
        """Let new pods be given what is recommended for them, see `Facts.recommend`."""
        self._recommend = self.admission.recommend = recommend

    # -- folding ----------------------------------------------------------------------------------------------------

    def fold(self, stored: StoredEvent) -> Event | None:
        """Apply one event of the facts stream. Raises UnreadableEvent with the view unchanged."""
        event = self.state.apply(stored)
        ref = stored.ref
        if event is not None:
            fold_fact(self.admission, ref, event)
        match event:
            case PodSpecAdded() | PodSpecChanged():
                self._index_pod(ref.id, event.object)
                self._touch_pod(ref.id)
            case PodSpecDeleted():
                self._drop_pod(ref.id, event)
            case NodeResourcesTaken() | NodeResourcesReturned():
                self._touch_node(ref.id)
            case NodeSpecAdded() | NodeSpecChanged() | NodeSpecDeleted():
                self._touch_node(ref.id)
                self.touched_nodes.add(ref.id)
                self.node_version += 1
                if isinstance(event, NodeSpecDeleted):
                    self.reports.pop(ref.id, None)
                    self.evictions.pop(ref.id, None)
            case NodeSloRendered() | NodeOvercommitComputed() | NodeMetricPolicyRendered() | NodeDevicesComputed():
                self.touched_desired.add(ref.id)
            case NodeRatiosComputed():
                self._touch_node(ref.id)
                self.touched_nodes.add(ref.id)
            case NodeHealthAssessed() if event.cause in ("level", "offsets", "off"):
                self._touch_node(ref.id)
                self.touched_nodes.add(ref.id)
            case NodeTopologyReported():
                self._topologies.pop(ref.id, None)
                self.touched_nodes.add(ref.id)
                self.touched_inputs.add(ref.id)
            case PodsEvictedByAgent():
                self._evicted(ref.id, event, stored.occurred_at)
            case CustomObjectObserved() | CustomObjectDeleted():
                self._custom_changed(ref, is_gone=isinstance(event, CustomObjectDeleted))
                if plural_of(ref.id) in ADMISSION_KINDS:
                    self._release_workloads()
            case WorkloadObserved():
                meta = event.object.metadata
                key = (event.object.kind, meta.namespace, meta.name)
                self._workload_uids[key] = ref.id
                self._workload_keys[ref.id] = key
                self.touched_workloads.add(ref.id)
            case WorkloadDeleted():
                key = self._workload_keys.pop(ref.id, None)
                if key is not None and self._workload_uids.get(key) == ref.id:
                    del self._workload_uids[key]
                self.touched_workloads.add(ref.id)
            case PriorityClassObserved() | NamespaceObserved():
                self._release_workloads()
            case _:
                if ref.kind == "config":
                    self.config_touched = True
        return event

    def hold_workload(self, uid: str) -> None:
        """Leave a workload whose pods are refused alone, until something changes that admission goes by."""
        self.touched_workloads.discard(uid)
        self._held_workloads.add(uid)

    def _release_workloads(self) -> None:
        self.touched_workloads |= self._held_workloads
        self._held_workloads.clear()

    def observe(self, position: int, node: str, report: NodeUsageReported) -> None:
        """Take in one report of a node (token)."""
        self.obs_position = max(self.obs_position, position)
        known = self.reports.get(node)
        if known is not None and known.updated_at > report.updated_at:
            return  # what is followed again after a restart is older than what was asked for at its beginning
        self.reports[node] = report
        self.touched_inputs.add(node)

    def _evicted(self, node: str, event: PodsEvictedByAgent, at: str) -> None:
        if event.feature.startswith("BE"):
            kept = self.evictions.setdefault(node, [])
            kept.append((at, len(event.pods)))
            del kept[:-KEPT_EVICTIONS]

    def _custom_changed(self, ref: AggregateRef, *, is_gone: bool) -> None:
        plural = plural_of(ref.id)
        known = self._customs.setdefault(plural, set())
        (known.discard if is_gone else known.add)(ref.id)
        self._custom_versions[plural] = self.state.position
        if plural in (TOPOLOGIES, DEVICES):
            token = ref.id.partition("=")[2]
            self._topologies.pop(token, None)
            self._devices.pop(token, None)
            self.touched_nodes.add(token)
            self.touched_inputs.add(token)

    def _index_pod(self, uid: str, pod: Pod) -> None:
        self._pod_uids[pod.metadata.namespace, pod.metadata.name] = uid
        owners = tuple(owner.uid for owner in pod.metadata.owner_references if owner.controller)
        if owners:
            self._owners[uid] = owners
            for owner_uid in owners:
                self._pods_of_owner.setdefault(owner_uid, set()).add(uid)

        self._index_bound(uid, name_token(pod.spec.node_name) if pod.status.phase not in _FINISHED else "")

    def _index_bound(self, uid: str, node: str) -> None:
        """Where the API says that a pod runs; "" nowhere. Pods that others bound are in no ledger of ours."""
        before = self._bound.get(uid, "")
        if node == before:
            return
        if before:
            del self._bound[uid]
            self._bound_on[before].discard(uid)
        if node:
            self._bound[uid] = node
            self._bound_on.setdefault(node, set()).add(uid)
        self._touch_node(before)
        self._touch_node(node)

    def _drop_pod(self, uid: str, event: PodSpecDeleted) -> None:
        self._pod_facts.pop(uid, None)
        self._index_bound(uid, "")
        if self._pod_uids.get((event.namespace, event.name)) == uid:
            del self._pod_uids[event.namespace, event.name]
        workloads = self.state.of_kind(WorkloadState)
        for owner_uid in self._owners.pop(uid, ()):  # the spec is gone from the fold by now
            pods = self._pods_of_owner[owner_uid]
            pods.discard(uid)
            if not pods:
                del self._pods_of_owner[owner_uid]
            if owner_uid in workloads:  # an owner that is not mirrored as a workload keeps its pods itself
                self.touched_workloads.add(owner_uid)

    def _touch_pod(self, uid: str) -> None:
        placed = self.state.get(AggregateRef("pod", uid))
        if isinstance(placed, PodState) and placed.node:
            self._touch_node(name_token(placed.node))

    def _touch_node(self, node: str) -> None:
        if node:
            self.touched_desired.add(node)
            self.touched_inputs.add(node)

    # -- looking up -------------------------------------------------------------------------------------------------

    def pod(self, namespace: str, name: str) -> tuple[str, PodSpecState] | None:
        """(uid, spec) of a pod by name; None when there is none."""
        uid = self._pod_uids.get((namespace, name))
        spec = self.state.of_kind(PodSpecState).get(uid) if uid else None
        return (uid, spec) if uid and spec else None

    def workload(self, kind: str, namespace: str, name: str) -> tuple[str, WorkloadState] | None:
        """(uid, state) of a workload by name; None when there is none."""
        uid = self._workload_uids.get((kind, namespace, name))
        state = self.state.of_kind(WorkloadState).get(uid) if uid else None
        return (uid, state) if uid and state else None

    def pods_of_workload(self, uid: str) -> list[str]:
        """Uids of the live pods that a workload controls, oldest first."""
        specs = self.state.of_kind(PodSpecState)
        return sorted(self._pods_of_owner.get(uid, ()), key=lambda pod: (specs[pod].added_seq, pod))

    def node(self, token: str) -> Node | None:
        """The node as mirrored; None when it is unknown or gone."""
        spec = self.state.of_kind(NodeSpecState).get(token)
        return spec.object if spec else None

    def nodes(self) -> list[str]:
        """Tokens of the nodes that exist."""
        return [token for token, spec in self.state.of_kind(NodeSpecState).items() if spec.object is not None]

    def ledger(self, token: str) -> NodeLedger | None:
        """What pods hold on a node."""
        return self.state.of_kind(NodeLedger).get(token)

    def policy(self, token: str) -> NodePolicyState | None:
        """What was last published for a node."""
        return self.state.of_kind(NodePolicyState).get(token)

    def pods_on(self, token: str) -> Iterator[tuple[str, Pod]]:
        """(uid, pod) of the pods that hold resources of a node, in order of uid; pods that are gone are left out."""
        specs = self.state.of_kind(PodSpecState)
        yield from ((uid, specs[uid].object) for uid in sorted(self._uids_on(token)) if uid in specs)

    def others_on(self, token: str) -> Iterator[tuple[str, Pod]]:
        """Yield uid and object of the pods that somebody else bound to a node: they are not in its ledger."""
        specs, ledger = self.state.of_kind(PodSpecState), self.ledger(token)
        ours = ledger.pods if ledger is not None else {}
        bound = sorted(self._bound_on.get(token, ()))
        yield from ((uid, specs[uid].object) for uid in bound if uid in specs and uid not in ours)

    def _uids_on(self, token: str) -> set[str]:
        """Pods of the node's ledger, and those that the API has there: daemons, pods of other schedulers."""
        ledger = self.ledger(token)
        bound = self._bound_on.get(token, set())
        return bound.union(ledger.pods) if ledger is not None else bound

    def pods_with_facts(self, token: str) -> Iterator[tuple[Pod, PodFacts]]:
        """As `pods_on`, in no order, each with what overcommit looks at of its spec."""
        specs, facts = self.state.of_kind(PodSpecState), self._pod_facts
        for uid in self._uids_on(token):
            spec = specs.get(uid)
            if spec is not None:
                known = facts.get(uid)
                if known is None or known[0] is not spec.object:
                    known = facts[uid] = (spec.object, pod_facts(spec.object))
                yield known

    def custom(self, plural: str, namespace: str, name: str) -> CustomObjectState | None:
        """A custom resource by name, also when it is gone (object None)."""
        return self.state.of_kind(CustomObjectState).get(custom_ref(plural, namespace, name).id)

    def customs(self, plural: str) -> list[tuple[str, CustomObjectState]]:
        """(id without the plural, state) of the custom resources of a kind that exist, in order of id."""
        states = self.state.of_kind(CustomObjectState)
        found = ((id_, states[id_]) for id_ in sorted(self._customs.get(plural, ())) if id_ in states)
        return [(id_.partition("=")[2], state) for id_, state in found if state.object is not None]

    def custom_version(self, plural: str) -> int:
        """Position of the last change to a custom resource of a kind, or that of the state that was loaded since."""
        return self._custom_versions.get(plural, self._loaded_at)

    def topology(self, token: str) -> NodeResourceTopology | None:
        """The node's NUMA zones and processor, from our agent or else from the object that another one keeps; None when
        nobody has reported them.
        """
        if token not in self._topologies:
            agent = self.state.of_kind(NodeAgentState).get(token)
            stored = self.custom(TOPOLOGIES, "", node_name(token))
            self._topologies[token] = (
                topology_of_agent(agent.topology)
                if agent is not None and agent.topology is not None
                else topology_from(stored.object if stored else None)
            )
        return self._topologies[token]

    def device(self, token: str) -> Device | None:
        """The node's devices; None when its agent has not reported any."""
        if token not in self._devices:
            stored = self.custom(DEVICES, "", node_name(token))
            self._devices[token] = device_from(stored.object if stored else None)
        return self._devices[token]

    def device_version(self, token: str) -> int:
        """Position of the node's Device object; 0 when there is none."""
        stored = self.custom(DEVICES, "", node_name(token))
        return stored.seq if stored else 0

    def running_on(self, token: str) -> list[str]:
        """Uids of the pods that the node's agent says are running, ascending."""
        agent = self.state.of_kind(NodeAgentState).get(token)
        return agent.running if agent else []

    def priority_class(self, name: str) -> PriorityClassState | None:
        """A priority class by name, also when it is gone (object None)."""
        return self.state.of_kind(PriorityClassState).get(name_token(name))

    def config(self, namespace: str, name: str) -> ConfigState | None:
        """A ConfigMap's state."""
        return self.state.of_kind(ConfigState).get(namespaced_token(namespace, name))


def node_name(token: str) -> str:
    """The node's name from its token."""
    return name_from_token(token)
