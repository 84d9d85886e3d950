"""Decides pods: attempt, reserve, assume, permit, and put the placement into the outbox.

    decide_next   one scheduling cycle: a placement, a pod that waits at Permit, or an explanation

The basis of a decision are the positions and counts from which a replay of the log repeats the attempt exactly.

Source: scheduler-core spec, 1; event-bus spec, 4.2
"""

from collections.abc import Iterable

from koordcore.events.envelope import BasedOn
from koordcore.events.explanations import PodGated
from koordcore.events.node_ledger import pod_on_node
from koordcore.events.pod import DecisionBasis
from koordcore.protocol.native_groups import native_group_field
from koordcore.protocol.objects import SCHEDULER_ERROR, SCHEDULING_GATED, WAITING_FOR_GANG
from koordcore.values.allocation import Allocation

from koord_scheduler.domain.cluster.record import PodRecord, on_node
from koord_scheduler.domain.framework.outcomes import Allow, Rejection, Wait
from koord_scheduler.domain.framework.post_filter import NoPreemption
from koord_scheduler.domain.loop.commit.work import Placement
from koord_scheduler.domain.loop.cycle.attempt import Attempt, Found, NotFound, WholeJob
from koord_scheduler.domain.loop.cycle.pod_explanations import PodExplanation, refusal, waited_in_vain, waits_at_permit
from koord_scheduler.domain.loop.cycle.whole_job import place_whole_job
from koord_scheduler.domain.loop.preempt.nominating import apply_preemption
from koord_scheduler.domain.loop.queue.permit import Lost
from koord_scheduler.domain.loop.queue.queued_pod import MAY_BE_TAKEN, Block, QueuedPod
from koord_scheduler.domain.loop.state.assumptions import NODE_LEDGER
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.gang.checks import progress_of
from koord_scheduler.domain.plugins.gang.job_plan import JobFailed


def basis_of(state: SchedulerState, based_on: BasedOn, now: float, *, found: bool = False) -> DecisionBasis:
    """What a replay needs to repeat the attempt. If it found a node (`found`), the state has this decision counted.
    `based_on`: positions of the log that were folded when the attempt began. `now`: Unix seconds.
    """
    return DecisionBasis(
        based_on=based_on,
        ordinal=state.assumed.decisions,
        decided_at=now,
        forgotten=state.assumed.forgotten,
        acknowledged=state.log.acknowledged,
        read_ahead=state.log.read_ahead,
        found=found,
    )


def decide_next(state: SchedulerState, now: float, turn: str = "") -> Placement | list[PodExplanation] | None:
    """Run one scheduling cycle for the next pod. A placement is assumed at once: the next cycle counts the pod on its
    node. A pod that waits at Permit keeps its node meanwhile.

    Args:
        turn: Uid of the waiting pod to attempt; "" for the head of the queue. The next member of a gang whose members
            are being attempted comes first in either case.

    Returns:
        The placement, also of a pod that waits at Permit (of a planned job: that of its last member). Explanations of
            pods that got no node; the list is empty if plugins have handled the failure. None if no pod is ready, or if
            the pod of `turn` may not be attempted. Other pods may have lost their nodes: see `lost_nodes`.
    """
    # 1. next pod: a gang's next member first, else whose turn it is
    queued = _next_pod(state, turn)
    if queued is None:
        return None
    pod = state.pods[queued.uid]
    based_on = BasedOn(state.log.position, state.log.observed)
    # 2. pre-filter, filter, score, choose
    attempt = Attempt(state, pod, queued.subject, now)
    found = attempt.run(based_on)
    if isinstance(found, WholeJob):
        return _place_job(state, queued, attempt, found, based_on, now)
    if isinstance(found, NotFound):
        return _failed(state, pod, queued, found, now)
    # 3. reserve and assume
    work = _assume(state, pod, queued, found, now)
    if isinstance(work, Rejection):
        retries = state.refusals.refused(pod.uid, found.placed.node, now)
        basis = basis_of(state, based_on, now)
        return _refused(state, pod, queued, found, work, now, basis, retries=retries)
    if len(state.refusals):
        state.refusals.forget(pod.uid)
    # 4. permit: go, wait with the node, or lose it
    match attempt.framework.permit(pod, work.node):
        case Allow(waiting=waiting, activate=activate, gang=gang):
            state.assumed.allow([work], waiting, gang)
            state.queue.activate(activate)
        case Wait(seconds=seconds):
            state.assumed.waiting.hold(work, now + seconds)
        case Rejection() as rejection:
            state.assumed.forget([work])
            return _refused(state, pod, queued, found, rejection, now, work.basis)
    return work


