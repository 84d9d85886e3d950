"""Decisions on top of the fold: assume, hand to the outbox, and settle with what the log answers.

    decide_next   one pod: its work into the outbox, or a verdict
    release_due   work for everything that has to give its place back
    drafts_of     what a batch appends, with its expectations
    confirmed     the batch is in the log
    refused       it is not: every assumption of it is taken back

source    event-bus spec, 4.2 and 4.3; scheduler-core spec, 1
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.events.envelope import BasedOn, Draft
from koordcore.events.verdict import DecisionAbandoned, PodUnschedulable

from koord_scheduler.domain.decision import Placed
from koord_scheduler.domain.ledger import Source
from koord_scheduler.domain.pods import Phase
from koord_scheduler.domain.state import SchedulerState
from koord_scheduler.domain.work import NodeWork, Place, Release, Work, node_draft, pod_draft

MOST_REFOLDS: Final = 8
"""Refusals of one pod's decisions in a row before it is given up for a while (event-bus spec, 4.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is said about a pod on the `why` stream. trigger: id of the event that led to the attempt."""

    uid: str
    trigger: str
    traceparent: str
    tracestate: str
    event: PodUnschedulable | DecisionAbandoned


@dataclass(frozen=True, slots=True)
class NodeDrafts:
    """One node's half and its pods' halves of a batch, with expectations."""

    work: NodeWork
    node: Draft
    pods: tuple[Draft, ...]


def decide_next(state: SchedulerState, now: float) -> Place | Verdict | None:
    """Decide about the next ready pod; None when none is ready.

    A placement is assumed at once: the next decision sees the node with the pod on it.
    now    seconds of the run's clock
    """
    queued = state.queue.pop()
    if queued is None:
        return None
    pod = state.pods[queued.uid]
    assert pod.pod is not None, f"pod {pod.uid} is in the queue without a spec"
    decision = state.engine.decide(queued.subject, pod.uid, BasedOn(state.position, 0))
    if not isinstance(decision, Placed):
        state.queue.unschedulable(pod.uid, now)
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
                message=decision.message,
                explanation=decision.explanation,
            ),
        )
    state.ledgers.hold(decision.node, pod.occupant(), Source.ASSUMED)
    pod.phase = Phase.ASSUMED
    pod.work_node = decision.node
    state.queue.assumed(queued, state.has_room)
    work = Place(
        uid=pod.uid,
        node=decision.node,
        namespace=pod.namespace,
        name=pod.name,
        on_node=state.on_nodes.of(pod.uid, pod.pod),
        attempt=queued.attempts,
        queued_at=pod.submitted_at,
        explanation=decision.explanation,
        trigger=queued.trigger,
        traceparent=pod.traceparent,
        tracestate=pod.tracestate,
    )
    state.outbox.put(work)
    return work


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


def drafts_of(state: SchedulerState, batch: Sequence[NodeWork]) -> list[NodeDrafts]:
    """The facts that a batch appends, each expecting the last sequence known of its aggregate."""
    return [
        NodeDrafts(
            work=work,
            node=node_draft(work, state.ledgers.seq(work.node)),
            pods=tuple(pod_draft(item, state.pods[item.uid].seq) for item in work.items),
        )
        for work in batch
    ]


def confirmed(state: SchedulerState, work: NodeWork, node_seq: int, pod_seqs: Sequence[int], event_id: str) -> None:
    """The log has stored the work; what was assumed is now the log's.

    node_seq, pod_seqs    sequences of the events, the latter in the order of the items
    event_id              of the node's event
    """
    is_news = state.ledgers.advance(work.node, node_seq)
    state.outbox.landed(work.node)
    for item, seq in zip(work.items, pod_seqs, strict=True):
        pod = state.pods[item.uid]
        if isinstance(item, Place):
            if is_news:
                state.ledgers.hold(item.node, state.occupant_of(item.on_node), Source.LOGGED)
            state.ledgers.drop(item.node, item.uid, Source.ASSUMED)
        elif is_news:
            state.ledgers.drop(item.node, item.uid, Source.LOGGED)
            state.room_appeared(item.node, event_id)
        if seq > pod.seq:
            pod.seq = seq
            pod.node = item.node if isinstance(item, Place) else ""
        pod.refolds = 0
        pod.work_node = ""
        pod.phase = Phase.OTHERS
        state.settle(pod, event_id)


def refused(state: SchedulerState, work: NodeWork, now: float, *, blame: bool = True) -> list[Verdict]:
    """The log has not stored the work: everything is as if it had not been decided.

    Work for the same node that still waited in the outbox was decided on the same wrong view and is taken back, too.
    blame      whether it counts as a refusal of these decisions (a conflict) or not (the log was full)
    returns    verdicts about pods that were refused too often and wait for a backoff now
    """
    verdicts: list[Verdict] = []
    later = state.outbox.withdraw(work.node)
    state.outbox.landed(work.node)
    for item in work.items:
        pod = state.pods[item.uid]
        state.taken_back(item)
        if not blame or not isinstance(item, Place) or pod.phase is not Phase.QUEUED:
            continue
        pod.refolds += 1
        if pod.refolds >= MOST_REFOLDS:
            verdicts.append(_abandoned(state, item, pod.refolds))
            pod.refolds = 0
            state.queue.retry_later(item.uid, now)
    for item in later:
        state.taken_back(item)
    return verdicts


def withdraw_all(state: SchedulerState) -> None:
    """Take back all work that is not in flight: somebody else decides from now on."""
    for node in state.outbox.nodes():
        for item in state.outbox.withdraw(node):
            state.taken_back(item)


def _abandoned(state: SchedulerState, work: Work, refolds: int) -> Verdict:
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
            reason=f"the log refused {refolds} decisions in a row because others changed the pod or its node",
        ),
    )
