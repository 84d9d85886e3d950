"""A workload's number of pods: which pods to create or delete so that it has as many as it asks for.

Level-triggered: looks at the workload and its pods as folded, whatever happened in between.
"""

import hashlib

import msgspec
from koordcore.events.envelope import AggregateRef, Draft, event_id
from koordcore.events.mirror import PodSpecAdded, PodSpecDeleted
from koordcore.protocol.objects import OwnerReference, Pod, PodSpec, Workload
from koordcore.state.aggregates import PodSpecState, WorkloadState
from koordcore.values import codec

from koord_manager.domain.apply import admitted_pod
from koord_manager.domain.view import ManagerView


def template_hash(workload: Workload) -> str:
    """Eight hex digits of the pod template: pods of another template are of another generation."""
    return hashlib.blake2b(codec.encode_canonical(workload.template), digest_size=4).hexdigest()


def reconcile_workload(view: ManagerView, uid: str, *, now: str, limit: int) -> list[Draft]:
    """Facts that bring a workload's pods to its number, at most `limit` at once; each stands for itself.

    A Deployment's pods of an older template are replaced, oldest first; a Job's pods are never replaced by a changed
    template. Names are `<workload>-<template hash>-<number>`; uids follow from the workload's uid, the name and the
    position of the log that the decision was made on.
    """
    state = view.state.of_kind(WorkloadState).get(uid)
    pods = view.pods_of_workload(uid)
    specs = view.state.of_kind(PodSpecState)
    if state is None:
        return [_deletion(pod, specs[pod]) for pod in pods[:limit]]
    workload = state.object
    generation = template_hash(workload)
    prefix = f"{workload.metadata.name}-{generation}-"
    current = [pod for pod in pods if workload.kind == "Job" or specs[pod].object.metadata.name.startswith(prefix)]
    stale = [pod for pod in pods if pod not in set(current)] if len(current) != len(pods) else []
    surplus = current[workload.replicas :]
    drafts = [_deletion(pod, specs[pod]) for pod in (*stale, *surplus)][:limit]
    missing = workload.replicas - len(current)
    taken = {specs[pod].object.metadata.name for pod in current}
    number = 0
    while missing > 0 and len(drafts) < limit:
        name = f"{prefix}{number}"
        number += 1
        if name in taken or view.pod(workload.metadata.namespace, name) is not None:
            continue
        drafts.append(_creation(view, workload, uid, name, now))
        missing -= 1
    return drafts


def _deletion(uid: str, spec: PodSpecState) -> Draft:
    meta = spec.object.metadata
    return Draft(AggregateRef("podspec", uid), PodSpecDeleted(namespace=meta.namespace, name=meta.name), spec.seq)


def _creation(view: ManagerView, workload: Workload, owner_uid: str, name: str, now: str) -> Draft:
    uid = event_id(f"{owner_uid}/{view.state.position}", AggregateRef("podspec", name), 0)
    owner = OwnerReference(
        api_version=workload.api_version,
        kind=workload.kind,
        name=workload.metadata.name,
        uid=owner_uid,
        controller=True,
    )
    meta = msgspec.structs.replace(
        workload.template.metadata,
        name=name,
        namespace=workload.metadata.namespace,
        labels=dict(workload.template.metadata.labels),
        annotations=dict(workload.template.metadata.annotations),
        owner_references=[owner],
    )
    spec: PodSpec = msgspec.structs.replace(workload.template.spec)
    pod = admitted_pod(view, Pod(metadata=meta, spec=spec), uid=uid, now=now)
    return Draft(AggregateRef("podspec", uid), PodSpecAdded(object=pod), 0)
