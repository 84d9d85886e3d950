"""A migration job as object and facts together, and the fact that records its next step.

The object has the request, the facts have the progress. Facts take precedence. A user can set the phase Aborted.

Source:
    descheduler spec, 7.4, 7.5, 7.11, 14
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec
from koordcore.events.descheduling import ChangedField, Inputs
from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.migration import (
    MigratedPod,
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationCondition,
    MigrationEnded,
    MigrationHeld,
    MigrationNotice,
    MigrationProgress,
)
from koordcore.protocol import keys
from koordcore.state.migrations import MigrationState
from koordcore.values.timestamps import unix_seconds

from koord_descheduler.domain.jobs.job import PASSED, Condition, MigrationJob, Phase, PodRef
from koord_descheduler.domain.jobs.world import JobEvent
from koord_descheduler.domain.view.pods import PodView


def migration_ref(job: MigrationJob) -> AggregateRef:
    return AggregateRef("migration", job.uid)


def with_facts(job: MigrationJob, state: MigrationState | None) -> MigrationJob:
    """Return a job with the progress from its recorded facts.

    Without facts, for example of a job that another descheduler began, it is returned unchanged.
    """
    if state is None:
        return job
    done = state.progress
    annotations = {name: text for name, text in job.annotations.items() if name != keys.PASSED_ARBITRATION}
    if state.passed_at:
        annotations[keys.PASSED_ARBITRATION] = PASSED
    is_aborted = job.phase is Phase.ABORTED and not state.ended_at
    return replace(
        job,
        annotations=annotations,
        pod=job.pod if state.pod is None else _pod_ref(state.pod),
        reservation=done.reservation or job.reservation,
        phase=Phase.ABORTED if is_aborted else Phase(done.phase),
        status=done.status,
        reason=done.reason,
        message=done.message,
        conditions={each.type: Condition(each.is_true, each.reason, each.message) for each in done.conditions},
        node=done.node,
        bound_pod=None if done.bound_pod is None else _pod_ref(done.bound_pod),
    )


def arbitrated_event(job: MigrationJob, pod: PodView | None, inputs: Inputs) -> Event:
    """`pod`: None if it does not exist."""
    controller = None if pod is None else pod.controller
    return MigrationArbitrated(
        job=job.name,
        pod=_migrated(job.pod) or MigratedPod(namespace="", name=""),
        node="" if pod is None else pod.node,
        controller="" if controller is None else controller.uid,
        trigger=job.annotations.get(keys.EVICT_TRIGGER, ""),
        reason=job.annotations.get(keys.EVICT_REASON, ""),
        round=job.annotations.get(keys.JOB_ROUND, ""),
        profile=job.annotations.get(keys.JOB_PROFILE, ""),
        inputs=inputs,
    )


def held_event(job: MigrationJob, limits: Sequence[str], state: MigrationState | None, inputs: Inputs) -> Event | None:
    """Return the fact that a job waits for limits; None if the same was recorded before. `limits`: their codes."""
    if state is not None and state.limits == list(limits):
        return None
    pod = _migrated(job.pod) or MigratedPod(namespace="", name="")
    return MigrationHeld(job=job.name, pod=pod, limits=[*limits], inputs=inputs)


def ended_event(job: MigrationJob, refusals: Sequence[str] = (), told: Iterable[JobEvent] = ()) -> Event:
    """`refusals`: codes of the rules by which its pod must not be migrated. `told`: events of its last look."""
    notices = [_notice(each) for each in told]
    return MigrationEnded(
        job=job.name, pod=_migrated(job.pod), progress=_progress(job), refusals=[*refusals], notices=notices
    )


def deleted_event(state: MigrationState) -> Event:
    """Return the fact of the end of a job whose object was deleted before the job ended."""
    progress = msgspec.structs.replace(
        state.progress, phase=str(Phase.ABORTED), reason="", message="the PodMigrationJob was deleted"
    )
    return MigrationEnded(job=state.job, pod=state.pod, progress=progress)


def advanced_event(
    before: MigrationJob,
    after: MigrationJob,
    replicas: int | None = None,
    soft_eviction: ChangedField | None = None,
    told: Iterable[JobEvent] = (),
    *,
    controller: str = "",
    has_waited: bool = False,
) -> Event | None:
    """Return the fact that records how a look changed a job; None if nothing changed.

    If the job has ended, this is the fact of its end, even if nothing else changed.

    Args:
        replicas: If the look requests the eviction of the pod, the replicas of its workload; else None.
        soft_eviction: If the look set the soft-eviction annotation of the pod, its values; else None.
        told: Events of the look. Those about the pod count for a soft eviction; the gateway publishes those of others.
        controller: If the look requests the eviction of the pod, the uid of its controller; else "".
        has_waited: Whether a limit was recorded for which the job does not wait any more. The fact ends this wait.
    """
    told = [each for each in told if each.about == "job" or soft_eviction is not None]
    if not after.is_in_flight:
        return ended_event(after, told=told)
    is_same = _progress(before) == _progress(after) and before.pod == after.pod
    if is_same and soft_eviction is None and not has_waited:
        return None
    pod = _migrated(after.pod) or MigratedPod(namespace="", name="")
    return MigrationAdvanced(
        pod=pod,
        progress=_progress(after),
        replicas=replicas,
        controller=controller,
        soft_eviction=soft_eviction,
        notices=[_notice(each) for each in told],
    )


def requested_evictions(states: Iterable[MigrationState]) -> Iterator[float]:
    """Yield the times, in Unix seconds, at which jobs requested evictions. The facts of a deleted job count, too."""
    return (unix_seconds(each.evicted_at) for each in states if each.evicted_at)


def _progress(job: MigrationJob) -> MigrationProgress:
    return MigrationProgress(
        phase=job.phase,
        status=job.status,
        reason=job.reason,
        message=job.message,
        conditions=[
            MigrationCondition(type=type_, is_true=each.is_true, reason=each.reason, message=each.message)
            for type_, each in job.conditions.items()
        ],
        reservation=job.reservation,
        node=job.node,
        bound_pod=_migrated(job.bound_pod),
    )


def _notice(event: JobEvent) -> MigrationNotice:
    return MigrationNotice(
        reason=event.reason,
        message=event.message,
        is_warning=event.type == "Warning",
        is_about_pod=event.about == "pod",
    )


def _migrated(pod: PodRef | None) -> MigratedPod | None:
    return None if pod is None else MigratedPod(namespace=pod.namespace, name=pod.name, uid=pod.uid)


def _pod_ref(pod: MigratedPod) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)
