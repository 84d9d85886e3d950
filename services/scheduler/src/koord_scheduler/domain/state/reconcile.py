"""What follows for a pod from all that is known of it: queue it, release it, forget it, leave it to others.

source    scheduler-core spec, 2
"""

from koordcore.events.envelope import AggregateRef
from koordcore.protocol.objects import Pod

from koord_scheduler.domain.pods.record import Phase, PodRecord, is_alive, is_finished
from koord_scheduler.domain.state.nominees import nominee_deleted
from koord_scheduler.domain.state.state import SchedulerState

_MOST_FORGOTTEN = 1024


def settle(state: SchedulerState, pod: PodRecord, trigger: str) -> None:
    """Draw the consequences for a pod about which no work of ours is under way.

    trigger    id of the event that changed something
    """
    if pod.node:
        state.queue.remove(pod.uid)
        pod.phase = Phase.PLACED
        reason = _release_reason(state, pod)
        if reason is None:
            state.to_release.pop(pod.uid, None)
        else:
            state.to_release[pod.uid] = (reason, state.node_gone_by.get(pod.node, pod.spec_event))
        return
    state.to_release.pop(pod.uid, None)
    if pod.pod is None:
        nominee_deleted(state, pod, trigger)
        _forget(state, pod)
    elif pod.bound_node:
        state.queue.remove(pod.uid)
        pod.phase = Phase.BOUND
    elif pod.subject is None or pod.framework is None or not is_alive(pod.pod):
        state.queue.remove(pod.uid)
        pod.phase = Phase.OTHERS
        state.cluster.activated(state.cluster.gangs.left_queue(pod.uid).activate)
    else:
        pod.phase = Phase.QUEUED
        pod.trigger = trigger
        _enqueue(state, pod, pod.pod, trigger)


def _release_reason(state: SchedulerState, pod: PodRecord) -> str | None:
    if pod.pod is None:
        return "deleted"
    if is_finished(pod.pod):
        return "finished"
    if state.nodes.row(pod.node) is None:
        return "node-gone"
    return "bind-failed" if pod.bind_failed == pod.seq else None


def _enqueue(state: SchedulerState, pod: PodRecord, spec: Pod, trigger: str) -> None:
    assert pod.subject is not None
    priority = spec.spec.priority or 0
    queued = state.queue.get(pod.uid)
    if queued is None or not queued.is_same(pod.subject, priority):
        state.queue.add(pod.uid, pod.subject, priority, trigger)
    else:
        state.queue.recheck(pod.uid)


def _forget(state: SchedulerState, pod: PodRecord) -> None:
    state.queue.remove(pod.uid)
    state.nominations.drop(pod.uid)
    state.evictions.pop(pod.uid, None)
    state.status_writes.seqs.pop(AggregateRef("eviction", pod.uid), None)
    del state.pods[pod.uid]
    if pod.seq > state.position:
        state.forgotten[pod.uid] = pod.seq
    if len(state.forgotten) > _MOST_FORGOTTEN:
        state.forgotten = {uid: seq for uid, seq in state.forgotten.items() if seq > state.position}
