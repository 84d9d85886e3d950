"""Coscheduling with the network topology: gangs follow a topology plan, single pods run near their running peers.

The plan for all pending members is made in the attempt of the first pod of the group. It restricts the others.

Source:
    scheduler-core spec, 9
"""

from collections.abc import Hashable, Mapping
from typing import cast

from koordcore.protocol import keys
from koordcore.protocol.objects import Pod

from koord_scheduler.domain.columns.node_columns import IntArray, Rows, row_list
from koord_scheduler.domain.facts.cluster import Cluster
from koord_scheduler.domain.framework.cycle_points import Offers
from koord_scheduler.domain.framework.extension_points import CROSS_NODE_SCORE, FIND_ONE_NODE, FOLLOW_PODS, READ_POD
from koord_scheduler.domain.framework.outcomes import Candidates, Rejection
from koord_scheduler.domain.gang.placement import NoTopologyPlan
from koord_scheduler.domain.gang.topology_plan import needs_plan, plan_round
from koord_scheduler.domain.gang.topology_score import RunningPeers, scale_out_scores
from koord_scheduler.domain.plugins.jobs.coscheduling import Coscheduling
from koord_scheduler.domain.pods.equivalence_classes import PodClass, Subject
from koord_scheduler.domain.pods.info import PodInfo
from koord_scheduler.domain.pods.record import PodRecord


class TopologyCoscheduling(Coscheduling):
    """The plugin Coscheduling with argument `awareNetworkTopology`: plans nodes of a gang by the network topology.

    Attributes:
        peers: Number of running pods on each node by their network-topology-selector.
    """

    extension_points = (*Coscheduling.extension_points, FIND_ONE_NODE, READ_POD, FOLLOW_PODS, CROSS_NODE_SCORE)

    def __init__(self, cluster: Cluster, *, preempts: bool = False) -> None:
        super().__init__(cluster.gangs, preempts=preempts)
        self.cluster = cluster
        self.peers = RunningPeers()

    def concerns(self, pod: Pod) -> bool:
        """Return whether the pod belongs to a gang, or has a network-topology-selector."""
        return super().concerns(pod) or self.read(pod) is not None

    def read(self, pod: Pod) -> Hashable:
        """Return the network-topology-selector of the pod; None without one."""
        return pod.metadata.annotations.get(keys.NETWORK_TOPOLOGY_SELECTOR) or None

    def took(self, row: int, pod_info: PodInfo) -> None:
        """Record the node of a pod with a selector, so that later pods with this selector are placed near it."""
        selector = pod_info.pod_class.aspects.get(self.name) if pod_info.pod_class is not None else None
        if selector is not None:
            self.peers.put(pod_info.uid, cast("str", selector), self.cluster.nodes.names[row])

    def gave(self, row: int, pod_info: PodInfo) -> None:
        """Forget the node of a pod."""
        self.peers.drop(pod_info.uid)

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return False, because no filter uses the recorded nodes."""
        return False

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | None:
        """Reject a member whose gang cannot be scheduled now, or needs a network topology that does not exist."""
        has_topology = self.cluster.topology is not None
        return self.rejected(pod, self.gangs.before_pre_filter(pod.uid, has_topology=has_topology, now=now))

    def find_one_node(self, pod: PodRecord, offers: Offers) -> Rejection | Candidates | None:
        """Plan the whole gang group at its first member, and restrict each member to its planned node.

        Reject the pod if no part of the topology has room for all members, or if the plan has no node for this pod.
        None if its gang is not being scheduled or follows no plan.
        """
        current = self.gangs.round_of(pod.uid)
        if current is None:
            return None
        gather = needs_plan(self.gangs, pod.uid)
        is_first = gather is not None and self.cluster.topology is not None
        if gather is not None and self.cluster.topology is not None:
            slots = offers.slots([member.uid for member in self.gangs.members_to_place(pod.uid)])
            topology = self.cluster.topology
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
        """Return the score by distance to pods with the same selector; None for pods without one."""
        selector = subject.pod_class.aspects.get(self.name)
        return None if selector is None else NearPeers(self, cast("str", selector))

    def peers_of(self, pod: PodRecord) -> Mapping[str, int]:
        """Return node -> number of pods with the network-topology-selector of this pod."""
        return self.peers.of(self._selector(pod))

    def _selector(self, pod: PodRecord) -> str:
        return cast("str", pod.subject.pod_class.aspects.get(self.name, "")) if pod.subject is not None else ""


class NearPeers:
    """Scores nodes higher that are nearer in the network to running pods with the same network-topology-selector.

    Args:
        plugin: Knows the network and the nodes of running pods.
        selector: The network-topology-selector.
    """

    def __init__(self, plugin: TopologyCoscheduling, selector: str) -> None:
        self._plugin = plugin
        self._selector = selector

    def scores(self, feasible: Rows) -> IntArray | None:
        """Return higher scores the nearer a node is to the peers in the network. None without a network topology."""
        cluster = self._plugin.cluster
        if cluster.topology is None:
            return None
        names = [cluster.nodes.names[row] for row in row_list(feasible)]
        return scale_out_scores(cluster.topology, names, self._plugin.peers.of(self._selector))
