"""Bind claims and make volumes in a cluster without an API server, as its controllers and a provisioner do.

    a claim of a placed pod       gets the volume that the scheduler chose, or one that is made for the pod's node
    a claim with `volumeName`     gets this volume
    a deleted claim               its volume is deleted if this controller made it, otherwise it is Released

Other claims stay unbound until a pod uses them, whatever the binding mode of their class: a simulated volume need not
be made early.

Source:
    https://kubernetes.io/docs/concepts/storage/persistent-volumes/#binding
"""

import copy
from typing import Any, Final

from koordcore.events.envelope import Draft, namespaced_from_token
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.protocol import storage
from koordcore.protocol.objects import object_from_json
from koordcore.state.aggregates import PodState
from koordcore.values.allocation import ClaimBinding

from koord_manager.domain.cluster.view import ManagerView

Json = dict[str, Any]

CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
"""Annotation of a volume that was made for a claim."""


def volume_drafts(view: ManagerView, key: str, now: str) -> list[Draft]:
    """Return the facts that bind claims, or that free the volumes of a deleted claim. Empty if nothing is to be done.

    Args:
        key: Uid of a placed pod, or `<namespace>=<name>` of a claim that has changed.
        now: Creation time of a volume that is made, RFC 3339.
    """
    if "=" in key:
        namespace, name = namespaced_from_token(key)
        claim = _object(view, CLAIMS, namespace, name)
        if claim is None:
            return _freed(view, namespace, name)
        volume: str = claim.get("spec", {}).get("volumeName", "")
        return _bound(view, ClaimBinding(namespace=namespace, claim=name, volume=volume), "", now) if volume else []
    placed = view.state.of_kind(PodState).get(key)
    if placed is None or not placed.node:
        return []
    drafts: list[Draft] = []
    for wanted in placed.allocation.volume_claims:
        drafts += _bound(view, wanted, placed.node, now)
    return drafts


def _bound(view: ManagerView, wanted: ClaimBinding, node: str, now: str) -> list[Draft]:
    """Return the facts of a claim and its volume that are bound to each other.

    Empty if the claim is bound already, or if the volume does not exist or belongs to another claim.
    """
    found = _object(view, CLAIMS, wanted.namespace, wanted.claim)
    if found is None:
        return []
    claim = object_from_json(found, storage.PersistentVolumeClaim)
    name = wanted.volume or f"pvc-{claim.metadata.uid}"
    volume = _object(view, VOLUMES, "", name)
    if volume is None and not wanted.volume:
        volume = _made(view, claim, name, node, now)
    if storage.is_fully_bound(claim) or volume is None:
        return []
    reference: Json = volume["spec"].get("claimRef") or {}
    own = {"namespace": wanted.namespace, "name": wanted.claim, "uid": claim.metadata.uid}
    if reference and {**own, **reference} != {**reference, **own}:
        return []
    volume = {**volume, "spec": {**volume["spec"], "claimRef": own}, "status": {"phase": "Bound"}}
    bound = copy.deepcopy(found)
    bound["metadata"].setdefault("annotations", {})[storage.BIND_COMPLETED] = "yes"
    bound["spec"]["volumeName"] = name
    bound["status"] = {"phase": "Bound"}
    return [_draft(view, VOLUMES, "", name, volume), _draft(view, CLAIMS, wanted.namespace, wanted.claim, bound)]


def _made(view: ManagerView, claim: storage.PersistentVolumeClaim, name: str, node: str, now: str) -> Json:
    """Return a new volume for a claim. Only pods on the node `node` can use the volume."""
    class_name = storage.storage_class_of(claim)
    found = _object(view, "storageclasses", "", class_name)
    provisioner = object_from_json(found, storage.StorageClass).provisioner if found is not None else ""
    of_node = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "uid": name,
            "creationTimestamp": now,
            "annotations": {PROVISIONED_BY: provisioner},
        },
        "spec": {
            "capacity": {storage.STORAGE: claim.spec.resources.requests.get(storage.STORAGE, "0")},
            "accessModes": claim.spec.access_modes,
            "storageClassName": class_name,
            "csi": {"driver": provisioner},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [of_node]}]}},
        },
    }


def _freed(view: ManagerView, namespace: str, name: str) -> list[Draft]:
    """Return the facts that delete or release the volumes of a claim that does not exist any more."""
    drafts: list[Draft] = []
    for id_, stored in view.customs(VOLUMES):
        volume: Json = stored.object
        reference: Json = volume.get("spec", {}).get("claimRef") or {}
        is_released = volume.get("status", {}).get("phase") != "Bound"
        if (reference.get("namespace"), reference.get("name")) != (namespace, name) or is_released:
            continue
        if PROVISIONED_BY in (volume["metadata"].get("annotations") or {}):
            deleted = CustomObjectDeleted(kind="PersistentVolume", namespace="", name=id_)
            drafts.append(Draft(custom_ref(VOLUMES, "", id_), deleted, stored.seq))
        else:
            drafts.append(_draft(view, VOLUMES, "", id_, {**volume, "status": {"phase": "Released"}}))
    return drafts


def _object(view: ManagerView, plural: str, namespace: str, name: str) -> Json | None:
    stored = view.custom(plural, namespace, name)
    return stored.object if stored is not None else None


def _draft(view: ManagerView, plural: str, namespace: str, name: str, document: Json) -> Draft:
    ref = custom_ref(plural, namespace, name)
    return Draft(ref, CustomObjectObserved(object=document), view.state.last_seq(ref))
