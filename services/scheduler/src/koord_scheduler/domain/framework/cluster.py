"""The facts about the cluster that plugins share, whatever the profile.

The fold calls this module for each fact, and the fact is passed to everything that keeps state about it. Effects on
waiting pods are only collected here (`activate`, `QuotaManager.moves`), because the queue decides about these.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar, cast

from koordcore.protocol.hardware.node_topology import NodeResourceTopology
from koordcore.protocol.objects import Namespace, Node, Pod, Workload, object_from_json
from koordcore.protocol.quota import quota_spec
from koordcore.protocol.reservations import PLURAL, reservation_from_json
from koordcore.protocol.scheduling_objects import (
    ElasticQuota,
    PodDisruptionBudget,
    SelectingController,
    Service,
)
from koordcore.protocol.storage import has_ephemeral_claims
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.cluster.accounting import LowestPriorities, NodeAccounting
from koord_scheduler.domain.cluster.equivalence_classes import PodClasses, PodTransformers
from koord_scheduler.domain.cluster.population import Population
from koord_scheduler.domain.cluster.selectors import DisruptionBudgets, OwnerSelectors
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.columns.node_shape import NodeShape
from koord_scheduler.domain.config.koordinator_args import CoschedulingArgs, ElasticQuotaArgs
from koord_scheduler.domain.framework.extension_points import (
    CONCERNS,
    FOLLOW_NODES,
    FOLLOW_PODS,
    READ_POD,
    READ_SHAPE,
    SETTLE,
)
from koord_scheduler.domain.framework.fact_points import NodeFollower, PodFollower, SettlingPlugin
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.framework.node_points import ConcernedPlugin, PodReader
from koord_scheduler.domain.framework.plugin import Plugin, declares
from koord_scheduler.domain.framework.topology_hints import Affinities
from koord_scheduler.domain.plugins.device.inventories import Inventories
from koord_scheduler.domain.plugins.gang.cache import GangCache
from koord_scheduler.domain.plugins.gang.outcomes import Consequences
from koord_scheduler.domain.plugins.gang.parameters import PodGroup, gang_id_of
from koord_scheduler.domain.plugins.gang.topology import ClusterNetworkTopology, Layer, NetworkTopology, layers_of
from koord_scheduler.domain.plugins.numa.books import NumaBooks
from koord_scheduler.domain.plugins.quota.changes import QuotaChanges
from koord_scheduler.domain.plugins.quota.manager import QuotaManager
from koord_scheduler.domain.plugins.quota.specs import pod_facts
from koord_scheduler.domain.plugins.reservation.books import ReservationBooks
from koord_scheduler.domain.plugins.reservation.owners import Group
from koord_scheduler.domain.plugins.volumes.books import VolumeBooks
from koord_scheduler.domain.plugins.volumes.storage_objects import (
    STORAGE_PLURALS,
    TakenVolumes,
    drop_storage,
    put_storage,
)

T = TypeVar("T", bound=Plugin)
ConfigReader: TypeAlias = Callable[[Mapping[str, str]], list[str]]
"""Takes the data of a ConfigMap, empty if it was deleted, and returns a sentence for each entry that it ignores."""
DEFAULT_TOPOLOGY: Final = "default"
NODE_TOPOLOGIES: Final = "noderesourcetopologies"
RESERVATIONS: Final = PLURAL
CONTROLLER_PLURALS: Final = {
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "deployments": "Deployment",
    "jobs": "Job",
}
"""Controllers that come as plain objects.

