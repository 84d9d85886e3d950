"""Folds what schedulers publish besides placements: evictions and the statuses of gangs, quotas and others."""

from koordcore.events.cluster import ClusterTopologyComputed
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.gang import GangPhaseChanged
from koordcore.events.gateway import PodEvicted, PodEvictionDelayed, PodEvictionFailed, PodEvictionRequested
from koordcore.events.quota import QuotaStatusComputed
from koordcore.events.schedule_explanation import ScheduleExplanationComputed

from koord_scheduler.domain.state.state import SchedulerState


def fold_statement(state: SchedulerState, stored: StoredEvent, event: Event | None) -> None:
    """Record a requested eviction, its outcome, or a status that a scheduler published.

    No-op for other aggregates, and for evictions of pods that are not known.

    Args:
        state: The scheduler's state.
        stored: The event with its position in the log.
        event: The decoded event; None if its type is unknown.
    """
    match event:
        case _ if stored.ref.kind == "eviction" and stored.ref.id not in state.pods:
            return  # the pod is deleted, and the state of its eviction with it
        case PodEvictionRequested():
            state.nominator.evictions[stored.ref.id] = event.reason
            state.nominator.unsaid.discard(stored.ref.id)
        case PodEvictionFailed():
            state.nominator.eviction_failed(stored.ref.id)
            state.hints.eviction_failed(state.pods[stored.ref.id], stored.event_id)
        case PodEvicted() | PodEvictionDelayed():
            pass  # the evicted pod holds its node until it is deleted, and its preemptor waits for that
        case GangPhaseChanged():
            state.status.published.gang_is(event, state.cluster.gangs.roster)
        case QuotaStatusComputed():
            if event.name in state.cluster.quotas.forest.nodes:  # otherwise it is deleted, and its status with it
                state.status.published.quotas[event.name] = event
        case ScheduleExplanationComputed():
            if stored.ref.id in state.status.explanations.questions:
                state.status.explanations.published[stored.ref.id] = event
        case ClusterTopologyComputed():
            state.status.published.topology = event
        case _ if stored.ref.kind != "gang":
            return
        case _:
            pass
    state.status.in_log(stored.ref, stored.seq)
