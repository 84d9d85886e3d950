"""Folds the API's facts about pods: submission, change, binding and deletion."""

import msgspec
from koordcore.events.envelope import StoredEvent
from koordcore.events.gateway import PodBindFailed, PodBound
from koordcore.protocol.annotations.allocation import allocation_of
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.reservations import is_reserve_pod
from koordcore.state.evolution.api_objects import bound_pod
from koordcore.values.allocation import NOTHING, ReservationUse
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import unix_seconds

from koord_scheduler.domain.cluster.ledger import Source
from koord_scheduler.domain.cluster.record import PodRecord, is_alive, is_finished
from koord_scheduler.domain.loop.state.state import SchedulerState


def submitted(state: SchedulerState, stored: StoredEvent, spec: Pod) -> None:
    """Record a submitted or changed pod, and queue it if it waits for a node."""
    submit(state, stored.ref.id, stored, spec)


def submit(state: SchedulerState, uid: str, stored: StoredEvent, spec: Pod) -> None:
    """Add or change the record of a pod or reserve pod, and queue it if it waits for a node."""
    pod = state.pods.get(uid)
    if pod is None:
        pod = state.pods[uid] = PodRecord(uid=uid)
    state.shared.share_own(spec, pod.uid)
    if pod.pod is None:
        pod.submitted_at = state.shared.time(stored.occurred_at)
        pod.traceparent, pod.tracestate = stored.traceparent, stored.headers.get("tracestate", "")
    pod.spec_event = stored.event_id
    profile = pod.subject.profile if pod.subject is not None else ""
    named_before = pod.pod.status.nominated_node_name if pod.pod is not None else ""
    describe(state, pod, spec, unix_seconds(stored.occurred_at))
    pod.untransformed = _untransformed(spec) if pod.sort is not None and pod.sort.is_transformed else None
    named = spec.status.nominated_node_name
    if named != pod.left_node and (named or named_before == pod.left_node):
        pod.left_node = ""  # while the status has not named it, the gateway's write may come yet
    _count_bound(state, pod, "" if is_finished(spec) else spec.spec.node_name, stored.event_id)
    if pod.framework is None and state.frameworks.gates.cross_scheduler_nomination:
        state.nominator.follow_other_scheduler(pod, spec)
    if not pod.work_node:
        state.assumed.reconcile(pod, stored.event_id)
    elif state.frameworks.gates.dynamic_scheduler_check and not _may_be_bound(pod, profile):
        state.assumed.give_up(pod, stored.event_id, "it has changed")
        state.assumed.facts_changed(pod, stored.event_id)
    state.hints.wake_activated(stored.event_id)


def _untransformed(spec: Pod) -> dict[str, int] | None:
    """Return what the object requests. None if that is invalid, and only what plugins made of it can be read."""
    try:
        return pod_requests(spec)
    except InvalidInput:
        return None


def describe(state: SchedulerState, pod: PodRecord, spec: Pod, now: float) -> None:
    """Update the pod's record from its object, and pass the pod to gangs, quotas and plugins. If the pod's requests are
    invalid, its record gets no class, and it is not scheduled. `now`: Unix seconds at which a new pod counts as known.
    """
    try:
        classes = state.cluster.pod_classes
        pod.subject, spec, pod.sort = classes.read_on_node(spec) if spec.spec.node_name else classes.read(spec)
    except InvalidInput:
        # Admission lets no such pod through; one that came by another way is not placed and harms nobody.
        pod.subject = pod.sort = None
        state.cluster.drop_pod(pod.uid)
    pod.pod = spec
    pod.framework = state.frameworks.of(spec)
    pod.namespace, pod.name = spec.metadata.namespace, spec.metadata.name
    pod.known_since = pod.known_since or now
    if pod.subject is None:
        for node in {pod.node, pod.work_node} - {""}:
            state.assumed.ledgers.object_gone(node, pod)
        return
    runs = bool(spec.spec.node_name or pod.node) and not is_finished(spec)
    state.cluster.put_pod(pod.uid, spec, pod.subject.pod_class.requests, assigned=runs)
    for node in sorted({pod.node, pod.work_node, pod.bound_node} - {""}):
        describe_on(state, pod, node)


def describe_on(state: SchedulerState, pod: PodRecord, node: str) -> None:
    """Let a pod count on its node as its object describes it. If it was resized there and takes less now, waiting pods
    may fit. If it takes more, our placements that wait for the node are withdrawn if they do not fit any more.
    """
    before = state.assumed.ledgers.describe(node, pod.pod_info(), is_followed=state.follows_object(pod))
    if before is None or pod.subject is None:
        return
    now = pod.subject.pod_class.requests
    if any(now.get(name, 0) < amount for name, amount in before.requests.items()):
        state.hints.room_appeared(node, pod.spec_event)
    if any(before.requests.get(name, 0) < amount for name, amount in now.items()):
        state.assumed.recheck_node(node)