def _refused(
    state: SchedulerState,
    pod: PodRecord,
    queued: QueuedPod,
    found: Found,
    rejection: Rejection,
    now: float,
    basis: DecisionBasis | None,
    *,
    retries: bool = False,
) -> list[PodExplanation]:
    """Queue a pod again whose node was refused by a plugin at Reserve or Permit, or by a rule of the node's ledger.
    `retries`: whether it is attempted again after a back-off, without an event: another node may have room.
    """
    if state.queue.get(pod.uid) is not None:
        if retries or rejection.plugin == NODE_LEDGER:
            state.queue.retry_later(pod.uid, now)
        else:
            state.queue.unschedulable(pod.uid, now, _block(state, pod, rejection))
    explanation = refusal(pod, queued, rejection.message, found, now, basis, rejection.condition)
    return _heard(state, explanation, rejection.message)


def _next_pod(state: SchedulerState, turn: str) -> QueuedPod | None:
    plugin = state.frameworks.next_pod
    if plugin is not None:
        while (chosen := plugin.next_pod()).uid:
            if state.queue.get(chosen.uid) is None:
                continue
            watch = state.frameworks.watch
            began = 0.0 if watch is None else watch.clock()
            taken = state.queue.take(chosen.uid, like=chosen.like)
            if watch is not None:
                watch.next_pod_seconds.append(watch.clock() - began)
            return taken
        state.assumed.reject(chosen.plugin, chosen.rejected, chosen.message)
    if not turn:
        return state.queue.pop()
    queued = state.queue.get(turn)
    return state.queue.take(turn) if queued is not None and queued.state in MAY_BE_TAKEN else None


def _assume(
    state: SchedulerState, pod: PodRecord, queued: QueuedPod, found: Found, now: float
) -> Placement | Rejection:
    """Let plugins reserve, and count the pod on its node. A rejection leaves nothing behind."""
    allocation = state.assumed.reserve(pod, found.placed.node)
    if isinstance(allocation, Rejection):
        return allocation
    state.assumed.decisions += 1
    work = _place(state, pod, queued, found, now, allocation)
    state.assumed.assume(pod, work.node, work.on_node.requests, allocation, now)
    state.queue.assumed(queued, state.has_room)
    return work


def _place_job(
    state: SchedulerState, queued: QueuedPod, attempt: Attempt, job: WholeJob, based_on: BasedOn, now: float
) -> Placement | list[PodExplanation]:
    """Place all members of a planned job, or none. Source: scheduler-core spec, 12.1."""
    refused: list[tuple[str, str]] = []

    def assume(pod: PodRecord, member: QueuedPod, found: Found) -> Placement | Rejection:
        work = _assume(state, pod, member, found, now)
        if isinstance(work, Rejection):
            refused.append((pod.uid, found.placed.node))
        return work

    pod = state.pods[queued.uid]
    placed = place_whole_job(state, queued, job, now, assume)
    if isinstance(placed, JobFailed):
        # Only now the nodes are as the next plan will find them: without the members that were assumed.
        retries = [state.refusals.refused(uid, node, now) for uid, node in refused]
        rejection = Rejection(plugin=job.plugin, message=placed.message, is_replayable=False)
        failed = attempt.refused_by_nodes(rejection, based_on)
        return _failed(state, pod, queued, failed, now, retries=any(retries))
    works, waiting = placed
    for work in works if len(state.refusals) else ():
        state.refusals.forget(work.uid)
    gang = state.books.gangs.roster.gang_of(pod.uid)
    state.assumed.allow(works, waiting, "" if gang is None else gang.id)
    return works[-1]


