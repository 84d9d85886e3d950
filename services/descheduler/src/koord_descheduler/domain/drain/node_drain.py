"""Decide the next steps of the drain of one node.

The function `look` is called on every change and every few seconds. It returns the progress and the effects. The caller
carries the effects out, and the next call sees their results. The effects have fixed names, so that a repeated look
cannot create anything twice.

Source:
    descheduler spec, 11.2, 11.3
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from koordcore.protocol import drains as drain_documents
from koordcore.protocol.reservation_status import AVAILABLE, FINAL_PHASES, SUCCEEDED, ReservationStatus
from koordcore.values.timestamps import unix_seconds

from koord_descheduler.domain.drain.progress import (
    DECIDED,
    FINAL,
    Condition,
    Cordon,
    CreateJob,
    CreateReservation,
    DeleteJob,
    DeleteReservation,
    DrainEffect,
    DrainPhase,
    DrainProgress,
    PodPhase,
    PodProgress,
    Uncordon,
    part_name,
)
from koord_descheduler.domain.view.pods import PodView

LOOK_INTERVAL: Final = 3.0
"""Seconds after which a drain is looked at without a change."""
GARBAGE_DELAY: Final = 300.0
"""Seconds after its time to live at which a finished drain is deleted."""
_WITH_JOB: Final = frozenset({PodPhase.MIGRATING, PodPhase.FAILED})
"""Phases of pods for which a job was created."""
_FINISHED_JOB: Final = frozenset({"Succeeded", "Failed", "Aborted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainView:
    drain: drain_documents.DrainNode
    now: float  # Unix seconds
    node_exists: bool
    pods: Sequence[PodView]  # All pods on the node, in input order
    is_first: bool = True  # Whether no other drain of the node runs
    # Name -> status of the Reservations that exist.
    reservations: Mapping[str, ReservationStatus] = field(default_factory=dict[str, ReservationStatus])
    # Name -> phase of the migration jobs that exist; "" means Pending.
    jobs: Mapping[str, str] = field(default_factory=dict[str, str])
    # Returns the reasons why a pod must not be migrated, by base filter and expected replicas; empty: none.
    refusals: Callable[[PodView], tuple[str, ...]]
    scheduler_names: frozenset[str]  # Schedulers that know Reservations

    @property
    def age(self) -> float:
        """Seconds since the creation of the drain."""
        return self.now - unix_seconds(self.drain.metadata.creation_timestamp or "")

    def has_flag(self, annotation: str) -> bool:
        """Whether the user set an annotation of the drain to "true"."""
        return self.drain.metadata.annotations.get(annotation) == "true"


@dataclass(frozen=True, slots=True)
class DrainStep:
    progress: DrainProgress
    effects: list[DrainEffect] = field(default_factory=list[DrainEffect])


def is_ignored(pod: PodView) -> bool:
    """Whether a drain leaves a pod alone: a mirror, static, daemon or finished pod stays on the node."""
    return pod.is_mirror or pod.is_static or pod.is_daemon or pod.is_finished


def is_garbage(view: DrainView, progress: DrainProgress) -> bool:
    """Whether a drain has finished and its time to live is over (descheduler spec, 11.2 (8)). Without one it stays."""
    ttl = drain_documents.ttl_seconds(view.drain.spec.ttl)
    is_finished = progress.phase in (DrainPhase.COMPLETE, DrainPhase.ABORTED)
    return is_finished and ttl is not None and view.age >= ttl + GARBAGE_DELAY


def look(view: DrainView, progress: DrainProgress) -> DrainStep:
    """Decide the next steps of a drain. `progress`: its state after the last call.

    An aborted drain stays as it is. A complete drain only gets or loses the condition about unexpected pods. Only the
    first drain of a node leaves the phase Pending.
    """
    if progress.phase is DrainPhase.ABORTED:
        return DrainStep(progress)
    if progress.phase is DrainPhase.COMPLETE:
        unexpected = any(not is_ignored(pod) and pod.uid not in progress.pods for pod in view.pods)
        conditions = progress.conditions - {Condition.UNEXPECTED_POD}
        if unexpected:
            conditions |= {Condition.UNEXPECTED_POD}
        return DrainStep(replace(progress, conditions=conditions))
    reason = _abort_reason(view)
    if reason:
        return DrainStep(replace(progress, phase=DrainPhase.ABORTED, message=reason), _taken_back(view, progress))
    effects: list[DrainEffect] = []
    if progress.phase is DrainPhase.PENDING:
        if not view.is_first:
            return DrainStep(replace(progress, message="another drain of the node is running"))
        effects.append(Cordon())
    pods = _tracked(view, progress)
    present = {pod.uid: pod for pod in view.pods if not pod.is_finished}
    for uid, each in pods.items():
        pods[uid] = _advanced(each, present.get(uid), view, effects)
    progress = DrainProgress(
        phase=DrainPhase.RUNNING, pods=pods, conditions=_conditions(view, pods, progress.conditions)
    )
    if not _is_complete(view, pods):
        return DrainStep(progress, effects)
    unused = [DeleteReservation(name) for name in _unused_reservations(view, pods)]
    effects += [effect for effect in unused if effect not in effects]
    if view.has_flag(drain_documents.CLEAN_TAINT):
        effects.append(Uncordon())
    return DrainStep(replace(progress, phase=DrainPhase.COMPLETE), effects)


def _abort_reason(view: DrainView) -> str:
    """Why a drain has to be aborted now; "" if it goes on."""
    state, ttl = view.drain.spec.confirm_state, drain_documents.ttl_seconds(view.drain.spec.ttl)
    if state in (drain_documents.ConfirmState.REJECTED, drain_documents.ConfirmState.ABORTED):
        return f"confirmState is {state}"
    if view.has_flag(drain_documents.ABORT):
        return "aborted by annotation"
    if ttl is not None and view.age >= ttl:
        return "the time to live is over"
    if not view.node_exists:
        return "the node does not exist"
    return "the object was deleted" if view.drain.metadata.deletion_timestamp is not None else ""


def _taken_back(view: DrainView, progress: DrainProgress) -> list[DrainEffect]:
    """Undo an unfinished drain: delete jobs and unused Reservations, and open the node.

    Pods that have moved stay on their new nodes. A job that was created a moment ago may not be in the view yet. It is
    deleted, too.
    """
    phases = {part_name(view.drain.metadata.name, uid): pod.phase for uid, pod in progress.pods.items()}
    jobs: list[DrainEffect] = [
        DeleteJob(name)
        for name, phase in phases.items()
        if (view.jobs[name] not in _FINISHED_JOB if name in view.jobs else phase in _WITH_JOB)
    ]
    reservations = [DeleteReservation(name) for name in _unused_reservations(view, progress.pods)]
    is_cordoned = progress.phase is not DrainPhase.PENDING and view.node_exists
    return [*jobs, *reservations, *([Uncordon()] if is_cordoned else [])]


def _unused_reservations(view: DrainView, pods: Mapping[str, PodProgress]) -> list[str]:
    """Names of the drain's Reservations that no pod has used up."""
    names = [part_name(view.drain.metadata.name, uid) for uid in pods]
    return [name for name in names if name in view.reservations and view.reservations[name].phase != SUCCEEDED]


