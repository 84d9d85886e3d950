"""Render a PodMigrationJob as its facts have it.

Source:
    protocol spec, 9.6; descheduler spec, 7.4, 7.5, 14
"""

from typing import Any, Final, TypeAlias

from koordcore.events.envelope import AggregateRef
from koordcore.events.migration import MigratedPod
from koordcore.protocol import keys
from koordcore.state import ClusterState
from koordcore.state.migrations import MigrationState

Json: TypeAlias = dict[str, Any]

JOBS: Final = "podmigrationjobs"


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
    """Return a PodMigrationJob with the status, metadata and spec that its facts give it; unchanged without facts.

    Args:
        folded: The folded state of the cluster.
        document: The object, not changed.
    """
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

    Args:
        found: The object.
        state: Its folded facts.
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
