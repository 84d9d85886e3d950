"""Coscheduling with the network topology: gangs follow a topology plan, single pods run near their running peers. The
plan for all pending members is made in the attempt of the first pod of the group. `Round.node_set` restricts every
member to its planned node. For one more pod of a running job, nodes near the running pods score better.

Source: scheduler-core spec, 9
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import cast

import numpy as np
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.values.override import override

from koord_scheduler.domain.cluster.equivalence_classes import PodClass, Subject
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.framework.cycle_points import Offers
from koord_scheduler.domain.framework.extension_points import CROSS_NODE_SCORE, FIND_ONE_NODE, FOLLOW_PODS, READ_POD
from koord_scheduler.domain.framework.outcomes import Candidates, Rejection
from koord_scheduler.domain.plugins.gang.book import GangBook
from koord_scheduler.domain.plugins.gang.cache import GangCache
from koord_scheduler.domain.plugins.gang.parameters import GatherRule
from koord_scheduler.domain.plugins.gang.placement import Demand, NoTopologyPlan, TopologyPlan, order_nodes, place
from koord_scheduler.domain.plugins.gang.plugin import Coscheduling
from koord_scheduler.domain.plugins.gang.topology import NetworkTopology


def needs_plan(cache: GangCache, uid: str) -> Sequence[GatherRule] | None:
    """Return the gather rules of the pod's gang if this attempt must plan the nodes of the whole group, else None. The
    attempt must plan if it began the round, the round has no plan yet, and the gang has network topology rules. Without
    the argument `awareNetworkTopology` of Coscheduling, no attempt plans.
    """
    current = cache.round_of(uid)
    gang = cache.roster.gang_of(uid)
    if not cache.args.aware_network_topology or current is None or current.first_uid != uid or current.plan is not None:
        return None
    return None if gang is None or gang.parameters is None else gang.parameters.gather


def plan_round(
    cache: GangCache,
    uid: str,
    gather: Sequence[GatherRule],
    topology: NetworkTopology,
    slots: Mapping[str, int],
    existing: Mapping[str, int],
) -> TopologyPlan | NoTopologyPlan:
    """Plan nodes for all pending members of the pod's group. A plan is stored as `Round.plan`. `slots`: node -> number
    of members that fit on it one after another, by all filters. `existing`: node -> number of running pods of the same
    job, see `RunningPeers`. Result: the plan, or why there is none. Without a plan the pod is unschedulable.
    """
    members = cache.members_to_place(uid)
    found = place(topology, Demand(members=len(members), slots=slots, gather=gather, existing=existing))
    current = cache.round_of(uid)
    if current is not None and isinstance(found, TopologyPlan):
        current.plan = {member.uid: node for member, node in zip(members, found.nodes, strict=True)}
    return found


class RunningPeers:
    """Counts the running pods of each job per node. The annotation network-topology-selector names the job. The full
    key is `scheduling.koordinator.sh/network-topology-selector`.
    """

    def __init__(self) -> None:
        self._where: dict[str, tuple[str, str]] = {}
        self._counts: dict[str, dict[str, int]] = {}

    def of(self, selector: str) -> Mapping[str, int]:
        """Return node -> number of running pods with this network-topology-selector. A node without such pods has no
        entry.
        """
        return self._counts.get(selector, {})

    def put(self, uid: str, selector: str, node: str) -> None:
        """Record that the pod runs on the node. If `selector` or `node` is "", the pod is not counted."""
        self.drop(uid)
        if selector and node:
            self._where[uid] = (selector, node)
            nodes = self._counts.setdefault(selector, {})
            nodes[node] = nodes.get(node, 0) + 1

    def drop(self, uid: str) -> None:
        """Record that the pod no longer runs on any node. No-op if it is not counted."""
        where = self._where.pop(uid, None)
        if where is None:
            return
        selector, node = where
        nodes = self._counts[selector]
        nodes[node] -= 1
        if nodes[node] == 0:
            del nodes[node]
        if not nodes:
            del self._counts[selector]


def scale_out_scores(topology: NetworkTopology, nodes: Sequence[str], existing: Mapping[str, int]) -> IntArray:
    """Return the score of each node: 100 for the best one, 0 for the last.

        100 - 100 * position // (N - 1); a single node has 100

    Args:
        nodes: Names of the candidates, shape (N,).
        existing: Node -> running pods with the pod's selector, see `RunningPeers`.

    Returns:
        int64 (N,), aligned with `nodes`.
    """
    positions = {node: position for position, node in enumerate(order_nodes(topology, nodes, existing))}
    last = max(len(nodes) - 1, 1)
    return np.array([100 - 100 * positions[node] // last for node in nodes], np.int64)


class TopologyCoscheduling(Coscheduling):
    """The plugin Coscheduling with argument `awareNetworkTopology`: plans nodes of a gang by the network topology."""

    extension_points = (*Coscheduling.extension_points, FIND_ONE_NODE, READ_POD, FOLLOW_PODS, CROSS_NODE_SCORE)

    def __init__(self, nodes: NodeColumns, book: GangBook, *, preempts: bool = False) -> None:
        super().__init__(book.cache, preempts=preempts)
        self.nodes = nodes
        self.book = book
        self.peers = RunningPeers()  # Number of running pods on each node by their network-topology-selector

    @override
    def concerns(self, pod: Pod) -> bool:
        return super().concerns(pod) or self.read(pod) is not None

    def read(self, pod: Pod) -> Hashable:
        return pod.metadata.annotations.get(keys.NETWORK_TOPOLOGY_SELECTOR) or None

    def took(self, row: int, pod_info: PodInfo) -> None:
        """Record the node of a pod with a selector, so that later pods with this selector are placed near it."""
        selector = pod_info.pod_class.aspects.get(self.name) if pod_info.pod_class is not None else None
        if selector is not None:
            self.peers.put(pod_info.uid, cast("str", selector), self.nodes.names[row])

    def gave(self, row: int, pod_info: PodInfo) -> None:
        self.peers.drop(pod_info.uid)

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return False, because no filter uses the recorded nodes."""
        return False

    @override
    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | None:
        has_topology = self.book.topology is not None
        return self.rejected(pod, self.gangs.before_pre_filter(pod.uid, has_topology=has_topology, now=now))

    def find_one_node(self, pod: PodRecord, offers: Offers) -> Rejection | Candidates | None:
        """Plan the whole gang group at its first member, and restrict each member to its planned node. Reject the pod
        if no part of the topology has room for all members, or if the plan has no node for this pod. None if its gang
        is not being scheduled or follows no plan.
        """
        current = self.gangs.round_of(pod.uid)
        if current is None:
            return None
        gather = needs_plan(self.gangs, pod.uid)
        is_first = gather is not None and self.book.topology is not None
        if gather is not None and self.book.topology is not None:
            slots = offers.slots([member.uid for member in self.gangs.members_to_place(pod.uid)])
            topology = self.book.topology
            found = plan_round(self.gangs, pod.uid, gather, topology, slots, self.peers_of(pod))
            if isinstance(found, NoTopologyPlan):
                message = found.message(offers.fit_error())
                return Rejection(plugin=self.name, message=message, resolvable=True, is_replayable=False)
        node = current.node_set(pod.uid)
        if node is None:
            return None
        if not node:
            message = f"the plan of the job has no node for pod {pod.uid}"
            return Rejection(plugin=self.name, message=message, is_replayable=False)
        return Candidates(names=frozenset(node), job=current.plan if is_first and current.plan is not None else {})

    def version(self) -> int:
        """Return 0: the score reads the present state at each use, so that it is never outdated."""
        return 0

    def score_for(self, subject: Subject) -> "NearPeers | None":
        selector = subject.pod_class.aspects.get(self.name)
        return None if selector is None else NearPeers(self, cast("str", selector))

    @override
    def peers_of(self, pod: PodRecord) -> Mapping[str, int]:
        return self.peers.of(self._selector(pod))

    def _selector(self, pod: PodRecord) -> str:
        return cast("str", pod.subject.pod_class.aspects.get(self.name, "")) if pod.subject is not None else ""


class NearPeers:
    """Scores nodes higher that are nearer in the network to running pods with the same network-topology-selector."""

    def __init__(self, plugin: TopologyCoscheduling, selector: str) -> None:
        self._plugin = plugin
        self._selector = selector

    def scores(self, feasible: Rows) -> IntArray | None:
        """Return higher scores the nearer a node is to the peers in the network. None without a network topology."""
        topology = self._plugin.book.topology
        if topology is None:
            return None
        names = [self._plugin.nodes.names[row] for row in row_list(feasible)]
        return scale_out_scores(topology, names, self._plugin.peers.of(self._selector))
