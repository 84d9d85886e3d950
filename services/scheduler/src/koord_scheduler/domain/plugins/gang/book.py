"""The book of Coscheduling: gangs and the network of the cluster, and their published statuses.

Source: scheduler-core spec, 8.9, 9
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from koordcore.events.cluster import ClusterTopologyComputed, TopologyDomain
from koordcore.events.envelope import AggregateRef, Event, namespaced_from_token
from koordcore.events.gang import GangPhaseChanged
from koordcore.protocol.objects import Node, Pod, object_from_json
from koordcore.values import codec
from koordcore.values.codec import array_pieces, object_pieces
from koordcore.values.override import override

from koord_scheduler.domain.cluster.equivalence_classes import scheduler_name_of
from koord_scheduler.domain.cluster.forgetting import Forgetting
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_shape import NodeShape
from koord_scheduler.domain.config.koordinator_args import CoschedulingArgs
from koord_scheduler.domain.framework.books import Book
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.plugins.gang.cache import GangCache
from koord_scheduler.domain.plugins.gang.group import ChildState, KnownGang
from koord_scheduler.domain.plugins.gang.parameters import PodGroup, PodGroupStatus, gang_id_of
from koord_scheduler.domain.plugins.gang.topology import (
    READ_OBJECT,
    ClusterNetworkTopology,
    NetworkTopology,
    layers_of,
)

POD_GROUPS: Final = "podgroups"
TOPOLOGIES: Final = "clusternetworktopologies"
TOPOLOGY_REF: Final = AggregateRef("clustertopology", READ_OBJECT)


class GangFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What neither PodGroups nor pods tell: published statuses, gangs that pods alone define, satisfied groups."""

    said: list[GangPhaseChanged]
    said_topology: ClusterTopologyComputed | None
    gangs: list[KnownGang]
    satisfied: list[str]


_NOTHING: Final = GangFacts(said=[], said_topology=None, gangs=[], satisfied=[])


