"""The kinds of aggregates, with the types of their states."""

from typing import Final

from koordcore.state.aggregates import (
    ClusterTopologyState,
    ConfigState,
    ControllerState,
    CriProxyState,
    CustomObjectState,
    DriftState,
    EvictionState,
    GangState,
    GenesisState,
    GpuWorkloadState,
    NamespaceState,
    NodeAgentState,
    NodeLedger,
    NodePolicyState,
    NodeSpecState,
    PodSpecState,
    PodState,
    PriorityClassState,
    QuotaProfileState,
    QuotaState,
    RecommendationState,
    ReservationState,
    ScheduleExplanationState,
    WorkloadState,
)
from koordcore.state.base import AggregateState
from koordcore.state.descheduler import DeschedulerState
from koordcore.state.drains import DrainGroupState, DrainState
from koordcore.state.log_control import FoldControlState, LogState
from koordcore.state.migrations import MigrationState
from koordcore.state.repacks import RepackState
from koordcore.state.rounds import RoundsState

STATE_TYPES: Final[dict[str, type[AggregateState]]] = {
    "podspec": PodSpecState,
    "nodespec": NodeSpecState,
    "pod": PodState,
    "node": NodeLedger,
    "nodepolicy": NodePolicyState,
    "nodestate": NodeAgentState,
    "criproxy": CriProxyState,
    "namespace": NamespaceState,
    "priorityclass": PriorityClassState,
    "workloadspec": WorkloadState,
    "config": ConfigState,
    "customspec": CustomObjectState,
    "controller": ControllerState,
    "quotaprofile": QuotaProfileState,
    "recommendation": RecommendationState,
    "eviction": EvictionState,
    "reservation": ReservationState,
    "gang": GangState,
    "quota": QuotaState,
    "scheduleexplanation": ScheduleExplanationState,
    "drain": DrainState,
    "draingroup": DrainGroupState,
    "migration": MigrationState,
    "repack": RepackState,
    "descheduling": RoundsState,
    "descheduler": DeschedulerState,
    "clustertopology": ClusterTopologyState,
    "gpuworkload": GpuWorkloadState,
    "drift": DriftState,
    "genesis": GenesisState,
    "fold": FoldControlState,
    "log": LogState,
}
"""Aggregate kind -> type of its state."""
