"""Apply a preemption: nominations and requested evictions in one append, and pods at Permit that lose their nodes.

Source: scheduler-core spec, 6 (6), 8.10 (6)
"""

from collections.abc import Mapping

from koordcore.events import pod as pod_event
from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.pod import DecisionBasis, PodNominated
from koordcore.ports.eventlog import MOST_AT_ONCE
from koordcore.protocol.objects import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.framework.post_filter import NoPreemption, PodVictim, Preemption
from koord_scheduler.domain.loop.commit.status_writes import StatusWrite
from koord_scheduler.domain.loop.commit.work import pod_ref
from koord_scheduler.domain.loop.queue.nominator import OUTRANKED, PREEMPTED
from koord_scheduler.domain.loop.state.state import SchedulerState


def apply_preemption(
    state: SchedulerState, pod: PodRecord, found: Preemption | NoPreemption, basis: DecisionBasis
) -> None:
    """Nominate the pod and request the eviction of its victims. Victims that wait at Permit only lose their nodes. If
    no preemption helps, clear the pod's nomination, unless `found.keeps_nomination`. If `found.job` is set, the members
    of the pod's job that wait at Permit lose their nodes, whether a preemption was found or not. `basis`: what the
    attempt was based on; it is part of the nomination's event.
    """
    if isinstance(found, NoPreemption):
        for member in found.unhelpful:
            state.nominator.clear(member, "unhelpful")
    if found.job is not None:
        why = f"a preemption was tried for pod {pod.namespace}/{pod.name} and its gang group"
        state.assumed.reject(found.job.name, found.job.reject_waiting(pod), why)
    if isinstance(found, Preemption):
        _nominate(state, pod, found, basis)
    elif not found.keeps_nomination:
        state.nominator.clear(pod, "unhelpful")


def is_being_emptied(state: SchedulerState, node: str, priority: int) -> bool:
    """Whether a victim of a preemption still holds the node, also of another scheduler's preemption. `priority`: only
    victims of a lower priority count.
    """
    return any(
        (other := state.pods.get(uid)) is not None
        and other.priority < priority
        and (state.nominator.evictions.get(uid) == PREEMPTED or _is_preempted(other))
        for uid in state.assumed.ledgers.pods(node)
    )


def _is_preempted(pod: PodRecord) -> bool:
    """Whether the pod is being deleted because a scheduler preempted it, as its conditions say."""
    if pod.pod is None or pod.pod.metadata.deletion_timestamp is None:
        return False
    return any(
        each.type == DISRUPTION_TARGET and each.status == "True" and each.reason == PREEMPTION_BY_SCHEDULER
        for each in pod.pod.status.conditions
    )


def _nominate(state: SchedulerState, pod: PodRecord, found: Preemption, basis: DecisionBasis) -> None:
    """Nominate the pod and the members of its job, and request the eviction of the victims."""
    nodes: Mapping[str, str] = found.nominations or {pod.uid: found.node}
    evictions: list[tuple[AggregateRef, Event]] = []
    for victim in found.victims:
        if victim.pod.uid in state.assumed.waiting:
            state.assumed.give_up(victim.pod, pod.trigger, f"pod {pod.namespace}/{pod.name} preempted it")
        elif victim.pod.uid not in state.nominator.evictions:
            evictions.append(_eviction(pod, victim, found.plugin))
            state.nominator.evict(victim.pod.uid, PREEMPTED, state.queue.now)
    promises: list[tuple[AggregateRef, Event]] = []
    for uid, node in nodes.items():
        member = state.pods[uid]
        for other in state.nominator.outranked(node, uid, member.priority):
            if other not in nodes and state.pods[other].framework is not None:
                state.nominator.clear(state.pods[other], OUTRANKED)
                state.queue.activate((other,), pod.trigger)  # it may preempt elsewhere at once
        promises.append((pod_ref(uid), _nominated(member, node, found, basis if uid == pod.uid else None)))
        state.nominator.nominate(member, node)
    # Usually one append. Of a job that is too large for one, evictions follow; none is sent without its nomination.
    facts = (*promises, *evictions)
    for begin in range(0, len(facts), MOST_AT_ONCE):
        state.status.writes.put(
            StatusWrite(
                facts=facts[begin : begin + MOST_AT_ONCE],
                trigger=pod.trigger,
                uid=pod.uid,
                traceparent=pod.traceparent,
                tracestate=pod.tracestate,
            )
        )


def _nominated(pod: PodRecord, node: str, found: Preemption, basis: DecisionBasis | None) -> PodNominated:
    victims = [
        pod_event.Victim(
            uid=victim.pod.uid,
            namespace=victim.pod.namespace,
            name=victim.pod.name,
            priority=victim.pod.priority,
            violates_budget=victim.violates_budget,
        )
        for victim in found.victims
        if victim.node == node
    ]
    return PodNominated(
        namespace=pod.namespace,
        name=pod.name,
        node=node,
        victims=victims,
        plugin=found.plugin,
        candidates=found.examined,
        message=found.message,
        basis=basis,
    )


def _eviction(pod: PodRecord, victim: PodVictim, plugin: str) -> tuple[AggregateRef, Event]:
    event = PodEvictionRequested(
        namespace=victim.pod.namespace,
        name=victim.pod.name,
        node=victim.node,
        initiator="scheduler",
        method="delete",
        reason=PREEMPTED,
        message=f"Preempted by pod {pod.namespace}/{pod.name} ({plugin}) on node {victim.node}",
    )
    return AggregateRef("eviction", victim.pod.uid), event
