"""The inputs of a migration job from the cluster, and the effects that it may ask the caller to carry out.

Source:
    descheduler spec, 7.5, 7.6
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from koordcore.protocol.migrations import RESERVATION_FIRST
from koordcore.state.migrations import RepackState

from koord_descheduler.domain.jobs.arguments import DELETE, EVICTION, SOFT_EVICTION
from koord_descheduler.domain.jobs.job import Condition, MigrationJob, PodRef
from koord_descheduler.domain.view.pods import PodView

RETRY_SECONDS: Final = 3.0
"""Seconds until a waiting job is looked at again."""
POLICIES: Final = (EVICTION, DELETE, SOFT_EVICTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationView:
    """The fields of a Reservation that a migration job reads."""

    name: str
    phase: str = ""  # "", Pending, Available, Succeeded or Failed
    node: str = ""  # Node of the Reservation; "" while it has none
    job: str = ""  # Uid of the job for which it was created under the name of a template; else ""
    # Whether it has the label reservation-order, by which the scheduler prefers it to other Reservations.
    has_order: bool = True
    owner_pods: frozenset[str] = frozenset()  # Uids of the pods that `spec.owners` names as objects
    current_owners: tuple[PodRef, ...] = ()
    conditions: Mapping[str, Condition] = field(default_factory=dict[str, Condition])  # Type -> condition

    @property
    def is_scheduled(self) -> bool:
        scheduled = self.conditions.get("Scheduled")
        return bool(self.node) and scheduled is not None and scheduled.is_true


class World(Protocol):
    """The parts of the cluster that a migration job reads. None: it does not exist."""

    def pod(self, namespace: str, name: str) -> PodView | None: ...

    def reservation(self, name: str) -> ReservationView | None: ...

    def pod_scheduled(self, pod: PodView) -> Condition | None: ...

    def plan(self, name: str) -> RepackState | None:
        """None also if the plan is forgotten."""
        ...

    def is_limited(self, pod: PodView) -> bool:
        """Whether the object limiter refuses to evict a pod now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """The settings of the MigrationController that jobs need."""

    default_mode: str = RESERVATION_FIRST  # Mode of jobs that name none
    eviction_policy: str = EVICTION  # Policy of evictions whose pod and job name none
    delete_options: Mapping[str, Any] | None = None  # Options of the deletion for jobs that have none; None: none
    installation: str = ""  # Id of this installation; jobs that another one made are not touched


@dataclass(frozen=True, slots=True)
class CreateReservation:
    """Create the Reservation of the job, `MigrationJob.reservation_name`.

    One that exists already counts as success if its name is the uid of the job. Otherwise, it may be somebody else's.
    """

    pod: PodView  # The pod that moves
    avoided: frozenset[str] = frozenset()  # Nodes besides that of the pod on which the Reservation must not be placed


@dataclass(frozen=True, slots=True)
class OrderReservation:
    """Set the label reservation-order of a Reservation that the user gave, so that the scheduler prefers it."""

    name: str


@dataclass(frozen=True, slots=True)
class DeleteReservation:
    """Delete the Reservation of the job; no-op if it does not exist."""

    name: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict the pod with this uid."""

    pod: PodView
    policy: str  # Eviction, Delete or SoftEviction
    options: Mapping[str, Any] | None  # Options of the deletion; None: there are none


Effect = CreateReservation | OrderReservation | DeleteReservation | Evict


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event for people."""

    about: str  # "job" or "pod"
    type: str  # Normal or Warning
    reason: str  # Reason in one word
    message: str  # The reason as a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The result of one look at a job."""

    job: MigrationJob  # The job afterwards
    # Effects that the caller has to carry out now, in order. CreateReservation and Evict are always last. After these,
    # the caller passes the result to `created` or `evicted`, and looks again.
    effects: tuple[Effect, ...] = ()
    events: tuple[JobEvent, ...] = ()  # Events to publish
    requeue: float | None = None  # Seconds until the next look; None: only a change leads to one
