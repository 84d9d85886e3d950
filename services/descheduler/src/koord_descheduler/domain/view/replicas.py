"""The workload that controls a pod, and its number of replicas, from the folded objects.

Source:
    descheduler spec, 7.8
"""

from typing import Any, Final

from koordcore.events.objects.custom import plural_of
from koordcore.protocol.objects import ObjectMeta, OwnerReference, object_from_json
from koordcore.state import ClusterState
from koordcore.state.aggregates import CustomObjectState, WorkloadState
from koordcore.values import codec

from koord_descheduler.domain.view.workloads import WorkloadView

REPLICA_SETS: Final = "replicasets"
DEPLOYMENTS: Final = "deployments"
WITH_REPLICAS: Final = frozenset(
    {REPLICA_SETS, DEPLOYMENTS, "statefulsets", "replicationcontrollers", "clonesets", "advancedstatefulsets"}
)
"""Plural names of the kinds whose objects have a number of replicas."""
_JOB: Final = "Job"


def workload_views(state: ClusterState) -> dict[str, WorkloadView]:
    """Return uid of a controller -> its workload, for all controllers that have a number of replicas.

    A ReplicaSet of a Deployment stands for the Deployment, with the pods of all its ReplicaSets. A Job has no scale.

    Source:
        descheduler spec, 7.8
    """
    found: dict[str, WorkloadView] = {}
    for uid, workload in state.of_kind(WorkloadState).items():
        if workload.object.kind != _JOB:
            found[uid] = WorkloadView(workload.object.replicas, (uid,))
    owner_of: dict[str, str] = {}
    for id_, custom in state.of_kind(CustomObjectState).items():
        plural = plural_of(id_)
        if custom.object is None or plural not in WITH_REPLICAS:
            continue
        meta, replicas = _read(custom.object)
        if meta is None:
            continue
        found[meta.uid] = WorkloadView(replicas, (meta.uid,))
        if plural == REPLICA_SETS:
            owner = _controller(meta)
            if owner is not None and owner.kind == "Deployment":
                owner_of[meta.uid] = owner.uid
    sets_of: dict[str, list[str]] = {}
    for uid, owner in owner_of.items():
        sets_of.setdefault(owner, []).append(uid)
    for owner, uids in sets_of.items():
        if owner in found:
            view = WorkloadView(found[owner].replicas, tuple(uids))
            found.update(dict.fromkeys(uids, view))
    return found


def _read(raw: dict[str, Any]) -> tuple[ObjectMeta | None, int]:
    """Return metadata and replicas of an object; None if they cannot be read. The default is one replica."""
    try:
        meta = object_from_json(raw.get("metadata") or {}, ObjectMeta)
    except codec.DecodeError:
        return None, 0
    spec: dict[str, Any] = raw.get("spec") or {}
    replicas = spec.get("replicas", 1)
    return (meta, replicas) if isinstance(replicas, int) and meta.uid else (None, 0)


def _controller(meta: ObjectMeta) -> OwnerReference | None:
    return next((owner for owner in meta.owner_references if owner.controller), None)