def _tracked(view: DrainView, progress: DrainProgress) -> dict[str, PodProgress]:
    """The tracked pods, with those of the node that the drain did not know before."""
    pods = dict(progress.pods)
    is_confirmed = view.drain.spec.confirm_state is drain_documents.ConfirmState.CONFIRMED
    for pod in view.pods:
        if pod.uid not in pods and not is_ignored(pod):
            pods[pod.uid] = PodProgress(
                uid=pod.uid,
                namespace=pod.namespace,
                name=pod.name,
                since=view.now,
                after_confirmed=is_confirmed and progress.phase is DrainPhase.RUNNING,
            )
    return pods


def _advanced(each: PodProgress, pod: PodView | None, view: DrainView, effects: list[DrainEffect]) -> PodProgress:
    """Take all steps that a tracked pod can take now, and add their effects. `pod`: None if it is gone."""
    name = part_name(view.drain.metadata.name, each.uid)
    reservation = view.reservations.get(name)
    if each.phase in FINAL:
        return each
    if each.phase is PodPhase.MIGRATING:
        return _migrated(each, pod, view.jobs.get(name))
    if pod is None:
        if reservation is not None and reservation.phase != SUCCEEDED:
            effects.append(DeleteReservation(name))
        return replace(each, phase=PodPhase.SUCCEED)
    if each.phase in (PodPhase.WAITING, PodPhase.UNMIGRATABLE):
        each = replace(each, phase=_readiness(each, pod, view))
    if each.phase in (PodPhase.AVAILABLE, PodPhase.UNAVAILABLE) and reservation is None:
        each = replace(each, phase=PodPhase.READY, target="")
    if each.phase is PodPhase.READY:
        if reservation is None:
            effects.append(CreateReservation(name, each.uid))
        elif reservation.phase == AVAILABLE:
            each = replace(each, phase=PodPhase.AVAILABLE, target=reservation.node)
        elif reservation.phase in FINAL_PHASES:
            each = replace(each, phase=PodPhase.UNAVAILABLE)
    if each.phase is PodPhase.AVAILABLE and reservation is not None:
        if reservation.phase != AVAILABLE or reservation.owners:
            return replace(each, phase=PodPhase.UNAVAILABLE)
        if view.drain.spec.confirm_state is drain_documents.ConfirmState.CONFIRMED:
            if name not in view.jobs:
                effects.append(CreateJob(name, each.uid, paused=view.has_flag(drain_documents.PAUSED_AFTER_CONFIRMED)))
            return replace(each, phase=PodPhase.MIGRATING)
    return each


