"""Which objects are in the work queue: all when a fold was replaced, and on a standby no ended ones.

An instance that does not lead takes no keys, so that it decides everything when it begins to lead. Its queue would keep
a key for each Job, eviction, Reservation and explanation that ever was. An object that has ended needs no decision.
"""

from collections.abc import Callable, Iterable, Sized
from typing import Final

from koordcore.state import ClusterState
from koordcore.state.aggregates import (
    EvictionState,
    NodeAgentState,
    NodeSpecState,
    PodSpecState,
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


FEWEST_KEYS: Final = 1_000
"""Number of keys of a controller below which no key is searched."""


def drop_ended_keys(queue: WorkQueue, state: ClusterState, pods_of_workload: Callable[[str], Sized]) -> None:
    """Drop the keys of ended objects of each controller that has twice as many keys as objects.

    So a key costs the same on average, however large the cluster is.
    """
    workloads, pods = state.of_kind(WorkloadState), state.of_kind(PodSpecState)

    def is_workload(uid: str) -> bool:
        return uid in workloads or bool(pods_of_workload(uid))

    _drop(queue, WORKLOAD, len(workloads) + len(pods), is_workload)
    for controller, kind in (
        (EVICTION, EvictionState),
        (EXPLANATION_EXPIRY, ScheduleExplanationState),
        (RESERVATION_COLLECTION, ReservationState),
        (VOLUME_CLAIM, PodState),
    ):
        objects = state.of_kind(kind)
        _drop(queue, controller, len(objects), objects.__contains__)


def _drop(queue: WorkQueue, controller: str, objects: int, exists: Callable[[str], bool]) -> None:
    if queue.depth(controller) > FEWEST_KEYS + 2 * objects:
        queue.retain(controller, exists)
