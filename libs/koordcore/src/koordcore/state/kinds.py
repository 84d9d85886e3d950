"""The kinds of aggregates, with the types of their states."""

from typing import Final

from koordcore.state import aggregates
from koordcore.state.base import AggregateState
from koordcore.state.descheduler import DeschedulerState
from koordcore.state.drains import DrainGroupState, DrainState
from koordcore.state.log_control import FoldControlState, LogState
from koordcore.state.migrations import MigrationState
from koordcore.state.repacks import RepackState
from koordcore.state.rounds import RoundsState

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
"""Aggregate kind -> type of its state."""
