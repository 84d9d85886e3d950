"""Services and controllers, by which kube-scheduler spreads pods that say nothing about it."""

from support.oracle.drawing.constraints import POD_LABELS, selector
from support.oracle.drawing.dice import NAMESPACES, Dice
from support.oracle.lines import Document

KINDS = {
    "replicaSets": ("apps/v1", "ReplicaSet"),
    "statefulSets": ("apps/v1", "StatefulSet"),
    "replicationControllers": ("v1", "ReplicationController"),
    "jobs": ("batch/v1", "Job"),
}
"""API version and kind of controllers by field of a case. kube-scheduler does not read Jobs."""


def owners(dice: Dice) -> dict[str, list[Document]]:
    """Objects by field of a case."""
    found: dict[str, list[Document]] = {"services": [], **{field: [] for field in KINDS}}
    if dice.has("services", 0.3):
        for number in range(dice.number(1, 3)):
            metadata = {"name": f"s{number}", "namespace": dice.one(NAMESPACES)}
            spec = {"selector": _labels(dice)}
            found["services"].append({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    if dice.has("controllers", 0.3):
        for field, (version, kind) in KINDS.items():
            for namespace in NAMESPACES:
                metadata = {"name": "w", "namespace": namespace, "uid": f"{kind}-{namespace}"}
                spec = {"selector": _labels(dice) if version == "v1" else selector(dice)}
                found[field].append({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
    return found


def owner_reference(dice: Dice) -> Document:
    """A controller that may exist, or one that kube-scheduler does not know."""
    version, kind = dice.one((*KINDS.values(), ("apps/v1", "DaemonSet")))
    name = dice.one(("w", "w", "other"))
    return {"apiVersion": version, "kind": kind, "name": name, "uid": kind, "controller": True}


def _labels(dice: Dice) -> dict[str, str]:
    return dice.labels({key: POD_LABELS[key] for key in ("app", "tier")}, 0.6)
