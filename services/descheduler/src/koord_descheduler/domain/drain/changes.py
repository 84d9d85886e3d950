"""The effects of a drain as changes of objects: nodes are closed, Reservations and migration jobs are created.

All names are fixed, so a repeated effect changes nothing.

Source:
    descheduler spec, 11.2 (3), 11.3
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, assert_never

from koordcore.protocol import drains as drain_documents
from koordcore.protocol import keys
from koordcore.protocol.migrations import RESERVATION_FIRST
from koordcore.protocol.objects import Taint
from koordcore.requests.objects import ChangeNode, CreateObject, DeleteObject, ObjectChange
from koordcore.values.duration import NANOS_PER_SECOND, format_duration

from koord_descheduler.domain.drain.progress import (
    Cordon,
    CreateJob,
    CreateReservation,
    DeleteJob,
    DeleteReservation,
    DrainEffect,
    Uncordon,
)
from koord_descheduler.domain.jobs.job import MigrationJob
from koord_descheduler.domain.jobs.reservation_template import Document, movable_document, reservation_for
from koord_descheduler.domain.view.pods import PodView

API_VERSION: Final = "scheduling.koordinator.sh/v1alpha1"
TRIGGER: Final = "Drain"
_PREFERENCE: Final = 100
_NO_SCHEDULE: Final = "NoSchedule"


def change_of(
    effect: DrainEffect, drain: drain_documents.DrainNode, pods: Mapping[str, PodView], *, now: float, job_ttl: float
) -> ObjectChange | None:
    """None if the pod of the effect does not exist any more.

    Args:
        pods: Uid -> pod on the node.
        now: Unix seconds.
        job_ttl: Seconds after which a migration job is given up; 0: never.
    """
    match effect:
        case Cordon():
            return cordon(drain)
        case Uncordon():
            return uncordon(drain.spec.node_name, drain.metadata.name, drain.spec.cordon_policy)
        case CreateReservation(name=name, pod=uid):
            return CreateObject(document=_reservation(drain, name, pods[uid], now)) if uid in pods else None
        case CreateJob(name=name, pod=uid, paused=paused):
            if uid not in pods:
                return None
            return CreateObject(document=_job(drain, name, pods[uid], is_paused=paused, ttl=job_ttl))
        case DeleteReservation(name=name):
            return DeleteObject(kind="Reservation", name=name)
        case DeleteJob(name=name):
            return DeleteObject(kind="PodMigrationJob", name=name)
        case _:
            assert_never(effect)


def cordon(drain: drain_documents.DrainNode) -> ChangeNode:
    """Close the node of a drain for new pods, by a taint or labels as its policy says."""
    policy, name = drain.spec.cordon_policy, drain.metadata.name
    labels: dict[str, str | None] = {drain_documents.NODE_PLANNING: drain_documents.label_value(name)}
    if policy.mode is drain_documents.CordonMode.LABEL:
        return ChangeNode(name=drain.spec.node_name, labels={**policy.labels, **labels})
    return ChangeNode(name=drain.spec.node_name, labels=labels, taints=[_taint(name)])


def uncordon(node: str, drain: str, policy: drain_documents.CordonPolicy) -> ChangeNode:
    """Open a node again: remove exactly the taint or labels that `cordon` set. `drain`: name of the DrainNode."""
    if policy.mode is drain_documents.CordonMode.LABEL:
        return ChangeNode(name=node, labels=dict.fromkeys([drain_documents.NODE_PLANNING, *policy.labels]))
    return ChangeNode(name=node, labels={drain_documents.NODE_PLANNING: None}, removed_taints=[_taint(drain)])


def owner_of(kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "name": name, "uid": uid, "controller": True}


def _taint(drain: str) -> Taint:
    return Taint(key=drain_documents.DRAIN_NODE, effect=_NO_SCHEDULE, value=drain_documents.label_value(drain))


def _labels(drain: drain_documents.DrainNode, pod: PodView) -> dict[str, str]:
    names = {
        drain_documents.DRAIN_NODE: drain.metadata.name,
        drain_documents.NODE_NAME: drain.spec.node_name,
        drain_documents.POD_NAMESPACE: pod.namespace,
        drain_documents.POD_NAME: pod.name,
    }
    return {label: drain_documents.label_value(name) for label, name in names.items()}


def _metadata(drain: drain_documents.DrainNode, name: str, pod: PodView) -> Document:
    owner = owner_of("DrainNode", drain.metadata.name, drain.metadata.uid)
    return {"name": name, "labels": _labels(drain, pod), "ownerReferences": [owner]}


def _reservation(drain: drain_documents.DrainNode, name: str, pod: PodView, now: float) -> Document:
    """The Reservation for a pod of a drain: as for a migration job, and never on a drained node."""
    job = MigrationJob(name=name, uid=name, created=now)
    found = reservation_for(job, movable_document(pod), now)
    metadata = _metadata(drain, name, pod)
    metadata["labels"] = {**found["metadata"]["labels"], **metadata["labels"]}
    spec: Document = found["spec"]
    spec["ttl"] = "0s"
    affinity: Document = (
        spec["template"].setdefault("spec", {}).setdefault("affinity", {}).setdefault("nodeAffinity", {})
    )
    required: Document = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms: list[Document] = required.setdefault("nodeSelectorTerms", [])
    for term in terms or _added(terms):
        term.setdefault("matchExpressions", []).append(_absent(drain_documents.NODE_PLANNING))
    preferred: list[Document] = affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
    preferred.append({"weight": _PREFERENCE, "preference": {"matchExpressions": [_absent(drain_documents.NODE_GROUP)]}})
    return {"apiVersion": API_VERSION, "kind": "Reservation", "metadata": metadata, "spec": spec}


def _added(terms: list[Document]) -> Iterable[Document]:
    terms.append({})
    return terms


def _absent(label: str) -> Document:
    return {"key": label, "operator": "DoesNotExist"}


def _job(drain: drain_documents.DrainNode, name: str, pod: PodView, *, is_paused: bool, ttl: float) -> Document:
    metadata = _metadata(drain, name, pod)
    metadata["annotations"] = {
        keys.EVICT_TRIGGER: TRIGGER,
        keys.EVICT_REASON: f"drain node {drain.spec.node_name}",
    }
    spec: Document = {
        "podRef": {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "mode": RESERVATION_FIRST,
        "paused": is_paused,
        "reservationOptions": {"reservationRef": {"kind": "Reservation", "name": name}},
    }
    if ttl:
        spec["ttl"] = format_duration(int(ttl * NANOS_PER_SECOND))
    return {"apiVersion": API_VERSION, "kind": "PodMigrationJob", "metadata": metadata, "spec": spec}
