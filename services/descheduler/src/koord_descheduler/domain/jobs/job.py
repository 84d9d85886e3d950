"""A PodMigrationJob as an immutable value, read from its Kubernetes object and rendered back.

Source:
    descheduler spec, 7.2, 7.5; protocol spec, 9.6
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, cast

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.migrations import check_mode, check_ttl
from koordcore.protocol.objects import KubeStruct, ObjectMeta, object_from_json, without_nulls
from koordcore.protocol.reservations import Reservation
from koordcore.values import codec
from koordcore.values.duration import parse_seconds
from koordcore.values.timestamps import unix_seconds

COMPLETE: Final = "Complete"
PASSED: Final = "true"


class Phase(StrEnum):
    """Phases of a job. NEW: no instance has looked at the job yet."""

    NEW = ""
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    ABORTED = "Aborted"


IN_FLIGHT: Final = frozenset({Phase.NEW, Phase.PENDING, Phase.RUNNING})


class ConditionType(StrEnum):
    """Types of a job's conditions; each belongs to one step."""

    RESERVATION_CREATED = "ReservationCreated"
    RESERVATION_SCHEDULED = "ReservationScheduled"
    EVICTION = "Eviction"
    POD_SCHEDULED = "PodScheduled"
    POD_BOUND_RESERVATION = "PodBoundReservation"
    RESERVATION_BOUND = "ReservationBound"
    BOUND_POD_READY = "BoundPodReady"


class Reason(StrEnum):
    TIMEOUT = "Timeout"
    INVALID_POD_REF = "InvalidPodRef"
    MISSING_POD = "MissingPod"
    MISSING_RESERVATION = "MissingReservation"
    FAILED_CREATE_RESERVATION = "FailedCreateReservation"
    RESERVATION_EXPIRED = "ReservationExpired"
    UNSCHEDULABLE = "Unschedulable"
    FORBIDDEN = "ForbiddenMigratePod"
    EVICTING = "Evicting"
    EVICT_COMPLETE = "EvictComplete"
    WAIT_FOR_BIND = "WaitForPodBindReservation"
    WAIT_FOR_READY = "WaitForBoundPodReady"
    PLAN_ROLLED_BACK = "PlanRolledBack"
    INVALID_JOB = "InvalidPodMigrationJob"


