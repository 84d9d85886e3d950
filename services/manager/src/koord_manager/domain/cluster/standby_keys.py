"""Drop the keys of ended objects from the work queue of an instance that does not lead.

Such an instance takes no keys, so that it decides everything when it begins to lead. Without this, its queue would keep
a key for each Job, eviction, Reservation and explanation that ever was. An object that has ended needs no decision.
"""

from collections.abc import Callable
from typing import Final

from koordcore.state.aggregates import (
    EvictionState,
    PodSpecState,
    PodState,
    ReservationState,
    ScheduleExplanationState,
    WorkloadState,
)

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import (
    EVICTION,
    EXPLANATION_EXPIRY,
    RESERVATION_COLLECTION,
    VOLUME_CLAIM,
    WORKLOAD,
)

FEWEST_KEYS: Final = 1_000
"""Number of keys of a controller below which no key is searched."""


def drop_ended_keys(view: ManagerView) -> None:
    """Drop the keys of ended objects of each controller that has twice as many keys as objects.

    So a key costs the same on average, however large the cluster is.
    """
    state = view.state
    workloads, pods = state.of_kind(WorkloadState), state.of_kind(PodSpecState)

    def is_workload(uid: str) -> bool:
        return uid in workloads or bool(view.pods_of_workload(uid))

    _drop(view, WORKLOAD, len(workloads) + len(pods), is_workload)
    for controller, kind in (
        (EVICTION, EvictionState),
        (EXPLANATION_EXPIRY, ScheduleExplanationState),
        (RESERVATION_COLLECTION, ReservationState),
        (VOLUME_CLAIM, PodState),
    ):
        objects = state.of_kind(kind)
        _drop(view, controller, len(objects), objects.__contains__)


def _drop(view: ManagerView, controller: str, objects: int, exists: Callable[[str], bool]) -> None:
    if view.queue.depth(controller) > FEWEST_KEYS + 2 * objects:
        view.queue.retain(controller, exists)