def _readiness(each: PodProgress, pod: PodView, view: DrainView) -> PodPhase:
    """The phase of a pod without a Reservation: Ready if one can be made now, else Waiting or Unmigratable."""
    if pod.scheduler_name not in view.scheduler_names or view.refusals(pod):
        return PodPhase.UNMIGRATABLE
    policy = drain_documents.pod_policy(pod.annotations, view.drain.spec.migration_policy)
    return PodPhase.READY if view.now - each.since >= policy.wait_seconds() else PodPhase.WAITING


def _migrated(each: PodProgress, pod: PodView | None, job: str | None) -> PodProgress:
    """The progress of a pod in migration, from the phase of its job. `pod`, `job`: None if it is gone."""
    if job == "Succeeded":
        return replace(each, phase=PodPhase.SUCCEED)
    if job is None or job in _FINISHED_JOB:
        return replace(each, phase=PodPhase.SUCCEED if pod is None else PodPhase.FAILED)
    return each


def _conditions(view: DrainView, pods: Mapping[str, PodProgress], before: frozenset[Condition]) -> frozenset[Condition]:
    """The types of the conditions that are true. OnceAvailable stays true."""
    phases = {each.phase for each in pods.values()}
    found = {
        condition
        for condition, phase in (
            (Condition.UNMIGRATABLE_POD, PodPhase.UNMIGRATABLE),
            (Condition.UNAVAILABLE_RESERVATION, PodPhase.UNAVAILABLE),
            (Condition.FAILED_JOB, PodPhase.FAILED),
        )
        if phase in phases
    }
    own = {part_name(view.drain.metadata.name, uid) for uid in pods}
    node = view.drain.spec.node_name
    if any(
        name not in own and each.phase == AVAILABLE and each.node == node for name, each in view.reservations.items()
    ):
        found.add(Condition.UNEXPECTED_RESERVATION)
    if Condition.ONCE_AVAILABLE in before or phases <= {PodPhase.AVAILABLE, PodPhase.MIGRATING, PodPhase.SUCCEED}:
        found.add(Condition.ONCE_AVAILABLE)
    return frozenset(found)


def _is_complete(view: DrainView, pods: Mapping[str, PodProgress]) -> bool:
    """Whether no pod is left for which a confirmed drain has to wait (descheduler spec, 11.2 (7))."""
    phases = {each.phase for each in pods.values()}
    if phases <= {PodPhase.SUCCEED}:
        return True
    return view.drain.spec.confirm_state is drain_documents.ConfirmState.CONFIRMED and phases <= DECIDED
