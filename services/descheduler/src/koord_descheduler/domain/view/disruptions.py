"""The ledger of disruption: pods that count as unavailable because a component takes them away, whatever the cause.

Migration and drain are refused at the limit of a workload. Preemption, node loss, and evictions by agents, by
recommendations or through the API server are not refused, but they count.

Source:
    descheduler spec, 6.2, 7.3; issue text ("counted over all reasons at once")
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from koordcore.protocol import keys
from koordcore.state import ClusterState
from koordcore.state.aggregates import EvictionState, NodeAgentState
from koordcore.state.pods_of_nodes import is_foreign
from koordcore.stories.disruptions import Cause, cause_of

from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class Disruptions:
    """All disruptions of one moment (descheduler spec, 7.3)."""

    # Uid of a pod whose eviction was requested and is not done -> cause.
    leaving: Mapping[str, Cause] = field(default_factory=dict[str, Cause])
    nodes: Set[str] | None = None  # Names of the nodes that exist and are ready; None: nodes are not looked at
    # Whether replicas without a pod count. They are pods that left and have no successor yet.
    counts_missing: bool = False

    def cause(self, pod: PodView) -> Cause | None:
        """Why a pod is being taken away, even while it is still ready; None if it stays.

        A pod is taken away by a requested eviction, by the soft-eviction annotation, or because its node is not ready
        or does not exist.
        """
        cause = self.leaving.get(pod.uid)
        if cause is None and keys.SOFT_EVICTION in pod.annotations:
            return Cause.DESCHEDULING
        if cause is None and self.nodes is not None and pod.node and pod.node not in self.nodes:
            return Cause.NODE_LOSS
        return cause

    def takes(self, pod: PodView) -> bool:
        """Whether a pod is unavailable: finished, terminating, not ready, or being taken from its workload."""
        return not (pod.is_active and pod.is_ready) or self.cause(pod) is not None

    def missing(self, replicas: int, existing: int) -> int:
        """The replicas of a workload that have no pod. 0 if `counts_missing` is False. `existing`: its pods, in any
        state.
        """
        return max(0, replicas - existing) if self.counts_missing else 0


def disruptions_of(state: ClusterState, nodes: Iterable[NodeView]) -> Disruptions:
    """Pods that an agent evicts count from its own fact on, before the manager requests their eviction."""
    leaving = {
        uid: Cause.AGENT
        for token, agent in state.of_kind(NodeAgentState).items()
        if agent.evicting
        for uid in agent.evicting
        if not is_foreign(state, uid, token)
    }
    leaving |= {uid: cause_of(eviction.request) for uid, eviction in state.of_kind(EvictionState).items()}
    return Disruptions(
        leaving=leaving,
        nodes=frozenset(node.name for node in nodes if node.is_ready),
        counts_missing=True,
    )