def read_again_if_concerned(state: SchedulerState, trigger: str) -> None:
    """Read all pods again if a plugin has begun to concern every pod, so that pods are classified anew.
    NodeNUMAResource does once the first node imposes a CPU policy, a NUMA policy or a CPU ratio on all of its pods: at
    most once in a process, usually before the first pod is known. `trigger`: id of the event that changed the node.
    Queued pods name it as the cause of their next decision. "": they keep the event that queued them.
    """
    if not state.cluster.reads_differ:
        return
    state.cluster.reads_differ = False
    state.cluster.pod_classes.forget()
    for pod in list(state.pods.values()):
        if pod.pod is not None and pod.subject is not None:
            describe(state, pod, pod.pod, pod.known_since)
            if state.queue.get(pod.uid) is not None and not pod.work_node:
                state.assumed.reconcile(pod, trigger or pod.trigger)


def read_again_if_offered(state: SchedulerState) -> None:
    """Read pods again that request a resource which a node has offered for the first time. Before that, the resource
    has no column in the node columns. It happens once for each resource of the cluster. Waiting pods keep their places
    in the queue. The node wakes those that fit on it.
    """
    nodes = state.nodes
    if not nodes.first_offered:
        return
    nodes.first_offered.clear()
    state.cluster.pod_classes.forget()
    for pod in list(state.pods.values()):
        demand = pod.subject.pod_class.demand if pod.subject is not None else None
        if pod.pod is not None and demand is not None and demand.unoffered and nodes.is_outdated(demand):
            describe(state, pod, pod.pod, pod.known_since)
            if pod.subject is not None and state.queue.get(pod.uid) is not None:
                state.queue.describe(pod.uid, pod.subject)


def gone(state: SchedulerState, stored: StoredEvent) -> None:
    """No-op if the pod is unknown."""
    removed(state, stored.ref.id, stored.event_id)


def removed(state: SchedulerState, uid: str, trigger: str) -> None:
    """Remove a deleted pod from the queue, gangs and quotas, and reconcile its placement. No-op if it is unknown."""
    pod = state.pods.get(uid)
    if pod is None:
        return
    _count_bound(state, pod, "", trigger)
    state.assumed.give_up(pod, trigger, "it was deleted")
    state.cluster.drop_pod(pod.uid)
    if pod.framework is None:
        state.nominator.drop(pod.uid)
    pod.pod = None
    pod.subject = pod.sort = pod.framework = None
    for node in {pod.node, pod.work_node} - {""}:
        state.assumed.ledgers.object_gone(node, pod)
    pod.spec_event = trigger
    state.queue.remove(pod.uid)
    state.refusals.forget(pod.uid)
    state.assumed.facts_changed(pod, trigger)
    state.hints.wake_activated(trigger)


def bound(state: SchedulerState, stored: StoredEvent, event: PodBound) -> None:
    """Record that the API server bound a pod. No-op if the event does not contain the fields that the binding set."""
    pod = state.pods.get(stored.ref.id)
    if event.bound_at and pod is not None and pod.pod is not None:
        untransformed = pod.untransformed
        submit(state, pod.uid, stored, bound_pod(pod.pod, event))
        pod.untransformed = untransformed


def bind_failed(state: SchedulerState, stored: StoredEvent, event: PodBindFailed) -> None:
    """Record that the API server refused to bind the pod's present placement. No-op for an earlier placement."""
    pod = state.pods.get(stored.ref.id)
    if pod is not None and pod.seq == event.placement:
        pod.bind_failed = pod.seq
        pod.bind_failures += 1
        pod.spec_event = stored.event_id  # cause of the release: each failure needs another release id
        state.assumed.facts_changed(pod, stored.event_id)


def _may_be_bound(pod: PodRecord, profile: str) -> bool:
    """Return whether a changed pod with an unconfirmed node still matches the decision. Source: scheduler-core spec, 3
    (dynamic scheduler check).
    """
    assert pod.pod is not None, f"pod {pod.uid} has no spec"
    return pod.subject is not None and pod.subject.profile == profile and is_alive(pod.pod)


def _count_bound(state: SchedulerState, pod: PodRecord, node: str, trigger: str) -> None:
    """Count the pod on the node to which it is bound at the API server; "" if it is not bound. A pod whose requests are
    invalid counts with what the log has given it only.
    """
    if pod.bound_node and (pod.bound_node != node or pod.subject is None):
        state.assumed.ledgers.drop(pod.bound_node, pod.uid, Source.BOUND)
        state.hints.room_appeared(pod.bound_node, trigger)
        pod.bound_node = ""
    if node and pod.subject is not None:
        hold_bound(state, pod, node)
        pod.bound_node = node


def hold_bound(state: SchedulerState, pod: PodRecord, node: str) -> None:
    """Count a pod on the node where the API says that it runs, with the allocation in its annotations. If our log
    placed the pod there, the log's allocation takes precedence. If another scheduler bound it, our placements that wait
    for the node are withdrawn if they do not fit any more. A reserve pod holds a Reservation that another scheduler
    made available.
    """
    assert pod.pod is not None, f"pod {pod.uid} has no spec"
    allocation = allocation_of(pod.pod.metadata.annotations)
    if is_reserve_pod(pod.pod):
        own = ReservationUse(name=pod.name, uid=pod.uid)
        allocation = msgspec.structs.replace(allocation, reservation=own)
    info = msgspec.structs.replace(pod.pod_info(), is_bound_by_others=pod.node != node)
    if allocation is not NOTHING:
        info = msgspec.structs.replace(info, allocation=allocation)
    state.assumed.ledgers.hold(node, info, Source.BOUND)
    if pod.node != node:
        state.assumed.recheck_node(node, is_given=allocation is not NOTHING)
