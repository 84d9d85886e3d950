"""Storage objects of an API server, and a stand-in for the controllers that bind claims and make volumes."""

from typing import Any

from koordcore.protocol.storage import BIND_COMPLETED, NO_PROVISIONER

Json = dict[str, Any]

HOST = "kubernetes.io/hostname"


def storage_class(name: str = "local", provisioner: str = NO_PROVISIONER) -> Json:
    """A class that waits for the first consumer."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def claim(name: str, of: str = "local", size: str = "1Gi") -> Json:
    """A claim that nobody has bound."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "default", "name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": of,
            "resources": {"requests": {"storage": size}},
        },
        "status": {"phase": "Pending"},
    }


def local_volume(name: str, host: str, of: str = "local", size: str = "1Gi") -> Json:
    """A local volume of a node."""
    wanted = {"key": HOST, "operator": "In", "values": [host]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "storageClassName": of,
            "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}},
        },
        "status": {"phase": "Available"},
    }


def bound(found: Json, volume: str) -> Json:
    """The claim as the persistent volume controller leaves it."""
    meta = {**found["metadata"], "annotations": {**found["metadata"].get("annotations", {}), BIND_COMPLETED: "yes"}}
    return {**found, "metadata": meta, "spec": {**found["spec"], "volumeName": volume}}


def user_of(*claims: str) -> Json:
    """The spec of a pod that uses these claims."""
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]}