@dataclass(frozen=True, slots=True)
class PodRef:
    """Reference to a pod. `uid` is "" if the reference contains no uid."""

    namespace: str
    name: str
    uid: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of one step of a job: True or False, with a reason in one word and a message."""

    is_true: bool
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationJob:
    name: str
    uid: str  # Uid of the object
    created: float  # Unix seconds of its creation
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    pod: PodRef | None = None  # The pod to migrate; None if the reference is absent
    mode: str = ""  # `ReservationFirst`, `EvictDirectly`, or "" for the default
    ttl: float | None = None  # Seconds after which the job is given up, above 0; None if there is no such time
    is_paused: bool = False
    reservation: str = ""  # Name of its Reservation; "" while there is none
    # Template of the Reservation, as the user gave it; None if not given, or if the job names a Reservation
    template: Mapping[str, Any] | None = None
    delete_options: Mapping[str, Any] | None = None  # Options of the eviction; None if not given
    phase: Phase = Phase.NEW
    status: str = ""  # Type of the condition that changed last, or `Complete`
    reason: str = ""  # Reason of that condition, or of the failure
    message: str = ""  # The reason as a sentence
    conditions: Mapping[str, Condition] = field(default_factory=dict[str, Condition])  # Type -> condition
    node: str = ""  # Node of its Reservation
    fault: str = ""  # Why its object cannot be carried out, with field, rule and value; "" if it can be
    bound_pod: PodRef | None = None  # Pod that has taken its Reservation; None while there is none

    @property
    def is_in_flight(self) -> bool:
        return self.phase in IN_FLIGHT

    @property
    def has_passed(self) -> bool:
        """A running job has passed arbitration, whatever its annotation says."""
        return self.phase is Phase.RUNNING or self.annotations.get(keys.PASSED_ARBITRATION) == PASSED

    def is_for(self, installation: str) -> bool:
        """Whether this installation or a user created the job."""
        creator = self.annotations.get(keys.JOB_CREATED_BY)
        return creator is None or creator == installation

    def is_over(self, now: float) -> bool:
        """At `now`, in Unix seconds. A job without ttl never times out."""
        return self.ttl is not None and now - self.created >= self.ttl

    @property
    def has_evict_annotation(self) -> bool:
        """The object limiter does not apply then."""
        return keys.DESCHEDULER_EVICT in self.annotations

    @property
    def cause(self) -> str:
        return self.annotations.get(keys.EVICT_REASON) or self.annotations.get(keys.EVICT_TRIGGER) or "NotSet"

    @property
    def plan(self) -> str:
        """Id of the plan whose pods move all or none; "" if the job belongs to none."""
        return self.annotations.get(keys.MOVE_PLAN, "")

    @property
    def reservation_name(self) -> str:
        """Name of the Reservation that is made for the job: that of its template, else the uid of the job."""
        metadata: Mapping[str, Any] = (self.template or {}).get("metadata") or {}
        return str(metadata.get("name") or self.uid)

    @property
    def created_reservation(self) -> str:
        """Name of the Reservation that was created for the job; "" if there is none, or if its user named another."""
        return self.reservation if self.reservation == self.reservation_name else ""

    def condition(self, type_: ConditionType) -> Condition | None:
        """None if its step was not reached yet."""
        return self.conditions.get(type_)

    def with_condition(self, type_: ConditionType, condition: Condition) -> "MigrationJob":
        """The job takes over type, reason and message. If it has an equal condition, it is returned unchanged."""
        if self.conditions.get(type_) == condition:
            return self
        return replace(
            self,
            conditions={**self.conditions, type_: condition},
            status=str(type_),
            reason=condition.reason,
            message=condition.message,
        )

    def passed(self) -> "MigrationJob":
        return replace(self, annotations={**self.annotations, keys.PASSED_ARBITRATION: PASSED})

    def failed(self, reason: Reason, message: str) -> "MigrationJob":
        """Conditions stay as they are."""
        return replace(self, phase=Phase.FAILED, reason=str(reason), message=message)

    def timed_out(self) -> "MigrationJob":
        return self.failed(Reason.TIMEOUT, "Abort job caused by timeout")

    def rolled_back(self, message: str) -> "MigrationJob":
        return self.failed(Reason.PLAN_ROLLED_BACK, message)

    def invalid(self) -> "MigrationJob":
        return self.failed(Reason.INVALID_JOB, f"Abort job caused by invalid {self.fault}")

    def aborted(self, message: str) -> "MigrationJob":
        return replace(self, phase=Phase.ABORTED, message=message)

    def succeeded(self, message: str) -> "MigrationJob":
        return replace(self, phase=Phase.SUCCEEDED, status=COMPLETE, reason="", message=message)


class _Ref(KubeStruct):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _ReservationOptions(KubeStruct):
    reservation_ref: _Ref | None = None
    template: dict[str, Any] | None = None


class _Spec(KubeStruct):
    paused: bool = False
    ttl: str = ""
    mode: str = ""
    pod_ref: _Ref | None = None
    reservation_options: _ReservationOptions | None = None
    delete_options: dict[str, Any] | None = None


class _Condition(KubeStruct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(KubeStruct):
    phase: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    node_name: str = ""
    pod_ref: _Ref | None = None
    conditions: list[_Condition] = []


class _Head(KubeStruct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class _Document(KubeStruct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def _ttl(text: str) -> float | None:
    """None if it is absent, unreadable, 0 or below 0: a job without ttl never times out."""
    seconds = parse_seconds(text) if text and check_ttl(text) is None else 0.0
    return seconds if seconds > 0 else None


def job_from_json(raw: object) -> MigrationJob:
    """Read a job. An unknown phase counts as `Phase.NEW`.

    A job whose fields cannot be read has a `fault`, and no values of these fields.

    Raises:
        codec.DecodeError: The metadata of the job is not valid.
    """
    fault, document = "", _Document()
    try:
        document = object_from_json(raw, _Document)
    except codec.DecodeError as error:
        document.metadata, fault = object_from_json(raw, _Head).metadata, str(error)
    meta, spec, status = document.metadata, document.spec, document.status
    options = spec.reservation_options
    reference = options.reservation_ref if options is not None else None
    reservation = reference.name if reference is not None else ""
    template, template_fault = _template(options)
    return MigrationJob(
        name=meta.name,
        uid=meta.uid,
        created=unix_seconds(meta.creation_timestamp) if meta.creation_timestamp else 0.0,
        labels=meta.labels,
        annotations=meta.annotations,
        pod=_pod_ref(spec.pod_ref),
        mode=spec.mode,
        ttl=_ttl(spec.ttl),
        is_paused=spec.paused,
        reservation=reservation,
        template=None if reservation else template,
        delete_options=spec.delete_options,
        phase=Phase(status.phase) if status.phase in _PHASES else Phase.NEW,
        status=status.status,
        reason=status.reason,
        message=status.message,
        conditions={
            each.type: Condition(each.status == "True", each.reason, each.message) for each in status.conditions
        },
        node=status.node_name,
        bound_pod=_pod_ref(status.pod_ref),
        fault=fault or _value_fault(spec) or template_fault,
    )


def _value_fault(spec: _Spec) -> str:
    faults = {"ttl": check_ttl(spec.ttl), "mode": check_mode(spec.mode)}
    return next((fault.at(f"spec.{name}").sentence() for name, fault in faults.items() if fault is not None), "")


_PHASES: Final = frozenset(str(phase) for phase in Phase)


def _template(options: _ReservationOptions | None) -> tuple[dict[str, Any] | None, str]:
    """Without nulls, and why it cannot be read. The schema of the job does not check its fields."""
    if options is None or options.template is None:
        return None, ""
    template = cast("dict[str, Any]", without_nulls(options.template))
    try:
        object_from_json(template, Reservation)
    except codec.DecodeError as error:
        return None, f"spec.reservationOptions.template: {error}"
    return template, ""


def _pod_ref(ref: _Ref | None) -> PodRef | None:
    return None if ref is None else PodRef(ref.namespace, ref.name, ref.uid)
