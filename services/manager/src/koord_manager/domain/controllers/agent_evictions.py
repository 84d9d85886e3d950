"""Request the eviction of pods that node agents have ended.

The agent publishes `PodsEvictedByAgent`. The manager answers with `PodEvictionRequested` for each pod, which the
gateway or `standalone.evictions` carries out.

Source:
    agent spec, 12.1; event-bus spec, 2.1
"""

from koordcore.events.envelope import AggregateRef, Draft, name_from_token
from koordcore.events.gateway import PodEvictionRequested
from koordcore.state.aggregates import EvictionState, NodeAgentState, PodSpecState
from koordcore.state.pods_of_nodes import is_foreign

from koord_manager.domain.cluster.view import ManagerView

INITIATOR = "agent"
REASON = "Evicted"


def agent_requests(view: ManagerView, token: str) -> list[Draft]:
    """Return the fact `PodEvictionRequested` for each existing pod that the agent of a node reported as evicted.

    Pods with an eviction request are left out, and pods of other nodes: an agent may end those of its node only.
    """
    requested, specs = view.state.of_kind(EvictionState), view.state.of_kind(PodSpecState)
    agent = view.state.of_kind(NodeAgentState).get(token)
    drafts: list[Draft] = []
    for uid, reason in agent.evicting.items() if agent is not None else ():
        spec = specs.get(uid)
        if spec is None or uid in requested or spec.object.metadata.deletion_timestamp is not None:
            continue
        if is_foreign(view.state, uid, token):
            continue
        meta = spec.object.metadata
        event = PodEvictionRequested(
            namespace=meta.namespace,
            name=meta.name,
            node=name_from_token(token),
            initiator=INITIATOR,
            reason=REASON,
            message=reason,
        )
        ref = AggregateRef("eviction", uid)
        drafts.append(Draft(ref, event, view.state.last_seq(ref)))
    return drafts
