"""Kubernetes events about evictions by the descheduler, and about its migration jobs.

Source:
    descheduler spec, 7.5, 7.6, 13
"""

from collections.abc import Iterator
from typing import Final

from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.migration import FAILED_CALLS, MigrationAdvanced, MigrationEnded, MigrationHeld
from koordcore.state.fold import AggregateState
from koordcore.state.migrations import MigrationState

from koord_manager.domain.gateway.eviction import Evicted, GivenUp, Waits
from koord_manager.domain.gateway.pod_status_writes import (
    DESCHEDULER,
    KOORDINATOR,
    MOST_MESSAGE,
    Involved,
    KubernetesEvent,
    about_pod,
)

_MIGRATING: Final = "Migrating"
_EVICTING: Final = "Evicting"
"""Action of an eviction without a job. It is also the reason of a job's event that its eviction failed."""


def answer_event(uid: str, request: PodEvictionRequested, answer: Evicted | GivenUp | Waits) -> KubernetesEvent | None:
    """Return the event about the API server's answer to an eviction that the descheduler requested.

    Args:
        uid: Uid of the pod.
        request: The request of the descheduler.
        answer: The outcome of the call.

    Returns:
        The event that the pod was evicted, or that the eviction by a job failed. None if the pod was gone already, or
        if an eviction without a job failed.
    """
    if isinstance(answer, Evicted):
        return None if answer.gone else _descheduled(uid, request)
    if not request.job:
        return None
    why = answer.why if isinstance(answer, Waits) else answer.message
    return _failed_eviction(_about_job(request.job, request.job_uid), f"{request.namespace}/{request.name}", why)


def migration_events(
    uid: str, state: AggregateState | None, event: MigrationAdvanced | MigrationEnded | MigrationHeld
) -> Iterator[KubernetesEvent]:
    """Yield the events that a fact of a migration job causes.

    Args:
        uid: Uid of the job.
        state: State of the migration; None if it is dropped. It knows the name of the job for facts without it.
        event: The fact.
    """
    job = state.job if isinstance(state, MigrationState) else "" if isinstance(event, MigrationAdvanced) else event.job
    if not job:
        return
    about = _about_job(job, uid)
    if isinstance(event, MigrationHeld):
        for code in set(event.limits).intersection(FAILED_CALLS):
            yield _failed_eviction(about, f"{event.pod.namespace}/{event.pod.name}", code)
        return
    for each in event.notices:
        involved = about
        if each.is_about_pod and event.pod is not None:
            involved = about_pod(event.pod.uid, event.pod.namespace, event.pod.name)
        yield _event(involved, each.reason, each.message, is_warning=each.is_warning)
    done = event.progress
    end = done.phase if done.phase == "Aborted" else done.reason or done.status
    if isinstance(event, MigrationEnded) and end and all(each.reason != end for each in event.notices):
        yield _event(about, end, done.message, is_warning=done.phase == "Failed")


def _descheduled(uid: str, request: PodEvictionRequested) -> KubernetesEvent:
    about = about_pod(uid, request.namespace, request.name)
    if request.job:
        cause = request.message.removesuffix(f" (migration job {request.job})")
        message = f'Pod evicted from node "{request.node}" by the reason "{cause}"'
        return _event(about, request.reason, message)
    cause = request.message.removesuffix(f" ({request.trigger})")
    return _event(about, request.reason, f"pod evicted by {cause}", action=_EVICTING)


def _failed_eviction(about: Involved, pod: str, why: str) -> KubernetesEvent:
    return _event(about, _EVICTING, f'Failed evict Pod "{pod}" caused by {why}', is_warning=True)


def _event(
    about: Involved, reason: str, message: str, *, is_warning: bool = False, action: str = _MIGRATING
) -> KubernetesEvent:
    type_ = "Warning" if is_warning else "Normal"
    return KubernetesEvent(about, reason, (message or reason)[:MOST_MESSAGE], type_, DESCHEDULER, action=action)


def _about_job(name: str, uid: str) -> Involved:
    # events about objects without a namespace are in the namespace "default"
    return Involved("PodMigrationJob", KOORDINATOR, "default", name, uid)
