"""The inputs of a migration job from the cluster, and the effects that it may ask the caller to carry out.

Source:
    descheduler spec, 7.5, 7.6
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from koordcore.state.migrations import RepackState

from koord_descheduler.domain.jobs.arguments import DELETE, EVICTION, SOFT_EVICTION
from koord_descheduler.domain.jobs.job import RESERVATION_FIRST, Condition, MigrationJob, PodRef
from koord_descheduler.domain.view.pods import PodView

RETRY_SECONDS: Final = 3.0
"""Seconds until a waiting job is looked at again."""
POLICIES: Final = (EVICTION, DELETE, SOFT_EVICTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationView:
    """The fields of a Reservation that a migration job reads.

    Attributes:
        phase: "", Pending, Available, Succeeded or Failed.
        node: Node of the Reservation; "" while it has none.
        has_order: Whether it has the label reservation-order, by which the scheduler prefers it to other Reservations.
        owner_pods: Uids of the pods that `spec.owners` names as objects.
        current_owners: The pods that use the Reservation.
        conditions: Type -> condition.
    """

    name: str
    phase: str = ""
    node: str = ""
    has_order: bool = True
    owner_pods: frozenset[str] = frozenset()
    current_owners: tuple[PodRef, ...] = ()
    conditions: Mapping[str, Condition] = field(default_factory=dict[str, Condition])

    @property
    def is_scheduled(self) -> bool:
        """Return whether the Reservation has a node and its condition `Scheduled` is True."""
        scheduled = self.conditions.get("Scheduled")
        return bool(self.node) and scheduled is not None and scheduled.is_true


class World(Protocol):
    """The parts of the cluster that a migration job reads."""

    def pod(self, namespace: str, name: str) -> PodView | None:
        """Return a pod; None if it does not exist."""
        ...

    def reservation(self, name: str) -> ReservationView | None:
        """Return a Reservation; None if it does not exist."""
        ...

    def pod_scheduled(self, pod: PodView) -> Condition | None:
        """Return the condition PodScheduled of a pod; None if it has none."""
        ...

    def plan(self, name: str) -> RepackState | None:
        """Return the plan with this id; None if there is none, or if it is forgotten."""
        ...

    def is_limited(self, pod: PodView) -> bool:
        """Return whether the object limiter refuses to evict a pod now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """The settings of the MigrationController that jobs need.

    Attributes:
        default_mode: Mode of jobs that name none.
        eviction_policy: Policy of evictions whose pod and job name none.
        delete_options: Options of the deletion for jobs that have none; None: none.
        installation: Id of this installation; jobs that another one made are not touched.
    """

    default_mode: str = RESERVATION_FIRST
    eviction_policy: str = EVICTION
    delete_options: Mapping[str, Any] | None = None
    installation: str = ""


@dataclass(frozen=True, slots=True)
class CreateReservation:
    """Create the Reservation of the job, named by the job's uid. If it exists already, that counts as success.

    Attributes:
        pod: The pod that moves.
        avoided: Nodes besides that of the pod on which the Reservation must not be placed.
    """

    pod: PodView
    avoided: frozenset[str] = frozenset()


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
    """Evict the pod with this uid.

    Attributes:
        pod: The pod.
        policy: Eviction, Delete or SoftEviction.
        options: Options of the deletion; None: there are none.
    """

    pod: PodView
    policy: str
    options: Mapping[str, Any] | None


Effect = CreateReservation | OrderReservation | DeleteReservation | Evict


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event for people.

    Attributes:
        about: "job" or "pod".
        type: Normal or Warning.
        reason: Reason in one word.
        message: The reason as a sentence.
    """

    about: str
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The result of one look at a job.

    Attributes:
        job: The job afterwards.
        effects: Effects that the caller has to carry out now, in order. CreateReservation and Evict are always last.
            After these, the caller passes the result to `created` or `evicted`, and looks again.
        events: Events to publish.
        requeue: Seconds until the next look; None: only a change leads to one.
    """

    job: MigrationJob
    effects: tuple[Effect, ...] = ()
    events: tuple[JobEvent, ...] = ()
    requeue: float | None = None
