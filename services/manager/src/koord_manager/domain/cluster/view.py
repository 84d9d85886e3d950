"""Fold the log, and keep the indexes that the manager's decisions read.

Each index is updated from the event that changes it, at a cost that does not grow with the cluster. The same events
add the keys of the objects they concern to the work queue. The *token* of a node is its name with `_` for `.`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from koordcore.events.envelope import AggregateRef, Event, StoredEvent, name_from_token, name_token, namespaced_token
from koordcore.events.gateway import PodBound
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, users_of_unbound_claims
from koordcore.events.nodepolicy import (
    NodeDevicesComputed,
    NodeHealthAssessed,
    NodeMetricPolicyRendered,
    NodeOvercommitComputed,
    NodeRatiosComputed,
    NodeSloRendered,
)
from koordcore.events.nodestate import (
    DeviceInventoryChanged,
    NodeTopologyReported,
    PodsEvictedByAgent,
    PodsStarted,
    PodsStopped,
)
from koordcore.events.objects import (
    CustomObjectDeleted,
    CustomObjectObserved,
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
    custom_ref,
    plural_of,
)
from koordcore.events.observation import NodeUsageReported
from koordcore.events.reservation import ReservationCollected
from koordcore.events.schedule_explanation import ScheduleExplanationComputed
from koordcore.protocol.hardware.devices import Device, device_from
from koordcore.protocol.hardware.node_topology import NodeResourceTopology, topology_from
from koordcore.protocol.objects import Node, Pod
from koordcore.state import ClusterState
from koordcore.state.aggregates import (
    ConfigState,
    CustomObjectState,
    EvictionState,
    NodeAgentState,
    NodeLedger,
    NodePolicyState,
    NodeSpecState,
    PodSpecState,
    PodState,
    WorkloadState,
)
from koordcore.state.index import CustomObjects, IdsByKey, IdsByName, NewestReports, PodIndex, PodKeys

from koord_manager.domain.admission.context.facts import ADMISSION_KINDS, ConfigNames, Recommend, facts_of, fold_fact
from koord_manager.domain.cluster.amounts import FINISHED, PodFacts, pod_facts
from koord_manager.domain.cluster.nodes import is_deleted, topology_of_agent
from koord_manager.domain.cluster.queued_objects import queue_all
from koord_manager.domain.cluster.work_queue import WorkQueue
from koord_manager.domain.controller_names import (
    AGENT_EVICTION,
    CONFIGURATION,
    CONTROLLERS_OF_KIND,
    DESIRED_STATE,
    DUPLICATE_NAME,
    EVICTION,
    EXPLANATION_EXPIRY,
    HEALTH_RESET,
    NODE_OBJECTS,
    NODE_POLICIES,
    OVERCOMMIT,
    RESERVATION_COLLECTION,
    VOLUME_CLAIM,
    WORKLOAD,
)

MOST_CHANGED: Final = 50_000
"""Most uids that are collected. An instance that does not lead has no reader."""
_KINDS: Final = frozenset({"podspec", "pod", "workloadspec"})


class ChangedUids:
    """The uids of pods and workloads that changed since the one reader last took them.

    Nothing is collected before the first `take`, and after too many uids until the next one.
    """

    def __init__(self) -> None:
        self._uids: set[str] | None = None

    def fold(self, ref: AggregateRef, event: Event | None) -> None:
        """Add the pods whose object, node or processes a fact changes, or the workload that it changes."""
        if ref.kind in _KINDS:
            self.add((ref.id,))
        elif isinstance(event, PodsStarted | PodsStopped):
            self.add(event.pods)

    def add(self, uids: Iterable[str]) -> None:
        if self._uids is not None:
            self._uids.update(uids)
            if len(self._uids) > MOST_CHANGED:
                self._uids = None

    def take(self) -> set[str] | None:
        """Return and forget the collected uids, and begin to collect. None if any object may have changed."""
        uids, self._uids = self._uids, set()
        return uids

    def stop(self) -> None:
        """Forget the collected uids, and collect nothing until the next `take`, which returns None."""
        self._uids = None


TOPOLOGIES = "noderesourcetopologies"
DEVICES = "devices"
MIGRATION_JOBS = "podmigrationjobs"
AGAIN_SECONDS = 60.0
"""Time after the answer to an eviction until the request of a node's agent is repeated if its pod still exists."""


