"""The state of the drain of a node, and the effects of its steps.

Source:
    descheduler spec, 11.1, 11.2
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias


class DrainPhase(StrEnum):
    """Phase of a DrainNode: Pending, Running, Complete or Aborted."""

    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETE = "Complete"
    ABORTED = "Aborted"


class PodPhase(StrEnum):
    """Phase of one pod on a node that is drained.

    Waiting or Ready before its Reservation has a node, then Available or Unavailable, then Migrating, and at last
    Succeed or Failed. Unmigratable: a rule forbids to migrate the pod.
    """

    WAITING = "Waiting"
    UNMIGRATABLE = "Unmigratable"
    READY = "Ready"
    AVAILABLE = "Available"
    UNAVAILABLE = "Unavailable"
    MIGRATING = "Migrating"
    SUCCEED = "Succeed"
    FAILED = "Failed"


FINAL = frozenset({PodPhase.SUCCEED, PodPhase.FAILED})
DECIDED = frozenset({PodPhase.SUCCEED, PodPhase.FAILED, PodPhase.UNMIGRATABLE, PodPhase.UNAVAILABLE})
"""Phases in which a confirmed drain has nothing more to wait for."""


class Condition(StrEnum):
    """Type of a condition of a DrainNode."""

    ONCE_AVAILABLE = "OnceAvailable"
    UNMIGRATABLE_POD = "UnmigratablePodExists"
    UNEXPECTED_RESERVATION = "UnexpectedReservationExists"
    UNAVAILABLE_RESERVATION = "UnavailableReservationExists"
    FAILED_JOB = "FailedMigrationJobExists"
    UNEXPECTED_POD = "UnexpectedPodAfterCompleteExists"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodProgress:
    """One pod that a drain tracks.

    Attributes:
        uid: Uid of the pod.
        namespace: Its namespace.
        name: Its name.
        phase: Phase of the pod.
        since: Unix seconds at which the drain saw it first.
        after_confirmed: Whether it arrived after the drain was confirmed.
        target: Node of its reservation; "" if there is none yet.
    """

    uid: str
    namespace: str
    name: str
    phase: PodPhase = PodPhase.WAITING
    since: float
    after_confirmed: bool = False
    target: str = ""

    @property
    def key(self) -> str:
        """Return "namespace/name"."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainProgress:
    """The state of a drain, which follows from the recorded facts about it.

    Attributes:
        phase: Phase of the drain.
        message: Reason for the phase; "" if there is none.
        pods: Uid -> tracked pod, in the order in which the drain saw them first.
        conditions: Types of the conditions that are true.
    """

    phase: DrainPhase = DrainPhase.PENDING
    message: str = ""
    pods: Mapping[str, PodProgress] = field(default_factory=dict[str, PodProgress])
    conditions: frozenset[Condition] = frozenset()


@dataclass(frozen=True, slots=True)
class Cordon:
    """Effect: close the node of a drain for new pods, as the drain's `cordonPolicy` says."""


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Remove exactly what `Cordon` added to the node."""


@dataclass(frozen=True, slots=True)
class CreateReservation:
    """Reserve a place for a pod: `name` of the Reservation, `pod` the uid."""

    name: str
    pod: str


@dataclass(frozen=True, slots=True)
class DeleteReservation:
    """Effect: delete the Reservation `name`. No-op if it does not exist."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Migrate a pod to its Reservation.

    Attributes:
        name: Name of the job, and of the Reservation.
        pod: Uid of the pod.
        paused: Whether the job waits until the user resumes it.
    """

    name: str
    pod: str
    paused: bool


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Effect: delete the job `name`. No-op if it does not exist."""

    name: str


DrainEffect: TypeAlias = Cordon | Uncordon | CreateReservation | DeleteReservation | CreateJob | DeleteJob
