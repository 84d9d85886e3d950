"""PodMigrationJobs at an API server as their facts have them, and events about them and about evictions.

Source:
    protocol spec, 9.6; descheduler spec, 7.4, 7.5, 7.6, 13, 14
"""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from koordcore.events.envelope import AggregateRef
from koordcore.events.gateway import PodEvictionRequested, PodEvictionWithdrawn
from koordcore.events.migration import FAILED_CALLS, MigratedPod, MigrationAdvanced, MigrationEnded, MigrationHeld
from koordcore.protocol import keys
from koordcore.state import ClusterState
from koordcore.state.fold import AggregateState
from koordcore.state.migrations import MigrationState
from koordcore.stories.pending import MOST_MESSAGE

from koord_manager.domain.gateway.eviction import Ended, Evicted, Waits
from koord_manager.domain.gateway.pod_status_writes import (
    DESCHEDULER,
    KOORDINATOR,
    Involved,
    KubernetesEvent,
    about_pod,
)

Json: TypeAlias = dict[str, Any]


def migration_status(state: MigrationState) -> Json:
    """Return `status` of a PodMigrationJob from its folded facts. Fields without a value are left out."""
    done = state.progress
    return _given(
        phase=done.phase or "Pending",
        status=done.status,
        reason=done.reason,
        message=done.message,
        conditions=[
            {
                "type": each.type,
                "status": "True" if each.is_true else "False",
                "lastTransitionTime": state.since.get(each.type, ""),
                **_given(reason=each.reason, message=each.message),
            }
            for each in done.conditions
        ],
        nodeName=done.node,
        podRef=_reference(done.bound_pod),
    )


def with_migration_status(folded: ClusterState, document: Json) -> Json:
    """Return a copy of a PodMigrationJob with the status, metadata and spec that its facts give it."""
    meta: Json = document["metadata"]
    state = folded.get(AggregateRef("migration", str(meta.get("uid", ""))))
    if not isinstance(state, MigrationState):
        return document
    patch = migration_patch(document, state)
    spec: Json = {**document.get("spec", {}), **patch.get("spec", {})}
    metadata: Json = {**meta, **patch.get("metadata", {})}
    return {**document, "metadata": metadata, "spec": spec, "status": migration_status(state)}


def migration_patch(found: Json, state: MigrationState) -> Json:
    """Return the merge patch by which the facts change metadata and spec of a PodMigrationJob.

    It sets the result of the arbitration, the Reservation of the job, and the uid of its pod.
    """
    meta, spec = found["metadata"], found.get("spec", {})
    annotations: Json = meta.get("annotations") or {}
    patch: Json = {}
    if state.passed_at and annotations.get(keys.PASSED_ARBITRATION) != "true":
        patch["metadata"] = {"annotations": {**annotations, keys.PASSED_ARBITRATION: "true"}}
    added: Json = {}
    options: Json = spec.get("reservationOptions") or {}
    reference: Json = options.get("reservationRef") or {}
    if state.progress.reservation and reference.get("name") != state.progress.reservation:
        added["reservationOptions"] = {**options, "reservationRef": {"name": state.progress.reservation}}
    pod: Json = spec.get("podRef") or {}
    if state.pod is not None and state.pod.uid and pod.get("uid") != state.pod.uid:
        added["podRef"] = {**pod, "uid": state.pod.uid}
    return {**patch, "spec": added} if added else patch


def _reference(pod: MigratedPod | None) -> Json | None:
    return None if pod is None else {"namespace": pod.namespace, "name": pod.name} | _given(uid=pod.uid)


def _given(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value}


_MIGRATING: Final = "Migrating"
_EVICTING: Final = "Evicting"
"""Action of an eviction without a job. It is also the reason of a job's event that its eviction failed."""


def answer_event(uid: str, request: PodEvictionRequested, answer: Ended | Waits) -> KubernetesEvent | None:
    """Return the event about the API server's answer to an eviction that the descheduler requested.

    It says that the pod was evicted, or that the eviction by a job failed. None if the pod was gone already, if the
    job does not want the eviction any more, or if an eviction without a job failed.
    """
    if isinstance(answer, Evicted):
        return None if answer.gone else _descheduled(uid, request)
    if not request.job or isinstance(answer, PodEvictionWithdrawn):
        return None
    why = answer.why if isinstance(answer, Waits) else answer.message
    return _failed_eviction(_about_job(request.job, request.job_uid), f"{request.namespace}/{request.name}", why)


def migration_events(
    uid: str, state: AggregateState | None, event: MigrationAdvanced | MigrationEnded | MigrationHeld
) -> Iterator[KubernetesEvent]:
    """Yield the events that a fact of a migration job causes.

    Args:
        state: State of the migration; None if it is dropped. It knows the name of the job for facts without it.
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
