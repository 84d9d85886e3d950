"""What a preemption leads to: nominations, evictions asked for, waiting pods that lose their nodes; one append for all.

source    scheduler-core spec, 6 (6), 8.10 (6)
"""

from collections.abc import Iterable, Mapping

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.pod import PodNominated, Victim

from koord_scheduler.domain.notices import Notice
from koord_scheduler.domain.pods import PodRecord
from koord_scheduler.domain.preemption import Preemption
from koord_scheduler.domain.state import SchedulerState
from koord_scheduler.domain.work import pod_ref


def nominate(state: SchedulerState, pod: PodRecord, found: Preemption) -> None:
    """The pod, and the members of its job, are promised their nodes; the victims are to go."""
    nodes: Mapping[str, str] = found.nominations or {pod.uid: found.node}
    facts: list[tuple[AggregateRef, Event]] = []
    for victim in found.victims:
        if victim.pod.uid in state.waiting:
            state.give_up(victim.pod, pod.trigger)
        elif victim.pod.uid not in state.evictions:
            facts.append(_eviction(pod, victim.pod, found.plugin, victim.pod.node or victim.pod.bound_node))
            state.evictions[victim.pod.uid] = "Preempted"
    members = set(nodes)
    for uid, node in nodes.items():
        member = state.pods[uid]
        for other in state.nominations.outranked(node, uid, member.priority):
            if other not in members:
                state.clear_nomination(state.pods[other], "outranked")
        on_node = [victim for victim in found.victims if node in (victim.pod.node, victim.pod.bound_node)]
        facts.insert(0, (pod_ref(uid), _nominated(member, node, found, on_node if found.nominations else found.victims)))
        state.nominate(member, node)
    state.notices.put(
        Notice(
            facts=tuple(facts),
            trigger=pod.trigger,
            uid=pod.uid,
            traceparent=pod.traceparent,
            tracestate=pod.tracestate,
        )
    )


def _nominated(pod: PodRecord, node: str, found: Preemption, victims: Iterable[object]) -> PodNominated:
    going = set(map(id, victims))
    return PodNominated(
        namespace=pod.namespace,
        name=pod.name,
        node=node,
        victims=[
            Victim(
                uid=victim.pod.uid,
                namespace=victim.pod.namespace,
                name=victim.pod.name,
                priority=victim.pod.priority,
                violates_budget=victim.violates_budget,
            )
            for victim in found.victims
            if id(victim) in going
        ],
        plugin=found.plugin,
        candidates=found.examined,
        message=found.message,
    )


def _eviction(pod: PodRecord, victim: PodRecord, plugin: str, node: str) -> tuple[AggregateRef, Event]:
    event = PodEvictionRequested(
        namespace=victim.namespace,
        name=victim.name,
        node=node,
        initiator="scheduler",
        method="delete",
        reason="Preempted",
        message=f"Preempted by pod {pod.namespace}/{pod.name} ({plugin}) on node {node}",
    )
    return AggregateRef("eviction", victim.uid), event
