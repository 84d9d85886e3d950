"""Builders for tests with volumes: storage objects that show only what matters, as an API server states them."""

from typing import Any

from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.protocol.objects import Pod
from koordcore.protocol.storage import BIND_COMPLETED, NO_PROVISIONER, SELECTED_NODE
from support.scheduler.scheduling import Scheduler, pod

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def say(scheduler: Scheduler, plural: str, document: dict[str, Any]) -> None:
    """The API server has this object now."""
    meta = document["metadata"]
    ref = custom_ref(plural, meta.get("namespace", ""), meta["name"])
    scheduler.log.say(ref.kind, ref.id, CustomObjectObserved(object=document))


def forget(scheduler: Scheduler, plural: str, name: str, namespace: str = "") -> None:
    """The object is gone."""
    ref = custom_ref(plural, namespace, name)
    scheduler.log.say(ref.kind, ref.id, CustomObjectDeleted(kind=plural, namespace=namespace, name=name))


def storage_class(
    scheduler: Scheduler, name: str = "local", provisioner: str = NO_PROVISIONER, *, waits: bool = True, **more: Any
) -> None:
    """A storage class that waits for the first consumer."""
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    document = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, **more}
    say(scheduler, "storageclasses", document)


def volume(
    scheduler: Scheduler,
    name: str,
    *,
    host: str = "",
    zone: str = "",
    size: str = "10Gi",
    of: str = "local",
    claim: str = "",
    claim_uid: str = "",
    phase: str = "Available",
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> None:
    """A volume for one node or zone. `claim` is the one that it is bound to or reserved for."""
    wanted = [(HOST, host)] if host else [(ZONE, zone)] if zone else []
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} for key, value in wanted]
    document: dict[str, Any] = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": of,
            **({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if terms else {}),
            **({"claimRef": {"namespace": "default", "name": claim, "uid": claim_uid}} if claim else {}),
            **spec,
        },
        "status": {"phase": phase},
    }
    say(scheduler, "persistentvolumes", document)


def claim(
    scheduler: Scheduler,
    name: str = "data",
    *,
    size: str = "1Gi",
    of: str = "local",
    bound_to: str = "",
    selected_node: str = "",
    owner: str = "",
    phase: str = "Pending",
    deleted: bool = False,
    **spec: Any,
) -> None:
    """A claim; `bound_to` is its volume."""
    annotations = {
        **({BIND_COMPLETED: "yes"} if bound_to else {}),
        **({SELECTED_NODE: selected_node} if selected_node else {}),
    }
    meta: dict[str, Any] = {
        "namespace": "default",
        "name": name,
        "uid": f"uid-of-{name}",
        "annotations": annotations,
        **({"ownerReferences": [{"kind": "Pod", "name": owner, "uid": owner}]} if owner else {}),
        **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}),
    }
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "storageClassName": of}
    bound = {"volumeName": bound_to} if bound_to else {}
    status = {"phase": "Bound" if bound_to else phase}
    say(scheduler, "persistentvolumeclaims", {"metadata": meta, "spec": {**wanted, **bound, **spec}, "status": status})


def user_of(*claims: str, uid: str = "p", cpu: str = "1", **spec: Any) -> Pod:
    """A pod that uses these claims."""
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    return pod(uid, {"cpu": cpu}, volumes=volumes, **spec)


def chosen(scheduler: Scheduler, uid: str = "p") -> dict[str, str]:
    """Claim -> volume of the pod's placement; "" for a volume that is made."""
    node = scheduler.state.pods[uid].node
    allocation = scheduler.state.assumed.ledgers.holders(node)[uid].allocation
    return {each.claim: each.volume for each in allocation.volume_claims}
