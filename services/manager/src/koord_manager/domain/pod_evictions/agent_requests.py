"""Evictions that agents decided on: requested in the log; the pods have ended already.

    agent: PodsEvictedByAgent  ->  eviction.<uid>: PodEvictionRequested  ->  gateway, or `evictions`

Source: agent spec, 12.1; event-bus spec, 2.1.
"""

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects.gateway import PodEvictionRequested
from koordcore.state.aggregates import EvictionState, NodeAgentState, PodSpecState

from koord_manager.domain.cluster.view import ManagerView, node_name

INITIATOR = "agent"
REASON = "Evicted"
MOST_PER_ROUND = 200


def agent_requests(view: ManagerView) -> list[Draft]:
    """A request for every pod that an agent evicted and that is still there; one that was asked for stays as it is."""
    asked, specs = view.state.of_kind(EvictionState), view.state.of_kind(PodSpecState)
    drafts: list[Draft] = []
    for token, agent in view.state.of_kind(NodeAgentState).items():
        for uid, reason in agent.evicting.items():
            spec = specs.get(uid)
            if spec is None or uid in asked or spec.object.metadata.deletion_timestamp is not None:
                continue
            meta = spec.object.metadata
            event = PodEvictionRequested(
                namespace=meta.namespace,
                name=meta.name,
                node=node_name(token),
                initiator=INITIATOR,
                reason=REASON,
                message=reason,
            )
            ref = AggregateRef("eviction", uid)
            drafts.append(Draft(ref, event, view.state.last_seq(ref)))
            if len(drafts) == MOST_PER_ROUND:
                return drafts
    return drafts
