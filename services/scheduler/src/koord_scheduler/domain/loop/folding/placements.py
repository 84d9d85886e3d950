"""Folds placements, releases, nominations and the ledgers of nodes.

`stored` is an event with its position and aggregate in the log, `event` the same event decoded.

Source: event-bus spec, 4.2; scheduler-core spec, 1.3
"""

from koordcore.events.envelope import StoredEvent, name_from_token
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken
from koordcore.events.pod import PodDeviceUnhealthy, PodNominated, PodNominationCleared, PodPlaced, PodReallocated
from koordcore.values.timestamps import unix_seconds

from koord_scheduler.domain.cluster.ledger import Source
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.loop.folding.pods import describe_on
from koord_scheduler.domain.loop.queue.nominator import OUTRANKED
from koord_scheduler.domain.loop.state.state import SchedulerState


def placed(state: SchedulerState, stored: StoredEvent, event: PodPlaced) -> None:
    """Record that the log has placed the pod on a node. No-op if the event was folded already. A decision of this
    scheduler about the pod that is not in the log yet is given up. The node's ledger event, not this one, counts the
    pod on its node (`resources_taken`).
    """
    pod = _record_of(state, stored)
    if pod is None:
        return
    if not pod.name:
        pod.namespace, pod.name = event.namespace, event.name
    pod.node = event.node
    pod.placed_at = unix_seconds(stored.occurred_at) if event.basis is None else event.basis.decided_at
    state.assumed.give_up(pod, stored.event_id, f"the log has placed it on node {event.node}")
    if pod.uid in state.books.quotas.pods:
        state.books.quotas.reserve(pod.uid)
    if pod.subject is not None:  # the node's ledger may have been read ahead, when nothing was known of the pod
        describe_on(state, pod, event.node)
    state.commits.bound(pod, event.node)
    state.assumed.facts_changed(pod, stored.event_id)


def released(state: SchedulerState, stored: StoredEvent) -> None:
    """Record that a pod has lost its node. No-op if the event was folded already."""
    pod = _record_of(state, stored)
    if pod is None:
        return
    state.commits.left_node(pod)
    state.assumed.facts_changed(pod, stored.event_id)


def reallocated(state: SchedulerState, stored: StoredEvent, event: PodReallocated) -> None:
    """Record that the amounts or the allocation of a placed pod changed. No-op if the event was folded already. The new
    amounts themselves come with the event of the node's ledger (`resources_taken`).
    """
    pod = _record_of(state, stored)
    if pod is not None:
        pod.node = event.node
        state.assumed.facts_changed(pod, stored.event_id)


def nominated(state: SchedulerState, stored: StoredEvent, event: PodNominated) -> None:
    """Record that preemption nominated the pod to a node. No-op if the event was folded already."""
    pod = _record_of(state, stored)
    if pod is None:
        return
    if not pod.name:
        pod.namespace, pod.name = event.namespace, event.name
    state.nominator.nominate(pod, event.node)
    if pod.pod is None:
        state.assumed.facts_changed(pod, stored.event_id)


def nomination_cleared(state: SchedulerState, stored: StoredEvent, event: PodNominationCleared) -> None:
    """Record that the pod is no longer nominated to a node. No-op if the event was folded already. If this instance was
    to say so as well, because it does not lead or has just started, it says so no more.
    """
    state.status.writes.withdraw(PodNominationCleared, stored.ref)
    pod = _record_of(state, stored)
    if pod is not None:
        state.nominator.drop(pod.uid)
        pod.left_node = event.node
        state.assumed.facts_changed(pod, stored.event_id)
        if event.reason == OUTRANKED:  # by another scheduler that is active, too
            state.queue.activate((pod.uid,), stored.event_id)


def device_unhealthy(state: SchedulerState, stored: StoredEvent, event: PodDeviceUnhealthy) -> None:
    """Replace the recorded unhealthy devices of a pod by those of the event. No-op if the event was folded already."""
    pod = _record_of(state, stored)
    if pod is None:
        return
    pod.unhealthy = tuple(event.devices)
    if pod.pod is None:
        state.assumed.facts_changed(pod, stored.event_id)


def _record_of(state: SchedulerState, stored: StoredEvent) -> PodRecord | None:
    """Return the record of the pod of a new event of `pod.<uid>`, or None if the event was folded already."""
    uid = stored.ref.id
    pod = state.pods.get(uid)
    if pod is None:
        if stored.seq <= state.deleted.seq_of(uid):
            return None
        pod = state.pods[uid] = PodRecord(uid=uid, spec_event=stored.event_id)
    if stored.seq <= pod.seq:
        return None
    pod.seq = stored.seq
    return pod


def resources_taken(state: SchedulerState, stored: StoredEvent, event: NodeResourcesTaken) -> None:
    """Count the pods of a ledger event on their node, with their allocations. No-op if the event was folded already.
    Placements that wait for this node and conflict with an exclusive allocation of the event are withdrawn.
    """
    node = name_from_token(stored.ref.id)
    if state.assumed.ledgers.advance(node, stored.seq):
        for item in event.pods:
            state.commits.hold(node, item)
            if item.allocation.reservation is not None:
                state.commits.used_reservation(item.uid, item.allocation)
        for item in event.pods:
            state.books.devices.tell_holders(node, item.allocation.devices)
        is_given = any(item.allocation.is_exclusive for item in event.pods)
        state.assumed.recheck_node(node, is_given=is_given)


def resources_returned(state: SchedulerState, stored: StoredEvent, event: NodeResourcesReturned) -> None:
    """Stop counting the pods of a ledger event on their node, and wake pods that may fit now. No-op if the event was
    folded already.
    """
    node = name_from_token(stored.ref.id)
    if state.assumed.ledgers.advance(node, stored.seq):
        for uid in event.pods:
            state.assumed.ledgers.drop(node, uid, Source.LOGGED)
        state.hints.room_appeared(node, stored.event_id)
