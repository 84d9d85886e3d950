"""Every event type of the facts stream with its evolve function, and the kinds of aggregates with their states.

Source: event-bus spec, 2.1 and 4.1.
"""

from typing import Final

from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.log import EventSkipped, LogRestored
from koordcore.state import aggregates
from koordcore.state.descheduling import OF_ROUNDS, OF_THE_DESCHEDULER, DeschedulerState, RoundsState
from koordcore.state.drains import OF_DRAINS, DrainGroupState, DrainState
from koordcore.state.evolution.agents import OF_AGENTS
from koordcore.state.evolution.api_objects import OF_OBJECTS, OF_THE_GATEWAY
from koordcore.state.evolution.management import OF_THE_MANAGER
from koordcore.state.evolution.scheduling import OF_SCHEDULERS
from koordcore.state.fold import AggregateState, Evolve
from koordcore.state.migrations import OF_MIGRATIONS, OF_REPACKS, MigrationState, RepackState


class FoldControlState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Sequences of the events that operators ordered one fold to skip."""

    skipped: list[int] = []


class LogState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """State of the log itself: its newest restore."""

    restored_to: int = 0  # Position of the last fact that the newest restore kept; 0 if all facts were kept


def _event_skipped(state: FoldControlState | None, event: EventSkipped, at: StoredEvent) -> FoldControlState:
    skipped = state.skipped if state else []
    return FoldControlState(seq=at.seq, skipped=sorted({*skipped, event.seq}))


def _log_restored(_: LogState | None, event: LogRestored, at: StoredEvent) -> LogState:
    return LogState(seq=at.seq, restored_to=event.position)


# Event type -> evolve function. A test checks that every type of the facts stream has one.
EVOLVE: Final[dict[type[Event], Evolve]] = {
    **OF_OBJECTS,
    **OF_SCHEDULERS,
    **OF_THE_MANAGER,
    **OF_AGENTS,
    **OF_THE_GATEWAY,
    **OF_DRAINS,
    **OF_MIGRATIONS,
    **OF_ROUNDS,
    **OF_REPACKS,
    **OF_THE_DESCHEDULER,
    EventSkipped: _event_skipped,
    LogRestored: _log_restored,
}


# Aggregate kind -> type of its state.
STATE_TYPES: Final[dict[str, type[AggregateState]]] = {
    "podspec": aggregates.PodSpecState,
    "nodespec": aggregates.NodeSpecState,
    "pod": aggregates.PodState,
    "node": aggregates.NodeLedger,
    "nodepolicy": aggregates.NodePolicyState,
    "nodestate": aggregates.NodeAgentState,
    "criproxy": aggregates.CriProxyState,
    "namespace": aggregates.NamespaceState,
    "priorityclass": aggregates.PriorityClassState,
    "workloadspec": aggregates.WorkloadState,
    "config": aggregates.ConfigState,
    "customspec": aggregates.CustomObjectState,
    "controller": aggregates.ControllerState,
    "quotaprofile": aggregates.QuotaProfileState,
    "recommendation": aggregates.RecommendationState,
    "eviction": aggregates.EvictionState,
    "reservation": aggregates.ReservationState,
    "gang": aggregates.GangState,
    "quota": aggregates.QuotaState,
    "scheduleexplanation": aggregates.ScheduleExplanationState,
    "drain": DrainState,
    "draingroup": DrainGroupState,
    "migration": MigrationState,
    "repack": RepackState,
    "descheduling": RoundsState,
    "descheduler": DeschedulerState,
    "clustertopology": aggregates.ClusterTopologyState,
    "gpuworkload": aggregates.GpuWorkloadState,
    "drift": aggregates.DriftState,
    "genesis": aggregates.GenesisState,
    "fold": FoldControlState,
    "log": LogState,
}