class GangBook(Book):
    """All gangs, and the tree of the network. A gang's status counts as published when the log has stored it, the
    network's before; if the log refuses it, no longer.
    """

    name = "Coscheduling"
    plurals = frozenset({POD_GROUPS, TOPOLOGIES})
    kinds = frozenset({"gang", TOPOLOGY_REF.kind})
    facts_type = GangFacts

    def __init__(self, cluster: Cluster, args: CoschedulingArgs | None = None) -> None:
        self.cache = GangCache(args)  # The gangs and their groups
        self.topology: NetworkTopology | None = None  # None if there is no ClusterNetworkTopology
        self.published: dict[str, GangPhaseChanged] = {}  # `namespace/name` -> last published status of a gang
        # Last published status of the network; None if nothing was published.
        self.said_topology: ClusterTopologyComputed | None = None
        # The tree from which it was last computed, and the tree's `moves` at that time.
        self.topology_seen: tuple[NetworkTopology | None, int] = (None, 0)
        self._cluster = cluster
        self._forgetting = Forgetting()
        self._restoring = _NOTHING

    @override
    def put_object(self, plural: str, document: object) -> Sequence[str]:
        if plural == POD_GROUPS:
            self._cluster.activated(self.cache.pod_group_seen(object_from_json(document, PodGroup)).activate)
            return ()
        topology = object_from_json(document, ClusterNetworkTopology)
        layers = layers_of(topology) if topology.metadata.name == READ_OBJECT else None
        if layers is not None and (self.topology is None or self.topology.layers != tuple(layers)):
            nodes = self._cluster.nodes
            self.topology = NetworkTopology(layers, ((name, nodes.labels_of(name)) for name in nodes.node_names()))
        return ()

    @override
    def drop_object(self, plural: str, namespace: str, name: str) -> Sequence[str]:
        if plural == POD_GROUPS:
            self._cluster.activated(self.cache.pod_group_deleted(f"{namespace}/{name}").activate)
            self.published.pop(f"{namespace}/{name}", None)
        elif name == READ_OBJECT:
            self.topology = self.said_topology = None
        return ()

    @override
    def put_node(self, row: int, node: Node, shape: NodeShape) -> None:
        if self.topology is not None:
            self.topology.put_node(node.metadata.name, node.metadata.labels)

    @override
    def drop_node(self, row: int, name: str) -> None:
        if self.topology is not None:
            self.topology.remove_node(name)

    @override
    def put_pod(self, uid: str, pod: Pod, requests: Mapping[str, int], *, assigned: bool) -> None:
        if uid in self.cache.roster.members or gang_id_of(pod):
            scheduler = scheduler_name_of(pod)
            other = "" if scheduler in self._cluster.schedulers else scheduler
            self._cluster.activated(self.cache.pod_seen(uid, pod, other).activate)

    @override
    def drop_pod(self, uid: str) -> None:
        self._cluster.activated(self.cache.pod_deleted(uid).activate)

    # --- statuses ----------------------------------------------------------------------------------------------------

    @override
    def apply(self, event: Event) -> None:
        if isinstance(event, ClusterTopologyComputed):
            self.said_topology = event
        elif isinstance(event, GangPhaseChanged):
            gang_id = f"{event.namespace}/{event.name}"
            gang = self.cache.roster.gang(gang_id)
            if gang is not None and gang.has_pod_group:
                gang.status = status_of(event)
            self.stored(event)

    @override
    def stored(self, event: Event) -> None:
        if isinstance(event, GangPhaseChanged):
            self.published[f"{event.namespace}/{event.name}"] = event
            if self._forgetting.is_due(len(self.published)):
                known = self.cache.roster.gangs
                self.published = {gang_id: said for gang_id, said in self.published.items() if gang_id in known}
                self._forgetting.searched(len(self.published))

    @override
    def unsaid(self, event: Event, *, again: bool) -> None:
        if isinstance(event, ClusterTopologyComputed):
            if self.said_topology is event:
                self.said_topology = None
            if again:
                self.topology_seen = (None, 0)
        elif isinstance(event, GangPhaseChanged):
            gang_id = f"{event.namespace}/{event.name}"
            gang = self.cache.roster.gang(gang_id)
            if gang is not None and gang.has_pod_group:
                before = self.published.get(gang_id)
                gang.status = PodGroupStatus() if before is None else status_of(before)
                if again:
                    self.cache.roster.touched[gang_id] = None

    @override
    def exists(self, ref: AggregateRef) -> bool:
        return ref.kind != "gang" or "/".join(namespaced_from_token(ref.id)) in self.cache.roster.gangs

    # --- snapshots ---------------------------------------------------------------------------------------------------

    @override
    def facts(self, under_way: Container[AggregateRef]) -> Iterator[bytes]:
        topology = None if TOPOLOGY_REF in under_way else self.said_topology
        return object_pieces(
            {
                "said": array_pieces([self.published[gang_id] for gang_id in sorted(self.published)]),
                "said_topology": iter([codec.encode(topology)]),
                "gangs": array_pieces(self.cache.roster.known_gangs()),
                "satisfied": array_pieces(self._satisfied()),
            }
        )

    @override
    def hashed(self) -> Iterator[tuple[str, object]]:
        for gang_id, gang in self.cache.roster.gangs.items():
            members = None if gang.parameters is None else gang.parameters.min_members
            yield gang_id, (gang.group is not None, gang.has_pod_group, members, sorted(gang.known))

    def _satisfied(self) -> Iterator[str]:
        yield from self.cache.roster.satisfied_groups()

    @override
    def restore(self, facts: bytes) -> None:
        self._restoring = codec.decode(facts, GangFacts)
        for said in self._restoring.said:
            self.apply(said)
        self.said_topology = self._restoring.said_topology

    @override
    def pod_facts(self, uid: str) -> str:
        member = self.cache.roster.members.get(uid)
        return "" if member is None else member.state.name

    @override
    def restore_pod(self, uid: str, facts: str) -> None:
        if uid in self.cache.roster.members:
            self.cache.roster.restore_state(uid, ChildState[facts])

    @override
    def restored(self, holders: Callable[[str], Mapping[str, PodInfo]]) -> None:
        restoring, self._restoring = self._restoring, _NOTHING
        for gang in restoring.gangs:
            self.cache.roster.restore(gang)
        self.cache.roster.satisfy(restoring.satisfied)
        self.cache.restored()

    @override
    def waits_with_others(self, uid: str) -> bool:
        return self.cache.roster.gang_of(uid) is not None


def status_of(event: GangPhaseChanged) -> PodGroupStatus:
    """Return the event's status in the form of `PodGroup.status`."""
    return PodGroupStatus(**{name: getattr(event, name) for name in PodGroupStatus.__struct_fields__})


def topology_event(topology: NetworkTopology) -> ClusterTopologyComputed:
    """Return an event with all domains of the network and their numbers of nodes."""
    domains = [
        TopologyDomain(
            layer=each.topology_info.topology_layer,
            name=each.topology_info.topology_name,
            parent_layer=each.parent_topology_info.topology_layer if each.parent_topology_info is not None else "",
            parent_name=each.parent_topology_info.topology_name if each.parent_topology_info is not None else "",
            child_layer=each.child_topology_layer,
            children=each.child_topology_names,
            nodes=each.node_num,
        )
        for each in topology.detail_status()
    ]
    return ClusterTopologyComputed(name=READ_OBJECT, domains=domains)