def _failed(
    state: SchedulerState, pod: PodRecord, queued: QueuedPod, found: NotFound, now: float, *, retries: bool = False
) -> list[PodExplanation]:
    """Queue a pod again that found no node. `retries`: see `_refused`."""
    basis = basis_of(state, found.explanation.based_on, now)
    if found.preemption is not None:
        apply_preemption(state, pod, found.preemption, basis)
    rejection = found.rejection
    block = _block(state, pod, rejection) if rejection is not None else None
    refused_by = tuple(exclusion.plugin for exclusion in found.explanation.exclusions)
    if found.is_fault or retries:
        state.queue.retry_later(pod.uid, now)
    else:
        state.queue.unschedulable(pod.uid, now, block, refused_by)
        if isinstance(found.preemption, NoPreemption) and found.preemption.retry_at is not None:
            state.queue.wake_at(pod.uid, found.preemption.retry_at)
    framework = state.frameworks.framework_of(pod)
    failure = framework.after_post_filter(pod, found.message)
    state.assumed.reject(failure.plugin, failure.rejected, failure.message)
    lost = {each.work.uid: each for each in state.assumed.waiting.lost()}
    condition = SCHEDULER_ERROR if found.is_fault else "" if rejection is None else rejection.condition
    current = state.books.gangs.round_of(pod.uid)
    if current is not None and failure.is_root_cause:
        current.failed_condition = condition
    own = refusal(pod, queued, failure.message or found.message, found, now, basis, condition)
    explanations = _heard(state, own, found.message)
    told = failure.tell if state.frameworks.gates.gang_pending_pods_condition_patch else ()
    for uid in (*failure.rejected, *told):
        other, waits = state.pods[uid], state.queue.get(uid)
        with_node = lost.pop(uid, None)
        if waits is not None:
            other_basis = None if with_node is None else with_node.work.basis
            explanation = refusal(other, waits, failure.message, found, now, other_basis, condition)
            explanations += [explanation] if with_node is None else _heard(state, explanation, failure.message)
    # A job preemption has taken their nodes before, but they lack what the failed member lacks.
    members = state.books.gangs.roster.members
    peers = [uid for uid in lost if current is not None and uid in members and members[uid].gang_id in current.gang_ids]
    told_now = _told(state, [lost.pop(uid) for uid in peers], now, condition)
    return explanations + told_now + _told(state, lost.values(), now)


def _block(state: SchedulerState, pod: PodRecord, rejection: Rejection) -> Block:
    """Return what a rejected pod waits for, which it may share with other pods. Pods with the same key of the plugin
    and the same subject form a group, because an event that cannot help its first pod cannot help the others. Pods that
    only their plugin wakes, by name, need only the same key.
    """
    hints = state.frameworks.framework_of(pod).hints.get(rejection.plugin)
    is_woken_by_name = hints is not None and not hints.wakes_on
    return Block(rejection.plugin, rejection.key, None if is_woken_by_name else pod.subject)


def _heard(state: SchedulerState, explanation: PodExplanation, message: str) -> list[PodExplanation]:
    """Notify plugins of a failed attempt, and return its explanation unless a plugin has handled the failure. Source:
    scheduler-core spec, 3 (error handler filters).
    """
    pod = state.pods[explanation.uid]
    framework = state.frameworks.framework_of(pod)
    explanations = [] if framework.is_dealt_with(pod, message) else [explanation]
    framework.after_failure(pod, message)
    return explanations


