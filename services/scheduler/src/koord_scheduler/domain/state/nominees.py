"""Who is nominated where, and when that ends. What a preemption leads to is in `nominating`.

source    scheduler-core spec, 1.3
"""

from koordcore.events.envelope import AggregateRef
from koordcore.events.scheduling.pod import PodNominated, PodNominationCleared
from koordcore.protocol.objects import Pod

from koord_scheduler.domain.commit.status_writes import StatusWrite
from koord_scheduler.domain.pods.info import PodInfo
from koord_scheduler.domain.pods.record import PodRecord, is_alive
from koord_scheduler.domain.state.state import SchedulerState


def nominated(state: SchedulerState, pod: PodRecord, node: str) -> None:
    """The pod is nominated to the node."""
    # Another scheduler's counts for pods of lower priority only: two that wait for each other would wait for ever.
    state.nominations.put(pod.uid, node, pod.priority - (pod.pod is not None and pod.framework is None))


def rivals_on(state: SchedulerState, node: str, pod: PodRecord) -> list[PodInfo]:
    """The pods nominated to a node that this pod may not push aside, as they would count there.

    One that has been decided about meanwhile counts where it is assumed.
    """
    return [
        other.pod_info()
        for uid in state.nominations.rivals(node, pod.uid, pod.priority)
        if (other := state.pods.get(uid)) is not None and other.subject is not None and not other.work_node
    ]


def follow_other_scheduler(state: SchedulerState, pod: PodRecord, spec: Pod) -> None:
    """What another scheduler has promised its pod."""
    node = spec.status.nominated_node_name
    if node and not spec.spec.node_name and is_alive(spec):
        nominated(state, pod, node)
    else:
        state.nominations.drop(pod.uid)


def clear_nomination(state: SchedulerState, pod: PodRecord, reason: str) -> None:
    """A pod that is still waiting is nominated no more; one that was not is no matter."""
    node = state.nominations.node_of(pod.uid)
    if node:
        state.nominations.drop(pod.uid)
        _say_cleared(state, pod.uid, pod.namespace, pod.name, node, reason, pod.trigger)


def nominee_deleted(state: SchedulerState, pod: PodRecord, trigger: str) -> None:
    """A pod is gone, and with it its nomination; one that was not nominated is no matter."""
    node = state.nominations.node_of(pod.uid)
    if node:
        state.forgotten[pod.uid] = max(pod.seq, state.forgotten.get(pod.uid, 0))
        _say_cleared(state, pod.uid, pod.namespace, pod.name, node, "deleted", trigger)


def nominated_too_late(state: SchedulerState, uid: str, event: PodNominated, seq: int, trigger: str) -> None:
    """The log has the nomination of a pod that is deleted by now: it ends at once."""
    state.forgotten[uid] = max(seq, state.forgotten.get(uid, 0))
    _say_cleared(state, uid, event.namespace, event.name, event.node, "deleted", trigger)


def _say_cleared(
    state: SchedulerState, uid: str, namespace: str, name: str, node: str, reason: str, trigger: str
) -> None:
    cleared = PodNominationCleared(namespace=namespace, name=name, node=node, reason=reason)
    state.status_writes.put(StatusWrite(facts=((AggregateRef("pod", uid), cleared),), trigger=trigger))
