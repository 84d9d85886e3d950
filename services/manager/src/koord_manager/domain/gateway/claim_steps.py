"""Decide the next step to bind a claim of a placed pod, as PreBind of kube-scheduler's VolumeBinding does.

The scheduler chose a volume for the claim, or the pod's node for a volume that a provisioner makes. The gateway writes
this into `spec.claimRef` of the volume, or into the annotation `selected-node` of the claim. Then the controllers of
the cluster bind the claim, and the pod is bound once they have bound all of its claims. Objects are read before they
are written, and a patch names the version that was read. So two writers never choose differently.

Source:
    scheduler-core spec, 5.9; https://kubernetes.io/docs/concepts/storage/persistent-volumes/#binding
"""

import math
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

from koordcore.protocol.objects import Node, object_from_json
from koordcore.protocol.placement import term_matches_one
from koordcore.protocol.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
    is_fully_bound,
)
from koordcore.values import codec
from koordcore.values.allocation import ClaimBinding

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.binding import Binding, Later, Settled
from koord_manager.domain.gateway.requests import MERGE_PATCH, Json, Meaning, Request, meaning_of

FAILED: Final = "VolumeBinding"
"""Reason of a binding that failed because a claim was not bound."""
VOLUMES: Final = "persistentvolumes"
CLAIMS: Final = "persistentvolumeclaims"


class Progress(Enum):
    BOUND = "bound"  # The claim is bound to a volume that the pod's node can use
    WAITS = "waits"  # The choice is written, and the controllers of the cluster have not bound the claim yet


class LookAtVolume(NamedTuple):
    claim: PersistentVolumeClaim  # The claim as it was read


Step = Progress | Later | Settled | Request


def known_bound(view: ManagerView, binding: Binding, wanted: ClaimBinding) -> Progress | Settled | None:
    """Return the outcome that the mirrored claim shows; None if it is not bound yet.

    A claim that another volume was bound to is as good, if the node can use this volume. If the node cannot, the
    outcome is a failure. If claim, volume or node is not mirrored, return None.
    """
    stored = view.custom(CLAIMS, wanted.namespace, wanted.claim)
    if stored is None:
        return None
    claim = object_from_json(stored.object, PersistentVolumeClaim)
    return _outcome(view, binding, claim) if is_fully_bound(claim) else None


def _outcome(view: ManagerView, binding: Binding, claim: PersistentVolumeClaim) -> Progress | Settled | None:
    """Return the outcome of a bound claim; None if its volume is not mirrored yet."""
    name, node = claim.spec.volume_name, view.node(binding.node_token)
    stored = view.custom(VOLUMES, "", name)
    if stored is None or node is None:
        return None
    volume = object_from_json(stored.object, PersistentVolume)
    if can_use(node, volume):
        return Progress.BOUND
    return failed(f'pv "{name}" node affinity doesn\'t match node "{binding.node}"')


def can_use(node: Node, volume: PersistentVolume) -> bool:
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    labels, name = node.metadata.labels, node.metadata.name
    return required is None or any(term_matches_one(term, labels, name) for term in required.node_selector_terms)


def claim_request(wanted: ClaimBinding) -> Request:
    return Request("read-claim", "GET", claim_path(wanted.namespace, wanted.claim), None)


def volume_request(wanted: ClaimBinding) -> Request:
    return Request("read-volume", "GET", volume_path(wanted.volume), None)


def step_of_claim(
    view: ManagerView, binding: Binding, wanted: ClaimBinding, status: int, body: bytes, *, is_written: bool
) -> Step | LookAtVolume:
    """Return the next step for a claim, after it was read.

    Args:
        wanted: The claim, and the volume or node that the scheduler chose for it.
        status: HTTP status of reading the claim; 0 stands for no answer.
        is_written: Whether this gateway wrote the choice before.

    Returns:
        `Progress` if nothing has to be written, `Request` for the write of the annotation `selected-node`,
        `LookAtVolume` if the chosen volume has to be read, `Settled` if the pod cannot be bound, or `Later` if the
        claim has to be read again.

    Raises:
        DecodeError: The body is not a claim.
    """
    if (unread := _unread(status, f'persistentvolumeclaim "{wanted.claim}" not found')) is not None:
        return unread
    claim = object_from_json(codec.decode(body, object), PersistentVolumeClaim)
    if is_fully_bound(claim):
        return _outcome(view, binding, claim) or Later()
    if wanted.volume:
        return LookAtVolume(claim)
    selected = claim.metadata.annotations.get(SELECTED_NODE, "")
    if selected == binding.node:
        return Progress.WAITS
    if selected or is_written:
        # A provisioner that cannot make the volume removes the annotation, so that the pod is scheduled again.
        return failed(f'provisioning failed for PVC "{wanted.claim}"')
    meta: Json = {
        "resourceVersion": claim.metadata.resource_version,
        "uid": claim.metadata.uid,
        "annotations": {SELECTED_NODE: binding.node},
    }
    path = claim_path(wanted.namespace, wanted.claim)
    return Request("select-node", "PATCH", path, {"metadata": meta}, MERGE_PATCH)