def _place(
    state: SchedulerState, pod: PodRecord, queued: QueuedPod, found: Found, now: float, allocation: Allocation
) -> Placement:
    assert pod.pod is not None and pod.sort is not None, f"pod {pod.uid} is in the queue without a spec"  # noqa: PT018
    return Placement(
        uid=pod.uid,
        node=found.placed.node,
        namespace=pod.namespace,
        name=pod.name,
        on_node=on_node(pod.uid, pod.pod, pod.sort, allocation)
        if found.resized is None
        else pod_on_node(pod.uid, found.resized, allocation),
        attempt=queued.attempts,
        queued_at=pod.submitted_at,
        explanation=found.placed.explanation,
        trigger=queued.trigger,
        basis=basis_of(state, found.placed.explanation.based_on, now, found=True),
        traceparent=pod.traceparent,
        tracestate=pod.tracestate,
    )


def gated(state: SchedulerState) -> list[PodExplanation]:
    """Return explanations of the pods that have begun to wait for other pods since the last call. PreEnqueue plugins
    keep them out of the queue, or they wait at Permit with a node. A pod that does not wait any more, for example
    because its gang is complete, gets no explanation. Source: scheduler-core spec, pitfall 22.
    """
    explanations = [
        waits_at_permit(work, progress_of(state.books.gangs.roster, work.uid))
        for work in state.assumed.waiting.unexplained()
    ]
    for uid, message in state.queue.gated.items():
        pod = state.pods.get(uid)
        if pod is not None and state.queue.is_gated(uid):
            event = PodGated(
                namespace=pod.namespace,
                name=pod.name,
                message=message,
                reason=_gated_as(state, pod),
                gang=progress_of(state.books.gangs.roster, uid),
            )
            explanations.append(
                PodExplanation(uid=uid, trigger=pod.trigger, traceparent="", tracestate="", event=event)
            )
    state.queue.gated.clear()
    return explanations


def _gated_as(state: SchedulerState, pod: PodRecord) -> str:
    """Return the reason of the condition PodScheduled of a pod that PreEnqueue plugins keep out of the queue."""
    if pod.pod is None or pod.pod.spec.scheduling_gates:
        return SCHEDULING_GATED
    is_member = pod.uid in state.books.gangs.roster.members or native_group_field(pod.pod)
    return WAITING_FOR_GANG if is_member else SCHEDULING_GATED


def settle_waits(state: SchedulerState, now: float) -> list[PodExplanation]:
    """Place pods at Permit whose gang has become complete because of an event. Take the nodes from pods whose time at
    Permit is over, and from the other waiting pods of their gangs. Return explanations of all pods that have lost their
    nodes (`lost_nodes`). Source: scheduler-core spec, 1 (step 13).
    """
    for gang, released in state.books.gangs.take_ready():
        state.assumed.allow((), released.allowed, gang)
        state.queue.activate(released.activate)
    for uid in state.assumed.waiting.overdue(now):
        if uid in state.assumed.waiting:
            state.assumed.give_up_late(state.pods[uid], now)
    return lost_nodes(state, now)


def lost_nodes(state: SchedulerState, now: float) -> list[PodExplanation]:
    """Return explanations of the pods that waited at Permit and have lost their nodes since the last call, because of a
    decision or of a fact. A pod that waits for a node no longer, for example because it was deleted, gets none; neither
    does a pod whose failure a plugin has handled.
    """
    return _told(state, state.assumed.waiting.lost(), now)


def _told(
    state: SchedulerState, lost: Iterable[Lost], now: float, condition: str = WAITING_FOR_GANG
) -> list[PodExplanation]:
    explanations = [waited_in_vain(each, now, condition) for each in lost if state.queue.get(each.work.uid) is not None]
    return [told for explanation in explanations for told in _heard(state, explanation, explanation.message)]
