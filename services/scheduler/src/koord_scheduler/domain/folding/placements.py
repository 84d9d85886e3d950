"""What the log says of placements and nominations, and of what each node has given to pods.

source    event-bus spec, 4.2; scheduler-core spec, 1.3
"""

from koordcore.events.envelope import StoredEvent, name_from_token
from koordcore.events.scheduling.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.events.scheduling.pod import PodNominated, PodPlaced
from koordcore.values.timestamps import unix_seconds

from koord_scheduler.domain.nodes.ledger import Source
from koord_scheduler.domain.pods.info import PodInfo
from koord_scheduler.domain.pods.on_node import demand_of, pod_info_with
from koord_scheduler.domain.pods.record import PodRecord
from koord_scheduler.domain.state import nominees
from koord_scheduler.domain.state.forget import facts_changed, give_up, recheck_node
from koord_scheduler.domain.state.queueing_hints import room_appeared
from koord_scheduler.domain.state.state import SchedulerState


def placed(state: SchedulerState, stored: StoredEvent, event: PodPlaced) -> None:
    """A pod has a node."""
    pod = _record_of(state, stored)
    if pod is None:
        return
    if not pod.name:
        pod.namespace, pod.name = event.namespace, event.name
    pod.node = event.node
    pod.placed_at = unix_seconds(stored.occurred_at) if event.basis is None else event.basis.decided_at
    give_up(state, pod, stored.event_id)
    if pod.uid in state.cluster.quotas.pods:
        state.cluster.quotas.reserve(pod.uid)
    if pod.subject is not None:  # the node's ledger may have been read ahead, when nothing was known of the pod
        state.ledgers.describe(event.node, pod.pod_info())
    bound(state, pod, event.node)
    facts_changed(state, pod, stored.event_id)


def bound(state: SchedulerState, pod: PodRecord, node: str) -> None:
    """The log has the pod on the node."""
    state.nominations.drop(pod.uid)
    state.explanations.placed(pod, node, state.cluster.gangs.roster)
    framework = state.frameworks.first if pod.framework is None else state.framework_of(pod)
    state.cluster.activated(framework.post_bind(pod, node))


def released(state: SchedulerState, stored: StoredEvent) -> None:
    """A pod has given its place back."""
    pod = _record_of(state, stored)
    if pod is None:
        return
    left_node(state, pod)
    facts_changed(state, pod, stored.event_id)


def left_node(state: SchedulerState, pod: PodRecord) -> None:
    """The log says that the pod has no node any more."""
    pod.node = ""
    state.cluster.quotas.unreserve(pod.uid)
    state.cluster.quota_moves += 1
    state.cluster.activated(state.cluster.gangs.unbound(pod.uid).activate)


def nominated(state: SchedulerState, stored: StoredEvent, event: PodNominated) -> None:
    """A pod is promised a node."""
    pod = _record_of(state, stored)
    if pod is None:
        return
    if not pod.name:
        pod.namespace, pod.name = event.namespace, event.name
    nominees.nominated(state, pod, event.node)
    if pod.pod is None:
        facts_changed(state, pod, stored.event_id)


def nomination_cleared(state: SchedulerState, stored: StoredEvent) -> None:
    """A pod is promised a node no more."""
    pod = _record_of(state, stored)
    if pod is not None:
        state.nominations.drop(pod.uid)
        facts_changed(state, pod, stored.event_id)


def _record_of(state: SchedulerState, stored: StoredEvent) -> PodRecord | None:
    """The pod of a new event of `pod.<uid>`; None when its effect is known already."""
    uid = stored.ref.id
    pod = state.pods.get(uid)
    if pod is None:
        if stored.seq <= state.forgotten.get(uid, 0):
            return None
        pod = state.pods[uid] = PodRecord(uid=uid, spec_event=stored.event_id)
    if stored.seq <= pod.seq:
        return None
    pod.seq = stored.seq
    return pod


def resources_taken(state: SchedulerState, stored: StoredEvent, event: NodeResourcesTaken) -> None:
    """A node has given resources to pods."""
    node = name_from_token(stored.ref.id)
    if state.ledgers.advance(node, stored.seq):
        for item in event.pods:
            state.ledgers.hold(node, occupant_of(state, item), Source.LOGGED)
        recheck_node(state, node)


def resources_returned(state: SchedulerState, stored: StoredEvent, event: NodeResourcesReturned) -> None:
    """A node has them back."""
    node = name_from_token(stored.ref.id)
    if state.ledgers.advance(node, stored.seq):
        for uid in event.pods:
            state.ledgers.drop(node, uid, Source.LOGGED)
        room_appeared(state, node, stored.event_id)


def occupant_of(state: SchedulerState, item: PodOnNode) -> PodInfo:
    """The pod of a ledger event as it counts on the node; with the event's requests if they are others."""
    pod = state.pods.get(item.uid)
    if pod is None or pod.subject is None:
        return PodInfo(item.uid, demand_of(state.nodes, item.requests))
    return pod_info_with(state.nodes, pod, item.requests)