def step_of_volume(
    wanted: ClaimBinding, claim: PersistentVolumeClaim, status: int, body: bytes, *, is_written: bool
) -> Step:
    """Return the next step for a claim, after the volume that was chosen for it was read.

    Args:
        status: HTTP status of reading the volume; 0 stands for no answer.
        is_written: Whether this gateway reserved the volume for the claim before.

    Returns:
        `Progress.WAITS` if the volume names the claim with its uid, `Request` for the write of `spec.claimRef`,
        `Settled` if the pod cannot be bound, or `Later` if the volume has to be read again.

    Raises:
        DecodeError: The body is not a volume.
    """
    if (unread := _unread(status, f'pv "{wanted.volume}" does not exist')) is not None:
        return unread
    volume = object_from_json(codec.decode(body, object), PersistentVolume)
    reference, uid = volume.spec.claim_ref, claim.metadata.uid
    is_ours = reference is not None and (reference.namespace, reference.name) == (wanted.namespace, wanted.claim)
    if reference is not None and (not is_ours or reference.uid not in ("", uid)):
        return failed(f'pv "{wanted.volume}" is bound to claim {reference.namespace}/{reference.name}')
    if reference is not None and reference.uid:
        return Progress.WAITS
    if is_written:
        return failed(f'ClaimRef got reset for pv "{wanted.volume}"')
    meta: Json = {"resourceVersion": volume.metadata.resource_version, "uid": volume.metadata.uid}
    if reference is None:
        meta["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    claim_ref = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": wanted.namespace,
        "name": wanted.claim,
        "uid": uid,
    }
    body_of_patch: Json = {"metadata": meta, "spec": {"claimRef": claim_ref}}
    return Request("reserve-volume", "PATCH", volume_path(wanted.volume), body_of_patch, MERGE_PATCH)


def step_after_write(status: int, message: str) -> Progress | Later | Settled:
    """Return the next step for a claim after the scheduler's choice of volume or node was written.

    A missing RBAC permission (403) is not final: the write is repeated until the time for binding is over. Status 0
    stands for no answer.
    """
    match meaning_of(status):
        case Meaning.DONE:
            return Progress.WAITS
        case Meaning.REFUSED if status != 403:
            return failed(message)
        case _:
            return Later()


def is_overdue(binding: Binding, now: datetime) -> bool:
    """Return whether the time is over within which the claims of a pod must be bound."""
    return binding.claims_due is not None and now >= binding.claims_due


def seconds_until_due(binding: Binding, now: datetime) -> float:
    """Return the seconds until `is_overdue` becomes true, not below 0; infinity for a binding without claims."""
    due = binding.claims_due
    return math.inf if due is None else max(0.0, (due - now).total_seconds())


def failed(cause: str) -> Settled:
    """Return the outcome that the pod is not bound because of a claim, with the message of kube-scheduler."""
    return Settled(FAILED, f'running PreBind plugin "VolumeBinding": binding volumes: {cause}')


def claim_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/{CLAIMS}/{name}"


def volume_path(name: str) -> str:
    return f"/api/v1/{VOLUMES}/{name}"


def _unread(status: int, gone: str) -> Settled | Later | None:
    """The step after an object was not read; None if it was. `gone`: why the pod cannot be bound without it."""
    match meaning_of(status):
        case Meaning.DONE:
            return None
        case Meaning.GONE:
            return failed(gone)
        case _:
            return Later()
