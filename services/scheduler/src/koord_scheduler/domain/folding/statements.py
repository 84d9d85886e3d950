"""What schedulers have said beside placements: evictions, how gangs and quotas stand, explanations, the topology."""

from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.objects.gateway import PodEvicted, PodEvictionFailed, PodEvictionRequested
from koordcore.events.scheduling.cluster_topology import ClusterTopologyComputed
from koordcore.events.scheduling.gang import GangPhaseChanged
from koordcore.events.scheduling.quota import QuotaStatusComputed
from koordcore.events.scheduling.schedule_explanation import ScheduleExplanationComputed

from koord_scheduler.domain.state.state import SchedulerState


def fold_statement(state: SchedulerState, stored: StoredEvent, event: Event | None) -> None:
    """Something was said; of other aggregates, it is no matter."""
    match event:
        case PodEvictionRequested() | PodEvicted() | PodEvictionFailed() if stored.ref.id not in state.pods:
            return  # it is gone, and what was known of its eviction with it
        case PodEvictionRequested():
            state.evictions[stored.ref.id] = event.reason
        case PodEvicted() | PodEvictionFailed():
            state.evictions.pop(stored.ref.id, None)
        case GangPhaseChanged():
            state.said.gang_is(event, state.cluster.gangs.roster)
        case QuotaStatusComputed():
            state.said.quotas[event.name] = event
        case ScheduleExplanationComputed():
            if stored.ref.id in state.explanations.questions:
                state.explanations.said[stored.ref.id] = event
        case ClusterTopologyComputed():
            state.said.topology = event
        case _ if stored.ref.kind != "gang":
            return
        case _:
            pass
    state.status_writes.seqs[stored.ref] = stored.seq
