"""Decisions on top of the fold: assume, hand to the outbox, and settle with what the log answers.

    decide_next   one scheduling cycle: work into the outbox, a pod that waits with its node, or a verdict
    release_due   work for everything that has to give its place back
    drafts_of     what a batch appends, with its expectations
    confirmed     the batch is in the log
    refused       it is not: every assumption of it is taken back

source    event-bus spec, 4.2 and 4.3; scheduler-core spec, 1
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, namespaced_token
from koordcore.events.gang import GangPlaced, PlacedMember
from koordcore.events.pod import Turn
from koordcore.events.verdict import DecisionAbandoned, PodGated, PodUnschedulable

from koord_scheduler.domain.attempt import Attempt, Found, NotFound, WholeJob
from koord_scheduler.domain.folding.placements import bound, left_node, occupant_of
from koord_scheduler.domain.gang.bind_annotations import bind_annotations
from koord_scheduler.domain.gang.job_plan import JobFailed
from koord_scheduler.domain.ledger import Source
from koord_scheduler.domain.on_node import on_node
from koord_scheduler.domain.plugins.interface import Allow, Rejection, Wait
from koord_scheduler.domain.pods import Phase, PodRecord
from koord_scheduler.domain.queue import MAY_BE_TAKEN, Block, QueuedPod
from koord_scheduler.domain.retracting import give_up, give_up_late, reject, take_back
from koord_scheduler.domain.settling import settle
from koord_scheduler.domain.standing import standing_of, turn_lost, turn_of
from koord_scheduler.domain.state import SchedulerState
from koord_scheduler.domain.telling import unsay
from koord_scheduler.domain.waking import room_appeared
from koord_scheduler.domain.whole_job import place_whole_job
from koord_scheduler.domain.work import Batch, NodeWork, Place, Release, Work, node_draft, pod_draft

MOST_REFOLDS: Final = 8
"""Refusals of one pod's decisions in a row before it is given up for a while (event-bus spec, 4.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is said about a pod on the `why` stream.

    trigger       id of the event that led to the attempt
    decided_at    unix seconds of the run's clock; 0.0: when it is said
    """

    uid: str
    trigger: str
    traceparent: str
    tracestate: str
    event: PodUnschedulable | PodGated | DecisionAbandoned
    decided_at: float = 0.0

    @property
    def cause(self) -> str:
        """What tells it from other verdicts with the same trigger."""
        return f"{self.trigger}/{'gated' if isinstance(self.event, PodGated) else self.event.attempt}"


class NodeDrafts(NamedTuple):
    """One node's half and its pods' halves of a batch, with expectations."""

    work: NodeWork
    node: Draft
    pods: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class BatchDrafts:
    """What a batch appends. gang: its own fact, None: the nodes stand for themselves."""

    nodes: list[NodeDrafts]
    gang: Draft | None = None


def decide_next(state: SchedulerState, now: float, turn: str = "") -> Place | list[Verdict] | None:
    """One scheduling cycle for the next pod; None when none is ready.

    A placement is assumed at once: the next decision sees the node with the pod on it. A pod that has to wait for
    others keeps its node meanwhile.
    now    seconds of the run's clock
    turn   the waiting pod whose turn it is; "": the head of the queue
    """
    # 1. next pod: a gang's next member first, else whose turn it is
    queued = _next_pod(state, turn)
    if queued is None:
        return None
    pod = state.pods[queued.uid]
    based_on = BasedOn(state.position, state.observed)
    # 2. pre-filter, filter, score, choose
    attempt = Attempt(state, pod, queued.subject, now)
    found = attempt.run(based_on)
    if isinstance(found, WholeJob):
        return _place_job(state, queued, attempt, found, based_on, now)
    if isinstance(found, NotFound):
        return _failed(state, pod, queued, found, now)
    # 3. assume and reserve
    work = _assume(state, pod, queued, found, now)
    # 4. permit: go, wait with the node, or lose it
    match state.framework_of(pod).permit(pod, work.node):
        case Allow(waiting=waiting, activate=activate, gang=gang):
            _let_go(state, [work], waiting, gang)
            state.queue.activate(activate)
        case Wait(seconds=seconds):
            state.waiting.hold(work, now + seconds)
        case Rejection() as rejection:
            take_back(state, [work])
            if state.queue.get(pod.uid) is not None:
                state.queue.unschedulable(pod.uid, now, Block(rejection.plugin, rejection.key))
            return [_verdict(pod, queued, rejection.message, found, now, turn_lost(work))]
    return work


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
        reject(state, chosen.rejected)
    if not turn:
        return state.queue.pop()
    queued = state.queue.get(turn)
    return state.queue.take(turn) if queued is not None and queued.place in MAY_BE_TAKEN else None


def _assume(state: SchedulerState, pod: PodRecord, queued: QueuedPod, found: Found, now: float) -> Place:
    """The pod counts on its node from now on, for the columns and for every plugin."""
    state.decisions += 1
    work = _place(state, pod, queued, found, now)
    pod.placed_at = now
    pod.phase = Phase.ASSUMED
    pod.work_node = found.placed.node
    state.ledgers.hold(work.node, pod.occupant(), Source.ASSUMED)
    state.framework_of(pod).reserve(pod, work.node)
    state.queue.assumed(queued, state.has_room)
    return work


def _place_job(
    state: SchedulerState, queued: QueuedPod, attempt: Attempt, job: WholeJob, based_on: BasedOn, now: float
) -> Place | list[Verdict]:
    """All members of a planned job, or none. source    scheduler-core spec, 12.1"""

    def assume(pod: PodRecord, member: QueuedPod, found: Found) -> Place:
        return _assume(state, pod, member, found, now)

    pod = state.pods[queued.uid]
    placed = place_whole_job(state, queued, job.nodes, now, assume)
    if isinstance(placed, JobFailed):
        rejection = Rejection(plugin="Coscheduling", message=placed.message)
        return _failed(state, pod, queued, attempt.refused_by_nodes(rejection, based_on), now)
    works, waiting = placed
    gang = state.cluster.gangs.roster.gang_of(pod.uid)
    _let_go(state, works, waiting, "" if gang is None else gang.id)
    return works[-1]


def _let_go(state: SchedulerState, works: Sequence[Place], waiting: Sequence[str], gang: str) -> None:
    """The pods may go, and with them those that waited for them; more than one of them all or none."""
    if not waiting and len(works) == 1:
        state.outbox.put(_annotated(state, works[0]))
        return
    waited = (state.waiting.let_go(uid) for uid in waiting if uid in state.waiting)
    together = [_annotated(state, work) for work in (*waited, *works)]
    if len(together) > 1:
        state.outbox.put_together(together, gang)
    else:
        state.outbox.put(together[0])


def _annotated(state: SchedulerState, work: Place) -> Place:
    """The placement with what PreBind writes on a member of a gang.

    Annotations that a pod was made with and must not keep are emptied: a binding can set them, not remove them.
    source    scheduler-core spec, 8.7
    """
    pod = state.pods[work.uid].pod
    annotations = pod.metadata.annotations if pod is not None else {}
    if not annotations and state.cluster.gangs.roster.gang_of(work.uid) is None:
        return work
    wanted = bind_annotations(state.cluster.gangs, work.uid)
    written = {key: text or "" for key, text in wanted.items() if text is not None or key in annotations}
    return msgspec.structs.replace(work, annotations={**work.annotations, **written}) if written else work


def _failed(state: SchedulerState, pod: PodRecord, queued: QueuedPod, found: NotFound, now: float) -> list[Verdict]:
    rejection = found.rejection
    block = Block(rejection.plugin, rejection.key) if rejection is not None else None
    refused_by = tuple(exclusion.plugin for exclusion in found.explanation.exclusions)
    state.queue.unschedulable(pod.uid, now, block, refused_by)
    failure = state.framework_of(pod).after_post_filter(pod, found.message)
    lost = {uid: turn_lost(work) for uid in failure.rejected if (work := state.waiting.work_of(uid)) is not None}
    reject(state, failure.rejected)
    turn = turn_of(state, found.explanation.based_on, now)
    verdicts = [_verdict(pod, queued, failure.message or found.message, found, now, turn)]
    told = failure.tell if state.frameworks.gates.gang_pending_pods_condition_patch else ()
    for uid in (*failure.rejected, *told):
        other, waits = state.pods[uid], state.queue.get(uid)
        if waits is not None:
            verdicts.append(_verdict(other, waits, failure.message, found, now, lost.get(uid)))
    return verdicts


def _place(state: SchedulerState, pod: PodRecord, queued: QueuedPod, found: Found, now: float) -> Place:
    assert pod.pod is not None and pod.sort is not None, f"pod {pod.uid} is in the queue without a spec"  # noqa: PT018
    return Place(
        uid=pod.uid,
        node=found.placed.node,
        namespace=pod.namespace,
        name=pod.name,
        on_node=on_node(pod.uid, pod.pod, pod.sort),
        attempt=queued.attempts,
        queued_at=pod.submitted_at,
        explanation=found.placed.explanation,
        trigger=queued.trigger,
        ordinal=state.decisions,
        standing=standing_of(state, now),
        traceparent=pod.traceparent,
        tracestate=pod.tracestate,
    )


def _verdict(
    pod: PodRecord, queued: QueuedPod, message: str, found: Found | NotFound, now: float, turn: Turn | None
) -> Verdict:
    explanation = found.placed.explanation if isinstance(found, Found) else found.explanation
    diagnosis = None if isinstance(found, Found) else found.diagnosis
    return Verdict(
        uid=pod.uid,
        trigger=queued.trigger,
        traceparent=pod.traceparent,
        tracestate=pod.tracestate,
        event=PodUnschedulable(
            namespace=pod.namespace,
            name=pod.name,
            attempt=queued.attempts,
            queued_at=pod.submitted_at,
            message=message,
            explanation=explanation,
            diagnosis=diagnosis,
            turn=turn,
        ),
        decided_at=now,
    )


def gated(state: SchedulerState) -> list[Verdict]:
    """What PreEnqueue has said about pods since the last call, for their users (pitfall 22).

    One that may go by now, because its gang is complete meanwhile, is told nothing.
    """
    said: list[Verdict] = []
    for uid, message in state.queue.gated:
        pod = state.pods.get(uid)
        if pod is not None and state.queue.is_gated(uid):
            event = PodGated(namespace=pod.namespace, name=pod.name, message=message)
            said.append(Verdict(uid=uid, trigger=pod.trigger, traceparent="", tracestate="", event=event))
    state.queue.gated.clear()
    return said


def give_up_overdue(state: SchedulerState, now: float) -> list[Verdict]:
    """Waiting pods whose time is over lose their nodes, and who waits for them; all are told.

    source    scheduler-core spec, 1 (step 13)
    """
    overdue = state.waiting.overdue(now)
    if not overdue:
        return []
    held = [work for uid in state.waiting.uids() if (work := state.waiting.work_of(uid)) is not None]
    for uid in overdue:
        if uid in state.waiting:
            give_up_late(state, state.pods[uid], now)
    lost = (work for work in held if work.uid not in state.waiting and state.queue.get(work.uid) is not None)
    return [_waited_in_vain(work, now) for work in lost]


def _waited_in_vain(work: Place, now: float) -> Verdict:
    waited = "" if work.standing is None else f" {round(now - work.standing.decided_at)} s"
    return Verdict(
        uid=work.uid,
        trigger=work.trigger,
        traceparent=work.traceparent,
        tracestate=work.tracestate,
        event=PodUnschedulable(
            namespace=work.namespace,
            name=work.name,
            attempt=work.attempt,
            queued_at=work.queued_at,
            message=f"rejected due to timeout after waiting{waited} with node {work.node} for the others of its gang",
            explanation=work.explanation,
            turn=turn_lost(work),
        ),
        decided_at=now,
    )


def release_due(state: SchedulerState) -> int:
    """Put the releases of pods that are deleted, finished or without their node into the outbox; returns how many."""
    released = 0
    for uid, (reason, trigger) in state.to_release.items():
        pod = state.pods[uid]
        if pod.phase is not Phase.PLACED:
            continue
        pod.phase = Phase.RELEASING
        pod.work_node = pod.node
        state.outbox.put(
            Release(
                uid=uid,
                node=pod.node,
                namespace=pod.namespace,
                name=pod.name,
                reason=reason,
                trigger=trigger,
                traceparent=pod.traceparent,
                tracestate=pod.tracestate,
            )
        )
        released += 1
    state.to_release.clear()
    return released


def drafts_of(state: SchedulerState, batch: Batch) -> BatchDrafts:
    """The facts that a batch appends, each expecting the last sequence known of its aggregate."""
    nodes = [
        NodeDrafts(
            work=work,
            node=node_draft(work, state.ledgers.seq(work.node)),
            pods=tuple(pod_draft(item, state.pods[item.uid].seq) for item in work.items),
        )
        for work in batch.works
    ]
    return BatchDrafts(nodes, _gang_draft(state, batch) if batch.gang else None)


def _gang_draft(state: SchedulerState, batch: Batch) -> Draft:
    namespace, _, name = batch.gang.partition("/")
    ref = AggregateRef("gang", namespaced_token(namespace, name))
    gang = state.cluster.gangs.roster.gang(batch.gang)
    members = [
        PlacedMember(uid=item.uid, namespace=item.namespace, name=item.name, node=item.node) for item in batch.items
    ]
    group = ",".join(gang.group.gang_ids) if gang is not None and gang.group is not None else batch.gang
    event = GangPlaced(namespace=namespace, name=name, group=group, members=members)
    return Draft(ref, event, state.notices.seqs.get(ref, 0))


def confirmed(state: SchedulerState, work: NodeWork, node_seq: int, pod_seqs: Sequence[int], event_id: str) -> None:
    """The log has stored the work; what was assumed is now the log's.

    node_seq, pod_seqs    sequences of the events, the latter in the order of the items
    event_id              of the node's event
    """
    state.acknowledged = max(state.acknowledged, node_seq)
    is_news = state.ledgers.advance(work.node, node_seq)
    state.outbox.landed(work.node)
    for item, seq in zip(work.items, pod_seqs, strict=True):
        pod = state.pods[item.uid]
        if isinstance(item, Place):
            if is_news:
                state.ledgers.hold(item.node, occupant_of(state, item.on_node), Source.LOGGED)
            state.ledgers.drop(item.node, item.uid, Source.ASSUMED)
        elif is_news:
            state.ledgers.drop(item.node, item.uid, Source.LOGGED)
            room_appeared(state, item.node, event_id)
        if seq > pod.seq:
            pod.seq = seq
            if isinstance(item, Place):
                pod.node = item.node
                bound(state, pod, item.node)
            else:
                left_node(state, pod)
        pod.refolds = 0
        pod.work_node = ""
        pod.phase = Phase.OTHERS
        settle(state, pod, event_id)


def refused(
    state: SchedulerState, work: NodeWork, now: float, *, blame: bool = True, hopeless: str = ""
) -> list[Verdict]:
    """The log has not stored the work: everything is as if it had not been decided.

    Work for the same node that still waited in the outbox was decided on the same wrong view and is taken back, too.
    hopeless   why the log will never store it; "": it may the next time
    blame      whether it counts as a refusal of these decisions (a conflict) or not (the log was full)
    returns    verdicts about pods that were refused too often and wait for a backoff now
    """
    verdicts: list[Verdict] = []
    later = state.outbox.withdraw(work.node)
    state.outbox.landed(work.node)
    for item in work.items:
        pod = state.pods[item.uid]
        take_back(state, [item])
        if not blame or not isinstance(item, Place) or pod.phase is not Phase.QUEUED:
            continue
        pod.refolds += 1
        if hopeless or pod.refolds >= MOST_REFOLDS:
            conflicts = f"the log refused {pod.refolds} decisions in a row because others changed the pod or its node"
            verdicts.append(_abandoned(item, hopeless or conflicts))
            pod.refolds = 0
            state.queue.retry_later(item.uid, now)
    take_back(state, later)
    return verdicts


def withdraw_all(state: SchedulerState) -> None:
    """Take back all work that is not in flight: somebody else decides from now on."""
    for uid in state.waiting.uids():
        give_up(state, state.pods[uid], state.pods[uid].trigger)
    for node in state.outbox.nodes():
        take_back(state, state.outbox.withdraw(node))
    for notice in state.notices.withdraw_all():
        unsay(state, notice)


def _abandoned(work: Work, reason: str) -> Verdict:
    assert isinstance(work, Place)
    return Verdict(
        uid=work.uid,
        trigger=work.trigger,
        traceparent=work.traceparent,
        tracestate=work.tracestate,
        event=DecisionAbandoned(
            namespace=work.namespace,
            name=work.name,
            attempt=work.attempt,
            reason=reason,
        ),
    )