class ManagerView:
    """All that the manager knows of the cluster: the folded log with indexes, usage reports, and the work queue.

    Attributes:
        state: The fold of the facts.
        admission: Cluster state that admission reads, from the same fold.
        changed_uids: Uids of changed pods and workloads, for the disruption budgets.
    """

    def __init__(self, state: ClusterState | None = None, config_names: ConfigNames | None = None) -> None:
        self._config_names = config_names or ConfigNames()
        self._recommend: Recommend | None = None
        self.queue = WorkQueue()  # Keys of changed objects, for the controllers
        self._reports = NewestReports[NodeUsageReported]()
        self.obs_position = 0  # Position of the last usage report in the stream of observations
        self.node_version = 0  # Number that grows with each change of a node object
        self.load(state if state is not None else ClusterState())

    @property
    def slo_config_name(self) -> tuple[str, str]:
        """Namespace and name of the ConfigMap slo-controller-config."""
        return self._config_names.slo_namespace, self._config_names.slo_name

    def load(self, state: ClusterState) -> None:
        """Replace the folded state, for example by a snapshot, and add the keys of all its objects to the queue."""
        self.state = state
        self.changed_uids = ChangedUids()
        self._pods = PodIndex()
        self._workload_uids = IdsByName[tuple[str, str, str]]()
        self._workload_keys: dict[str, tuple[str, str, str]] = {}
        self._first_seen: dict[str, int] = {}  # Uid of a workload -> position of its first fact after `load`
        self._pod_facts: dict[str, tuple[Pod, PodFacts]] = {}
        self._topologies: dict[str, NodeResourceTopology | None] = {}
        self._devices: dict[str, Device | None] = {}
        self._customs = CustomObjects(state, {})
        self._of_job = IdsByKey[str]()  # by name of a PodMigrationJob: uids of the pods whose eviction is pending
        for uid in state.of_kind(EvictionState):
            self._index_eviction(uid)
        self.admission = facts_of(state, self._config_names)
        self.admission.recommend = self._recommend
        for uid, spec in state.of_kind(PodSpecState).items():
            self._pods.change(uid, _keys(spec.object))
        for uid, workload in state.of_kind(WorkloadState).items():
            meta = workload.object.metadata
            key = (workload.object.kind, meta.namespace, meta.name)
            self._workload_uids.give(uid, key)
            self._workload_keys[uid] = key
            self._first_seen[uid] = 0
        self.queue.add_all(DUPLICATE_NAME, (f"podspec.{uid}" for uid in self._pods.duplicates()))
        self.queue.add_all(DUPLICATE_NAME, (f"workloadspec.{uid}" for uid in self._workload_uids.duplicates()))
        self._queue_configuration()
        queue_all(self.queue, state, self._pods.owners())

    def recommend_with(self, recommend: Recommend) -> None:
        """Set the function that sets recommended requests of new pods during admission (`Facts.recommend`)."""
        self._recommend = self.admission.recommend = recommend

    # -- folding ----------------------------------------------------------------------------------------------------

    def fold(self, stored: StoredEvent) -> Event | None:
        """Apply one fact to the state, the indexes and the queue. Return its event, or None if the state ignores it.

        Raises:
            UnreadableEvent: The event cannot be decoded; the view is unchanged.
        """
        event = self.state.apply(stored)
        ref = stored.ref
        if event is not None:
            fold_fact(self.admission, ref, event)
        match event:
            case PodSpecAdded() | PodSpecChanged() | PodBound() if spec := self.state.of_kind(PodSpecState).get(ref.id):
                after = _keys(spec.object)
                before = self._pods.change(ref.id, after)
                if before is None or before.node != after.node:
                    self._queue_inputs(before.node if before is not None else "")
                    self._queue_inputs(after.node)
                self._queue_inputs(self._placed_on(ref.id))
                if before is None:
                    self._queue_duplicates(ref.kind, self._pods.all_named(after.namespace, after.name))
            case PodSpecDeleted():
                self._drop_pod(ref.id)
            case NodeResourcesTaken() | NodeResourcesReturned():
                self._queue_inputs(ref.id)
                self.queue.add_all(VOLUME_CLAIM, users_of_unbound_claims(event))
            case NodeSpecAdded() | NodeSpecChanged() | NodeSpecDeleted():
                self._queue_inputs(ref.id)
                self._queue_policies(ref.id)
                self.node_version += 1
                if isinstance(event, NodeSpecAdded):
                    self.queue.add(HEALTH_RESET, ref.id)
                elif isinstance(event, NodeSpecDeleted):
                    self._reports.forget(ref.id)
                    self._topologies.pop(ref.id, None)
                    self._devices.pop(ref.id, None)
            case NodeSloRendered() | NodeOvercommitComputed() | NodeMetricPolicyRendered() | NodeDevicesComputed():
                self.queue.add(DESIRED_STATE, ref.id)
                if isinstance(event, NodeOvercommitComputed) and event.zones:
                    self.queue.add(NODE_OBJECTS, ref.id)
            case NodeRatiosComputed():
                self._queue_inputs(ref.id)
                self._queue_policies(ref.id)
            case NodeHealthAssessed() if event.cause in ("level", "offsets", "off"):
                self._queue_inputs(ref.id)
                self._queue_policies(ref.id)
            case NodeTopologyReported() | DeviceInventoryChanged():
                self._topologies.pop(ref.id, None)
                self._queue_policies(ref.id)
                self.queue.add(OVERCOMMIT, ref.id)
            case PodsEvictedByAgent():
                self.queue.add(AGENT_EVICTION, ref.id)
            case CustomObjectObserved() | CustomObjectDeleted():
                self._custom_changed(ref)
                if plural_of(ref.id) in ADMISSION_KINDS:
                    self.queue.retry_now(WORKLOAD)
            case ScheduleExplanationComputed():
                self.queue.add(EXPLANATION_EXPIRY, ref.id)
            case ReservationCollected():
                self.queue.add(RESERVATION_COLLECTION, ref.id)
            case WorkloadObserved():
                meta = event.object.metadata
                key = (event.object.kind, meta.namespace, meta.name)
                self._workload_uids.give(ref.id, key)
                self._workload_keys[ref.id] = key
                self._first_seen.setdefault(ref.id, stored.seq)
                self.queue.add(WORKLOAD, ref.id)
                self._queue_duplicates(ref.kind, self._workload_uids.all(key))
            case WorkloadDeleted():
                key = self._workload_keys.pop(ref.id, None)
                self._first_seen.pop(ref.id, None)
                if key is not None:
                    self._workload_uids.take(ref.id, key)
                self.queue.add(WORKLOAD, ref.id)
            case PriorityClassObserved() | NamespaceObserved():
                self.queue.retry_now(WORKLOAD)  # admission may accept pods that it refused
            case _:
                if ref.kind == "config":
                    self._queue_configuration()
                elif ref.kind == "eviction":
                    self._index_eviction(ref.id)
                    self.queue.add(EVICTION, ref.id)
                    self._queue_agent_eviction(ref.id)
        self.changed_uids.fold(ref, event)
        return event

    def observe(self, position: int, node: str, report: NodeUsageReported) -> None:
        """Store the position, and the report of a node (its token) that was not deleted; then also queue the node.

        The node may not be folded yet. Reports of unknown nodes are forgotten when there are too many.
        """
        is_behind, self.obs_position = position < self.obs_position, max(self.obs_position, position)
        if is_deleted(self.state, node):
            return
        known = self.reports.get(node)
        if is_behind and known is not None and known.updated_at > report.updated_at:
            return  # after a restart, the follower delivers reports older than the newest one, which was read first
        self._reports.put(node, report, self.state)
        self.queue.add(OVERCOMMIT, node)

    def _custom_changed(self, ref: AggregateRef) -> None:
        plural, id_ = plural_of(ref.id), ref.id.partition("=")[2]
        self._customs.changed(ref.id)
        if plural in (TOPOLOGIES, DEVICES):
            self._topologies.pop(id_, None)
            self._devices.pop(id_, None)
            self._queue_policies(id_)
            self.queue.add(OVERCOMMIT, id_)
        elif plural == MIGRATION_JOBS:
            self.queue.add_all(EVICTION, self._of_job.of(name_from_token(id_)))
        for controller in CONTROLLERS_OF_KIND.get(plural, ()):
            self.queue.add(controller, id_)

    def _index_eviction(self, uid: str) -> None:
        pending = self.state.of_kind(EvictionState).get(uid)
        job = "" if pending is None else pending.request.job
        self._of_job.put(uid, *([job] if job else []))

    def _drop_pod(self, uid: str) -> None:
        self._pod_facts.pop(uid, None)
        keys = self._pods.change(uid, None)
        if keys is None:
            return
        self._queue_inputs(keys.node)
        workloads = self.state.of_kind(WorkloadState)
        for owner in keys.owners:
            if owner in workloads:  # an owner that is not mirrored as a workload keeps its pods itself
                self.queue.add(WORKLOAD, owner)

    # -- queueing ---------------------------------------------------------------------------------------------------

    def _queue_configuration(self) -> None:
        self.queue.add(CONFIGURATION, "/".join(self.slo_config_name))

    def _placed_on(self, uid: str) -> str:
        placed = self.state.of_kind(PodState).get(uid)
        return name_token(placed.node) if placed is not None and placed.node else ""

    def _queue_agent_eviction(self, uid: str) -> None:
        if node := self._placed_on(uid) or self._pods.node_of(uid):
            self.queue.add_after(AGENT_EVICTION, node, self.queue.now + AGAIN_SECONDS)

    def _queue_inputs(self, node: str) -> None:
        """Add a node to the queues whose decisions read its pods: overcommit and desired state."""
        if node:
            self.queue.add(DESIRED_STATE, node)
            self.queue.add(OVERCOMMIT, node)

    def _queue_duplicates(self, kind: str, named: list[str]) -> None:
        if len(named) > 1:
            self.queue.add_all(DUPLICATE_NAME, (f"{kind}.{uid}" for uid in named))

    def _queue_policies(self, node: str) -> None:
        for controller in (*NODE_POLICIES, NODE_OBJECTS):
            self.queue.add(controller, node)

    # -- looking up -------------------------------------------------------------------------------------------------

    @property
    def reports(self) -> Mapping[str, NodeUsageReported]:
        """Node token -> newest usage report. A missing one means that none was received; reports may be lost."""
        return self._reports.of_node

    def pod(self, namespace: str, name: str) -> tuple[str, PodSpecState] | None:
        """Return uid and folded state of a pod by name, or None if no such pod exists."""
        uid = self._pods.named(namespace, name)
        spec = self.state.of_kind(PodSpecState).get(uid) if uid else None
        return (uid, spec) if uid and spec else None

    def uid_of(self, namespace: str, name: str) -> str | None:
        """Return the uid of the pod with this name that changed last, or None if no such pod exists."""
        return self._pods.named(namespace, name)

    def all_named(self, kind: str, namespace: str, name: str) -> list[str]:
        """Return the uids of the pods or the workloads of a kind with this name: several after a fault of a leader."""
        if kind == "Pod":
            return self._pods.all_named(namespace, name)
        return self._workload_uids.all((kind, namespace, name))

    def first_seen(self, uid: str) -> tuple[int, str, str]:
        """Return a key that orders workloads by arrival. Those of a loaded state come first, in the order in which
        they say that they were created.
        """
        meta = self.state.of_kind(WorkloadState)[uid].object.metadata
        return self._first_seen[uid], meta.creation_timestamp or "", uid

    def workload(self, kind: str, namespace: str, name: str) -> tuple[str, WorkloadState] | None:
        """Return uid and folded state of a workload by name, or None if no such workload was observed."""
        uid = self._workload_uids.newest((kind, namespace, name))
        state = self.state.of_kind(WorkloadState).get(uid) if uid else None
        return (uid, state) if uid and state else None

    def pods_of_workload(self, uid: str) -> list[str]:
        """Return the uids of the existing pods that a Deployment or Job owns, oldest first."""
        specs = self.state.of_kind(PodSpecState)
        return sorted(self._pods.of_owner(uid), key=lambda pod: (specs[pod].added_seq, pod))

    def node(self, token: str) -> Node | None:
        """Return the mirrored Node object, or None if it does not exist."""
        return spec.object if (spec := self.state.of_kind(NodeSpecState).get(token)) else None

    def nodes(self) -> list[str]:
        """Return the tokens (names as parts of NATS subjects) of the existing nodes."""
        return list(self.state.of_kind(NodeSpecState))

    def ledger(self, token: str) -> NodeLedger | None:
        """Return the ledger of a node (the pods that hold its resources), or None if no pod was ever placed on it."""
        return self.state.of_kind(NodeLedger).get(token)

    def policy(self, token: str) -> NodePolicyState | None:
        """Return the policies that the manager last published for a node, or None if it published nothing."""
        return self.state.of_kind(NodePolicyState).get(token)

    def others_on(self, token: str) -> Iterator[tuple[str, Pod]]:
        """Yield uid and object of the pods on a node that are not in its ledger: others bound them. Order: uid."""
        specs, ledger = self.state.of_kind(PodSpecState), self.ledger(token)
        ours = ledger.pods if ledger is not None else {}
        bound = sorted(self._pods.on_node(token))
        yield from ((uid, specs[uid].object) for uid in bound if uid in specs and uid not in ours)

    def _uids_on(self, token: str) -> Iterable[str]:
        """Return the uids of all pods on a node: those in its ledger, and those that others bound."""
        ledger = self.ledger(token)
        bound = self._pods.on_node(token)
        return bound | ledger.pods.keys() if ledger is not None else bound

    def facts_of_pod(self, uid: str) -> tuple[Pod, PodFacts] | None:
        """Return a pod with its `PodFacts`, or None if it does not exist."""
        spec = self.state.of_kind(PodSpecState).get(uid)
        if spec is None:
            return None
        known = self._pod_facts.get(uid)
        if known is None or known[0] is not spec.object:
            known = self._pod_facts[uid] = (spec.object, pod_facts(spec.object))
        return known

    def pods_with_facts(self, token: str) -> Iterator[tuple[Pod, PodFacts]]:
        """Yield all pods of a node in any order, each with its `PodFacts`, from which overcommit is computed."""
        for uid in self._uids_on(token):
            known = self.facts_of_pod(uid)
            if known is not None:
                yield known

    def custom(self, plural: str, namespace: str, name: str) -> CustomObjectState | None:
        """Return the state of a custom resource, or None if it does not exist."""
        return self.state.of_kind(CustomObjectState).get(custom_ref(plural, namespace, name).id)

    def customs(self, plural: str) -> list[tuple[str, CustomObjectState]]:
        """Return id (`<namespace>=<name>` or `<name>`) and state of the existing custom resources of a kind, by id."""
        states = self.state.of_kind(CustomObjectState)
        return [(id_.partition("=")[2], states[id_]) for id_ in sorted(self._customs.ids(plural))]

    def custom_version(self, plural: str) -> int:
        """Return a number that grows with each change of a custom resource of a kind, so that caches can be checked."""
        return self._customs.version(plural)

    def topology(self, token: str) -> NodeResourceTopology | None:
        """Return NUMA zones and processor of a node as its agent, or else an object, reports them; None for neither."""
        if token not in self._topologies:
            agent = self.state.of_kind(NodeAgentState).get(token)
            stored = self.custom(TOPOLOGIES, "", name_from_token(token))
            self._topologies[token] = (
                topology_of_agent(agent.topology)
                if agent is not None and agent.topology is not None
                else topology_from(stored.object if stored else None)
            )
        return self._topologies[token]

    def device(self, token: str) -> Device | None:
        """Return the parsed Device object of a node, or None if the node has none."""
        if token not in self._devices:
            stored = self.custom(DEVICES, "", name_from_token(token))
            self._devices[token] = device_from(stored.object if stored else None)
        return self._devices[token]

    def device_version(self, token: str) -> int:
        """Return the position of the last event about the node's Device object, or 0 if the node has none."""
        return self.state.last_seq(custom_ref(DEVICES, "", name_from_token(token)))

    def running_on(self, token: str) -> list[str]:
        """Return the uids of the pods that the node's agent last reported as running, in ascending order."""
        agent = self.state.of_kind(NodeAgentState).get(token)
        return agent.running if agent else []

    def evictions_of_job(self, name: str) -> list[str]:
        """Return the uids of the pods whose eviction a PodMigrationJob of this name requested, and that is pending."""
        return list(self._of_job.of(name))

    def evictions_by_agent(self, token: str) -> list[tuple[str, int]]:
        """Return (RFC 3339 time, number of pods) of the last evictions of best-effort pods by the agent of a node."""
        agent = self.state.of_kind(NodeAgentState).get(token)
        return agent.be_evictions if agent else []

    def config(self, namespace: str, name: str) -> ConfigState | None:
        """Return the state of a ConfigMap, or None if it was never observed."""
        return self.state.of_kind(ConfigState).get(namespaced_token(namespace, name))


def _keys(pod: Pod) -> PodKeys:
    """Node: where the API server bound the pod, "" once it has finished. Owners: those that control it."""
    node = name_token(pod.spec.node_name) if pod.status.phase not in FINISHED else ""
    owners = tuple(owner.uid for owner in pod.metadata.owner_references if owner.controller)
    return PodKeys(pod.metadata.namespace, pod.metadata.name, node, owners)
