"""The objects that each controller of the manager looks at when a fold was replaced."""

from collections.abc import Iterable

from koordcore.state import ClusterState
from koordcore.state.aggregates import (
    EvictionState,
    NodeAgentState,
    NodeSpecState,
    PodState,
    ReservationState,
    ScheduleExplanationState,
    WorkloadState,
)

from koord_manager.domain.cluster.work_queue import WorkQueue
from koord_manager.domain.controller_names import (
    AGENT_EVICTION,
    DESIRED_STATE,
    EVICTION,
    EXPLANATION_EXPIRY,
    HEALTH_RESET,
    NODE_OBJECTS,
    NODE_POLICIES,
    OVERCOMMIT,
    RESERVATION_COLLECTION,
    VOLUME_CLAIM,
    WORKLOAD,
)


def queue_all(queue: WorkQueue, state: ClusterState, owners: Iterable[str]) -> None:
    """Add the keys of all folded objects to the work queue, each for its controllers.

    Args:
        owners: Uids of the owners of pods. A deleted workload still has pods until its deletion is carried out.
    """
    queue.add_all(WORKLOAD, state.of_kind(WorkloadState))
    queue.add_all(WORKLOAD, owners)
    for controller in (*NODE_POLICIES, OVERCOMMIT, NODE_OBJECTS, DESIRED_STATE, HEALTH_RESET):
        queue.add_all(controller, state.of_kind(NodeSpecState))
    queue.add_all(EVICTION, state.of_kind(EvictionState))
    queue.add_all(AGENT_EVICTION, state.of_kind(NodeAgentState))
    queue.add_all(EXPLANATION_EXPIRY, state.of_kind(ScheduleExplanationState))
    queue.add_all(RESERVATION_COLLECTION, state.of_kind(ReservationState))
    pods = state.of_kind(PodState)
    queue.add_all(VOLUME_CLAIM, (uid for uid, pod in pods.items() if pod.allocation.volume_claims))
