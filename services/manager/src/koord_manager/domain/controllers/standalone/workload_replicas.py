"""Create and delete pods, so that each workload has the number of pods that it asks for.

It compares the folded workload with its folded pods, whatever happened in between.
"""

import hashlib
import re
from typing import Any, Final

import msgspec
from koordcore.events.envelope import AggregateRef, Draft, event_id
from koordcore.events.objects import PodSpecAdded, PodSpecDeleted, WorkloadPodsCreated
from koordcore.protocol.manifests import InvalidManifest
from koordcore.protocol.objects import OwnerReference, Pod, Workload
from koordcore.state.aggregates import PodSpecState, WorkloadState
from koordcore.values import codec

from koord_manager.domain.admission.options import Options
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.admitting import CreatedPod, created_pod, pod_document

_OUR_NAME: Final = re.compile(r"-[0-9a-f]{8}-[0-9]+")
"""Suffix of pod names after the workload's name."""


def template_hash(workload: Workload) -> str:
    """Return eight hexadecimal digits of a hash of the pod template. They are a part of the names of the pods."""
    return hashlib.blake2b(codec.encode_canonical(workload.template), digest_size=4).hexdigest()


def reconcile_workload(
    view: ManagerView, uid: str, *, now: str, limit: int, options: Options | None = None
) -> list[list[Draft]]:
    """Return the facts that create and delete pods of a workload until it has the requested number.

    Pods of a Deployment with an older template are deleted, oldest first, and their successors are created in the
    same call: `limit` is the only brake. Of surplus pods, the newest are deleted. Pods of a Job are never replaced. If
    the workload no longer exists, the pods that this controller created for it are deleted.

    A name is `<workload>-<template hash>-<number>`. The uid of a pod is derived from the last position of the
    workload, and creating pods changes that position. So if two leaders decide at once, the log refuses one of them.

    Args:
        now: Creation time of new pods, RFC 3339.
        limit: Maximum number of pods to create or delete.
        options: Feature gates and flags of admission; None for the defaults.

    Returns:
        Groups of facts; the facts of a group are appended together. Empty if nothing has to be done. If admission
        denies a later pod, only the pods before it are created.

    Raises:
        InvalidManifest: Admission denies the first pod, and nothing else has to be done.
    """
    options = options or Options()
    state = view.state.of_kind(WorkloadState).get(uid)
    pods = view.pods_of_workload(uid)
    specs = view.state.of_kind(PodSpecState)
    if state is None:
        left = [pod for pod in pods if is_made_here(specs[pod].object, uid)]
        return [[_deletion(pod, specs[pod])] for pod in left[:limit]]
    workload = state.object
    prefix = f"{workload.metadata.name}-{template_hash(workload)}-"
    current = [pod for pod in pods if workload.kind == "Job" or specs[pod].object.metadata.name.startswith(prefix)]
    kept = set(current)
    stale = [pod for pod in pods if pod not in kept]
    surplus = current[workload.replicas :]
    groups = [[_deletion(pod, specs[pod])] for pod in (*stale, *surplus)][:limit]
    wanted = min(workload.replicas - len(current), limit - len(groups))
    if wanted > 0:
        try:
            groups.append(_creations(view, uid, state, prefix, wanted, now, options))
        except InvalidManifest:
            if not groups:
                raise
    return groups


def is_made_here(pod: Pod, owner_uid: str) -> bool:
    """Return whether this controller created a pod for the workload with uid `owner_uid`; it deletes no other pods."""
    meta = pod.metadata
    owners = (owner for owner in meta.owner_references if owner.uid == owner_uid)
    return any(_OUR_NAME.fullmatch(meta.name.removeprefix(owner.name)) for owner in owners)


def _deletion(uid: str, spec: PodSpecState) -> Draft:
    meta = spec.object.metadata
    return Draft(AggregateRef("podspec", uid), PodSpecDeleted(namespace=meta.namespace, name=meta.name), spec.seq)


def _creations(
    view: ManagerView, owner_uid: str, state: WorkloadState, prefix: str, wanted: int, now: str, options: Options
) -> list[Draft]:
    """Return the facts of new pods with free names, of their quotas' usage, and of the workload.

    Raises:
        InvalidManifest: Not even the first pod is admitted.
    """
    workload = state.object
    drafts: list[Draft] = []
    accounts: dict[AggregateRef, Draft] = {}
    number = 0
    while len(drafts) < wanted:
        name = f"{prefix}{number}"
        number += 1
        if view.pod(workload.metadata.namespace, name) is not None:
            continue
        uid = event_id(f"{owner_uid}/{state.seq}", AggregateRef("podspec", name), 0)
        try:
            created = _created(view, workload, owner_uid, name, uid, now, options, accounts)
        except InvalidManifest:
            if not drafts:
                raise
            break
        if created.quota is not None:
            accounts[created.quota.ref] = created.quota
        drafts.append(Draft(AggregateRef("podspec", uid), PodSpecAdded(object=created.pod), 0))
    mark = WorkloadPodsCreated(pods=[draft.ref.id for draft in drafts])
    return [*drafts, *accounts.values(), Draft(AggregateRef("workloadspec", owner_uid), mark, state.seq)]


def _created(
    view: ManagerView,
    workload: Workload,
    owner_uid: str,
    name: str,
    uid: str,
    now: str,
    options: Options,
    accounts: dict[AggregateRef, Draft],
) -> CreatedPod:
    namespace = workload.metadata.namespace
    document = templated_pod(workload, owner_uid, name)
    return created_pod(view, document, namespace=namespace, uid=uid, now=now, options=options, accounts=accounts)


def templated_pod(workload: Workload, owner_uid: str, name: str) -> dict[str, Any]:
    """Return a pod of a workload as JSON, before admission: the pod template with name, namespace and owner."""
    owner = OwnerReference(
        api_version=workload.api_version,
        kind=workload.kind,
        name=workload.metadata.name,
        uid=owner_uid,
        controller=True,
    )
    meta = msgspec.structs.replace(
        workload.template.metadata, name=name, namespace=workload.metadata.namespace, owner_references=[owner]
    )
    return pod_document(Pod(metadata=meta, spec=workload.template.spec))