With an API server, it creates their pods; the scheduler reads the selector.
"""
PLURALS: Final = frozenset(
    {
        "elasticquotas",
        "podgroups",
        "clusternetworktopologies",
        "scheduleexplanations",
        "poddisruptionbudgets",
        "services",
        "devices",
        RESERVATIONS,
        NODE_TOPOLOGIES,
        *CONTROLLER_PLURALS,
        *STORAGE_PLURALS,
    }
)
"""The kinds of objects that placement reads, besides pods, nodes, namespaces and workloads."""


class Cluster:
    """State of the cluster that plugins of all profiles read: nodes, pods, quotas, gangs, volumes, devices.

    Attributes:
        gates: The feature gates.
        nodes: All nodes as arrays.
        population: Numbers of pods on nodes, by selector, for affinity and spread constraints.
        owners: Selectors of services and controllers.
        pod_classes: Equivalence classes of pods.
        accounting: Counts a pod on its node, in `nodes`, `population` and plugins.
        numa: CPUs and NUMA zones of nodes, and their use by pods.
        has_concerned_all: Whether all pods were read again after the first node with a NUMA policy for all of its pods.
        affinities: NUMA zones of the pod at Reserve, for all plugins that allocate inside zones.
        reservations: The Reservations, and the amounts that pods use of them.
        fresh_owners: Groups of Reservations with new owner rules. The fold reads pods again for them and empties it.
        devices: The devices of each node, as its Device object states them.
        activate: Uids of pods that shall be attempted because of folded facts. The queue takes them out.
        warnings: Sentences about facts that are valid but probably unintended, the last 1000. `StateFold` takes them.
    """

    def __init__(
        self,
        quota: ElasticQuotaArgs | None = None,
        gang: CoschedulingArgs | None = None,
        gates: SchedulerGates | None = None,
    ) -> None:
        self.gates = gates = gates or SchedulerGates()
        transformers = PodTransformers(
            priority=gates.priority_transformer,
            preemption_policy=gates.preemption_policy_transformer,
            replace_resources=gates.replace_resources_transformer,
        )
        self.nodes = NodeColumns()
        self.population = Population(self.nodes)
        self.owners = OwnerSelectors()
        self.volumes = VolumeBooks(self.nodes)
        self.budgets = DisruptionBudgets()
        self.quotas = QuotaManager(quota, gates)
        self.quota_changes = QuotaChanges(self.quotas)
        self.gangs = GangCache(gang)
        self.topology: NetworkTopology | None = None
        self.pod_classes = PodClasses(self.nodes, [self.volumes], transformers)
        self.priorities = LowestPriorities()
        self.accounting = NodeAccounting(self.nodes, self.population, [self.priorities, self.volumes])
        self.node_followers: list[NodeFollower] = []
        self.settling_plugins: list[SettlingPlugin] = []
        self.numa = NumaBooks(self.nodes)
        self.reservations = ReservationBooks(
            self.nodes,
            self.population,
            omits_node_labels=gates.omit_node_labels_for_reservation,
            skips_node=gates.skip_reservation_fits_node,
        )
        self.fresh_owners: list[Group] = []
        self.pod_classes.named = self._read_of_name
        self.accounting.allocations += [self.numa, self.reservations, TakenVolumes(self.volumes)]
        self.accounting.operating = self.reservations.operating
        self.has_concerned_all = False
        self.affinities = Affinities()
        self.devices = Inventories(lambda name: self.nodes.row(name) is not None)
        self._configs: dict[tuple[str, str], list[ConfigReader]] = {}
        self._shared: list[tuple[str, object, Plugin]] = []
        self._joined: list[Plugin] = []
        self.activate: dict[str, None] = {}
        self.warnings: deque[str] = deque(maxlen=1000)

    def _read_of_name(self, pod: Pod) -> tuple[Hashable, ...]:
        """Return the inputs of decisions that depend on a pod's own name or uid; usually none."""
        groups = self.reservations.owners.named(pod)
        return (*groups, pod.metadata.name) if has_ephemeral_claims(pod) else groups

    def shared(self, name: str, key: object, make: Callable[[], T]) -> T:
        """Return a plugin instance that all profiles with equal arguments share. Create it on the first call.

        Args:
            name: Name of the plugin.
            key: Its arguments; None if it takes none.
            make: Creates the instance.
        """
        for known, known_key, plugin in self._shared:
            if known == name and known_key == key:
                return cast("T", plugin)
        plugin = make()
        self._shared.append((name, key, plugin))
        return plugin

    def join(self, plugin: Plugin) -> None:
        """Register a plugin for notifications of nodes and pods, and for reading pods, as its extension points declare.

        No-op if the plugin is registered already.
        """
        if any(plugin is known for known in self._joined):
            return
        self._joined.append(plugin)
        bit = 0
        if declares(plugin, CONCERNS):
            bit = 1 << len(self.pod_classes.concerned)
            self.pod_classes.concerned.append(cast("ConcernedPlugin", plugin))
        if declares(plugin, FOLLOW_NODES):
            self.node_followers.append(cast("NodeFollower", plugin))
        if declares(plugin, SETTLE):
            self.settling_plugins.append(cast("SettlingPlugin", plugin))
        if declares(plugin, FOLLOW_PODS):
            follower = cast("PodFollower", plugin)
            if bit:
                self.accounting.concerned.append((bit, follower))
            else:
                self.accounting.followers.append(follower)
        if declares(plugin, READ_POD):
            self.pod_classes.readers.append(cast("PodReader", plugin))
        if declares(plugin, READ_SHAPE):
            self.pod_classes.shape_readers.add(plugin.name)

    def settle(self) -> None:
        """Call `settle` of the plugins that compute the effects of many changes at once (SettlingPlugin)."""
        for plugin in self.settling_plugins:
            plugin.settle()

    def put_node(self, row: int, node: Node, shape: NodeShape) -> None:
        """Notify plugins, quotas and the network topology of a new or changed node. The columns have its shape already.

        Args:
            row: Position of the node in the node columns.
            node: The node object.
            shape: Its labels, taints and allocatable after the manager's decisions.
        """
        for follower in self.node_followers:
            follower.put_node(row, node)
        self.numa.put_node(row, node)
        self.reservations.node_changed(row)
        name = node.metadata.name
        self.quotas.set_node(name, shape.allocatable)
        if self.topology is not None:
            self.topology.put_node(name, node.metadata.labels)
        self.quotas.moves += 1

    def drop_node(self, row: int, name: str) -> None:
        """Notify plugins, quotas and the network topology that the node at position `row` is deleted."""
        for follower in self.node_followers:
            follower.drop_node(row)
        self.numa.drop_node(row)
        self.reservations.node_gone(name)
        self.quotas.remove_node(name)
        if self.topology is not None:
            self.topology.remove_node(name)
        self.quotas.moves += 1

    def put_pod(self, uid: str, pod: Pod, requests: dict[str, int], *, assigned: bool) -> None:
        """Record a new or changed pod in gangs and quotas.

        Args:
            uid: Uid of the pod.
            pod: Its object.
            requests: Its requests: milli-cores, bytes, whole units.
            assigned: Whether it has a node and is not terminated.
        """
        if uid in self.gangs.roster.members or gang_id_of(pod):
            self._follow(self.gangs.pod_seen(uid, pod))
        self.quotas.pod_seen(pod_facts(uid, pod, requests, self.quotas.gates), assigned=assigned)

    def drop_pod(self, uid: str) -> None:
        """Remove a deleted pod from gangs and quotas.

        If it waited at Permit, the caller has released its node before.
        """
        self._follow(self.gangs.pod_deleted(uid))
        self.volumes.waiting.wait_no_longer(uid)
        self.quotas.pod_gone(uid)
        self.quotas.moves += 1

    def put_namespace(self, namespace: Namespace) -> None:
        """Add or replace a namespace."""
        self.population.put_namespace(namespace.metadata.name, namespace.metadata.labels)

    def drop_namespace(self, name: str) -> None:
        """Remove a namespace."""
        self.population.drop_namespace(name)

    def put_workload(self, workload: Workload) -> None:
        """Record the selector of a controller, such as a ReplicaSet, that owns pods."""
        meta = workload.metadata
        self.owners.put_controller(workload.kind, meta.namespace, meta.name, workload.selector)

    def drop_workload(self, workload: Workload) -> None:
        """Forget the selector of a deleted controller."""
        self.owners.put_controller(workload.kind, workload.metadata.namespace, workload.metadata.name, None)

    def follow_config(self, namespace: str, name: str, read: ConfigReader) -> None:
        """Register `read`, which gets the data of a ConfigMap at each change. Others are not kept."""
        self._configs.setdefault((namespace, name), []).append(read)

    def put_config(self, namespace: str, name: str, data: Mapping[str, str]) -> bool:
        """Pass the data of a ConfigMap to its readers. Return whether it has any.

        Args:
            namespace: Namespace of the ConfigMap.
            name: Name of the ConfigMap.
            data: Its data; empty if it was deleted.
        """
        readers = self._configs.get((namespace, name), ())
        for read in readers:
            self.warnings += [f"ConfigMap {namespace}/{name}: {problem}" for problem in read(data)]
        return bool(readers)

    def put_object(self, plural: str, document: object) -> bool:
        """Add or replace an API object (decoded JSON). Return False if it is invalid: it is ignored, with a warning.

        No-op for kinds that placement does not read. `plural` is the plural name of the kind.
        """
        try:
            self._put_object(plural, document)
        except (codec.DecodeError, InvalidInput) as error:
            self.warnings.append(f"an object of {plural} cannot be read and is passed over: {error}")
            return False
        return True

    def _put_object(self, plural: str, document: object) -> None:
        match plural:
            case "elasticquotas":
                quota = object_from_json(document, ElasticQuota)
                spec = quota_spec(quota.metadata, quota.spec.min, quota.spec.max)
                self.quotas.written.add(spec.name)
                self.warnings += self.quotas.upsert_quota(spec).warnings
                self.quotas.moves += 1
            case "podgroups":
                self._follow(self.gangs.pod_group_seen(object_from_json(document, PodGroup)))
            case "clusternetworktopologies":
                topology = object_from_json(document, ClusterNetworkTopology)
                if topology.metadata.name == DEFAULT_TOPOLOGY:
                    self._put_topology(layers_of(topology))
            case "noderesourcetopologies":
                self.numa.put_topology(object_from_json(document, NodeResourceTopology))
            case "poddisruptionbudgets":
                self.budgets.put(object_from_json(document, PodDisruptionBudget))
            case "services":
                service = object_from_json(document, Service)
                meta = service.metadata
                self.owners.put_service(meta.namespace, meta.name, service.spec.selector)
            case "reservations":
                fresh = self.reservations.put(reservation_from_json(document))
                if fresh is not None:
                    self.fresh_owners.append(fresh)
            case "devices":
                self.warnings += self.devices.put(document)
            case _ if plural in STORAGE_PLURALS:
                put_storage(self.volumes, plural, document)
                self.activated(self.volumes.waiting.take_woken())
            case _ if plural in CONTROLLER_PLURALS:
                owner = object_from_json(document, SelectingController)
                kind, meta = CONTROLLER_PLURALS[plural], owner.metadata
                self.owners.put_controller(kind, meta.namespace, meta.name, owner.spec.selector)
            case _:
                pass

    def _put_topology(self, layers: Sequence[Layer]) -> None:
        """Set the layers of the network. No-op if only the status of the object changed."""
        if self.topology is not None and self.topology.layers == tuple(layers):
            return
        labels = ((name, self.nodes.labels_of(name)) for name in self.nodes.node_names())
        self.topology = NetworkTopology(layers, labels)

    def drop_object(self, plural: str, namespace: str, name: str) -> None:
        """Remove a deleted API object. No-op for kinds that placement does not read."""
        match plural:
            case "elasticquotas":
                self.quotas.written.discard(name)
                self.warnings += self.quotas.delete_quota(name).warnings
                self.quotas.moves += 1
            case "podgroups":
                self.gangs.roster.forget_pod_group(f"{namespace}/{name}")
            case "clusternetworktopologies" if name == DEFAULT_TOPOLOGY:
                self.topology = None
            case "noderesourcetopologies":
                self.numa.drop_topology(name)
            case "poddisruptionbudgets":
                self.budgets.drop(namespace, name)
            case "services":
                self.owners.drop_service(namespace, name)
            case "reservations":
                self.reservations.drop(name)
            case "devices":
                self.devices.drop(name)
            case _ if plural in STORAGE_PLURALS:
                drop_storage(self.volumes, plural, namespace, name)
                self.activated(self.volumes.waiting.take_woken())
            case _ if plural in CONTROLLER_PLURALS:
                self.owners.put_controller(CONTROLLER_PLURALS[plural], namespace, name, None)
            case _:
                pass

    def take_activated(self) -> list[str]:
        """Return the uids of pods to attempt because of facts folded since the last call, and forget them."""
        uids = list(self.activate)
        self.activate.clear()
        return uids

    def activated(self, uids: Iterable[str]) -> None:
        """Record the uids of pods that shall be attempted because of a fact, until `take_activated`."""
        self.activate.update(dict.fromkeys(uids))

    def _follow(self, consequences: Consequences) -> None:
        self.activated(consequences.activate)
