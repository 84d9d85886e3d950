"""The Reservation that is made for a migration job: the place to which its pod will move.

Source:
    descheduler spec, 7.9
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from koordcore.protocol import keys
from koordcore.protocol.annotations.allocation import ALLOCATION_KEYS
from koordcore.values import codec
from koordcore.values.duration import format_duration

from koord_descheduler.domain.jobs.job import MigrationJob
from koord_descheduler.domain.view.pods import PodView

CREATED_BY: Final = "app.kubernetes.io/created-by"
CREATOR: Final = "koord-descheduler"
_COPIED_METADATA: Final = ("name", "namespace", "labels", "annotations", "ownerReferences")
_CLAIMS: Final = ("persistentVolumeClaim", "ephemeral")
_NANOS: Final = 1_000_000_000

Document = dict[str, Any]


def reservation_for(
    job: MigrationJob,
    pod: Mapping[str, Any],
    now: float,
    *,
    without_claims: bool = False,
    avoided: Iterable[str] = (),
) -> Document:
    """Return the Reservation of a job as an object, without apiVersion and kind.

    Fields that the template of the job leaves out are taken from the pod. The Reservation excludes the node of the pod.
    Its name is that of the template, else the uid of the job. It is used once. Without owners in the template, it is
    for the pods of the pod's controller, or for the pod itself if the scheduler found no node for it. It expires with
    the job, unless the template says otherwise.

    Args:
        now: Unix seconds.
        without_claims: Whether volumes with a claim are left out (gate DisablePVCReservation).
        avoided: Further nodes that the Reservation excludes.
    """
    template: Document = copy.deepcopy(dict(job.template or {}))
    metadata: Document = {**cast("Document", template.get("metadata") or {}), "name": job.reservation_name}
    order = str(int(now * 1000))
    metadata["labels"] = {**(metadata.get("labels") or {}), CREATED_BY: CREATOR, keys.RESERVATION_ORDER: order}
    spec: Document = dict(template.get("spec") or {})
    if not spec.get("template"):
        spec["template"] = _pod_template(pod)
    pod_spec: Document = spec["template"].setdefault("spec", {})
    pod_spec.pop("nodeName", None)
    pod_own_spec: Document = pod.get("spec") or {}
    own_node = pod_own_spec.get("nodeName")
    excluded = [*([own_node] if own_node else []), *sorted(set(avoided) - {own_node})]
    if excluded:
        _exclude(pod_spec, excluded)
    if without_claims:
        volumes: list[Document] = pod_spec.get("volumes") or []
        pod_spec["volumes"] = [volume for volume in volumes if not any(volume.get(name) for name in _CLAIMS)]
    owners = _owners(pod)
    if not spec.get("owners") and owners:
        spec["owners"] = owners
    spec["allocateOnce"] = True
    if job.ttl and not spec.get("ttl") and not spec.get("expires"):
        spec["ttl"] = format_duration(int(job.ttl * _NANOS))
    return {"metadata": metadata, "spec": spec}


def movable_document(pod: PodView) -> Document:
    """The pod as an object with its node, without the allocation (CPUs, zones, devices) that it has there."""
    document: Document = codec.to_builtins(pod.object)
    metadata: Document = document["metadata"]
    annotations = {key: text for key, text in pod.annotations.items() if key not in ALLOCATION_KEYS}
    return {
        **document,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**document["spec"], "nodeName": pod.node},
    }


def _pod_template(pod: Mapping[str, Any]) -> Document:
    metadata: Document = pod.get("metadata") or {}
    kept = {name: metadata[name] for name in _COPIED_METADATA if metadata.get(name)}
    return copy.deepcopy({"metadata": kept, "spec": dict(pod.get("spec") or {})})


def _owners(pod: Mapping[str, Any]) -> list[Document]:
    """Owner rules of the Reservation: the pod itself if it is pending, else the pods of its controller."""
    metadata: Document = pod["metadata"]
    if waits_for_node(pod):
        return [{"object": {"kind": "Pod"} | {name: metadata.get(name, "") for name in ("namespace", "name", "uid")}}]
    references: list[Document] = metadata.get("ownerReferences") or []
    controller = next((each for each in references if each.get("controller")), None)
    return [] if controller is None else [{"controller": {**controller, "namespace": metadata.get("namespace", "")}}]


def waits_for_node(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is pending, and the scheduler found no node for it."""
    status: Document = pod.get("status") or {}
    conditions: list[Document] = status.get("conditions") or []
    return status.get("phase") == "Pending" and any(
        each.get("type") == "PodScheduled" and each.get("status") == "False" for each in conditions
    )


def _exclude(pod_spec: Document, nodes: list[str]) -> None:
    """Add to every required term of the node affinity that the node's name is none of these."""
    affinity: Document = pod_spec.setdefault("affinity", {})
    node_affinity: Document = affinity.setdefault("nodeAffinity", {})
    required: Document = node_affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms: list[Document] = required.setdefault("nodeSelectorTerms", [])
    if not terms:
        terms.append({})
    for term in terms:
        fields: list[Document] = term.setdefault("matchFields", [])
        # Kubernetes allows one value in each condition on a field.
        fields.extend({"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes)
