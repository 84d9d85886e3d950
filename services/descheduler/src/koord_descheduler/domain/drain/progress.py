"""The state of the drain of a node, the effects of its steps, and the facts that record it.

Source:
    descheduler spec, 11.1, 11.2, 14
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias

from koordcore.events import drain as drain_events
from koordcore.events.envelope import Event
from koordcore.protocol.drains import ConfirmState, CordonMode, DrainNode
from koordcore.state.drains import DrainState
from koordcore.values.timestamps import unix_seconds

_UID_PART: Final = 8


class DrainPhase(StrEnum):
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
    ONCE_AVAILABLE = "OnceAvailable"
    UNMIGRATABLE_POD = "UnmigratablePodExists"
    UNEXPECTED_RESERVATION = "UnexpectedReservationExists"
    UNAVAILABLE_RESERVATION = "UnavailableReservationExists"
    FAILED_JOB = "FailedMigrationJobExists"
    UNEXPECTED_POD = "UnexpectedPodAfterCompleteExists"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodProgress:
    uid: str
    namespace: str
    name: str
    phase: PodPhase = PodPhase.WAITING
    since: float  # Unix seconds at which the drain saw it first
    after_confirmed: bool = False  # Whether it arrived after the drain was confirmed
    target: str = ""  # Node of its reservation; "" if there is none yet

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainProgress:
    """The state of a drain, which follows from the recorded facts about it."""

    phase: DrainPhase = DrainPhase.PENDING
    message: str = ""  # Reason for the phase; "" if there is none
    # Uid -> tracked pod, in the order in which the drain saw them first.
    pods: Mapping[str, PodProgress] = field(default_factory=dict[str, PodProgress])
    conditions: frozenset[Condition] = frozenset()


def part_name(drain: str, pod: str) -> str:
    """Name of the Reservation and of the job that a drain makes for the pod with this uid."""
    return f"{drain}-{pod[:_UID_PART]}"


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
    """Migrate a pod to its Reservation."""

    name: str  # Name of the job, and of the Reservation
    pod: str  # Uid of the pod
    paused: bool  # Whether the job waits until the user resumes it


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Effect: delete the job `name`. No-op if it does not exist."""

    name: str


DrainEffect: TypeAlias = Cordon | Uncordon | CreateReservation | DeleteReservation | CreateJob | DeleteJob


Explain = Callable[[PodProgress], str]
"""Returns why a pod is in its phase; "" if there is nothing to say."""


def progress_of(state: DrainState | None) -> DrainProgress:
    """Without facts, the progress of a new drain."""
    if state is None:
        return DrainProgress()
    return DrainProgress(
        phase=DrainPhase(state.phase),
        message=state.message,
        pods={uid: _pod_progress(pod) for uid, pod in state.pods.items()},
        conditions=frozenset(Condition(type_) for type_ in state.conditions),
    )


def event_of(
    drain: DrainNode, state: DrainState | None, after: DrainProgress, *, now: str, explain: Explain
) -> Event | None:
    """Return the one fact that records the new progress of a drain; None if nothing changed.

    The fact that a running drain was confirmed is recorded alone. Other changes are recorded by a later look.

    `state`: folded facts of the drain; None if there are none. `now`: RFC 3339 time of the fact.
    """
    uid, spec = drain.metadata.uid, drain.spec
    before = progress_of(state)
    if after.phase is DrainPhase.ABORTED:
        is_new = before.phase is not DrainPhase.ABORTED
        return drain_events.DrainAborted(object_uid=uid, node=spec.node_name, reason=after.message) if is_new else None
    if after.phase is DrainPhase.PENDING:
        is_new = state is None or before.message != after.message
        return drain_events.DrainWaiting(object_uid=uid, node=spec.node_name, message=after.message) if is_new else None
    conditions = sorted(str(type_) for type_ in after.conditions)
    pods = list(_changed(state, after.pods.values(), now, explain))
    if before.phase is DrainPhase.PENDING:
        labels = spec.cordon_policy.labels if spec.cordon_policy.mode is CordonMode.LABEL else {}
        return drain_events.DrainStarted(
            object_uid=uid, node=spec.node_name, mode=spec.cordon_policy.mode, labels=labels, pods=pods,
            conditions=conditions,
        )  # fmt: skip
    if spec.confirm_state is ConfirmState.CONFIRMED and state is not None and not state.confirmed_at:
        return drain_events.DrainConfirmed()
    if after.phase is DrainPhase.COMPLETE and before.phase is not DrainPhase.COMPLETE:
        return drain_events.DrainCompleted(pods=pods, conditions=conditions)
    if pods or after.conditions != before.conditions:
        return drain_events.DrainPodsChanged(pods=pods, conditions=conditions)
    return None


def without_refused(drain: str, before: DrainProgress, after: DrainProgress, refused: Collection[str]) -> DrainProgress:
    """Pods whose job could not be created stay in their phase. `refused`: names of the objects."""
    pods = {
        uid: before.pods[uid]
        if part_name(drain, uid) in refused and pod.phase is PodPhase.MIGRATING and uid in before.pods
        else pod
        for uid, pod in after.pods.items()
    }
    return replace(after, pods=pods)


def _pod_progress(pod: drain_events.DrainedPod) -> PodProgress:
    return PodProgress(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        phase=PodPhase(pod.phase),
        since=unix_seconds(pod.since),
        after_confirmed=pod.after_confirmed,
        target=pod.target,
    )


def _changed(
    state: DrainState | None, pods: Iterable[PodProgress], now: str, explain: Explain
) -> Iterable[drain_events.DrainedPod]:
    """The pods that are new, or that have another phase, target or message."""
    known: Mapping[str, drain_events.DrainedPod] = {} if state is None else state.pods
    for pod in pods:
        before = known.get(pod.uid)
        recorded = drain_events.DrainedPod(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            phase=pod.phase,
            since=now if before is None else before.since,
            phase_since=now if before is None or before.phase != pod.phase else before.phase_since,
            after_confirmed=pod.after_confirmed,
            target=pod.target,
            message=explain(pod),
        )
        if recorded != before:
            yield recorded
