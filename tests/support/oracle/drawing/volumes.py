"""Claims and volumes: bound, waiting for their first consumer, made by a driver with limits, or missing."""

from support.oracle.drawing.dice import HOST, NAMESPACES, ZONE, Dice
from support.oracle.lines import Document

DRIVER = "csi.example.com"
CLASSES = ("local", "made", "now")
COMPLETED = {"pv.kubernetes.io/bind-completed": "yes"}
MODES = ("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany")


def volumes(dice: Dice, nodes: list[str]) -> dict[str, list[Document]]:
    """Objects by field of a case, all of them empty in most cases."""
    found: dict[str, list[Document]] = {field: [] for field in FIELDS}
    if not dice.has("volumes", 0.2):
        return found
    found["storageClasses"] = [_class(dice, name) for name in CLASSES]
    for number in range(dice.number(1, 8)):
        volume = _volume(dice, f"v{number}", nodes)
        if dice.chance(0.5):
            claim = _bound(dice, f"d{number}", volume)
            found["persistentVolumeClaims"].append(claim)
        found["persistentVolumes"].append(volume)
    for number in range(dice.number(0, 4)):
        found["persistentVolumeClaims"].append(_claim(dice, f"u{number}", dice.one(CLASSES)))
    for name in nodes:
        if dice.chance(0.6):
            driver = {
                "name": DRIVER,
                "nodeID": name,
                "topologyKeys": [ZONE],
                "allocatable": {"count": dice.number(1, 3)},
            }
            metadata = {"name": name}
            found["csiNodes"].append({"metadata": metadata, "spec": {"drivers": [driver] if dice.chance(0.8) else []}})
    found["csiDrivers"] = [{"metadata": {"name": DRIVER}, "spec": {"storageCapacity": dice.chance(0.5)}}]
    found["csiStorageCapacities"] = [_capacity(dice, f"k{number}") for number in range(dice.number(0, 3))]
    for volume in found["persistentVolumes"]:
        if dice.chance(0.3):
            found["volumeAttachments"].append(_attachment(dice, volume["metadata"]["name"], dice.one(nodes)))
    return found


FIELDS = (
    "storageClasses",
    "persistentVolumes",
    "persistentVolumeClaims",
    "csiNodes",
    "csiDrivers",
    "csiStorageCapacities",
    "volumeAttachments",
)


def use(dice: Dice, pod: Document, claims: list[Document]) -> None:
    """Let a pod use claims of its namespace, or one that is missing."""
    own = [each["metadata"]["name"] for each in claims if each["metadata"]["namespace"] == pod["metadata"]["namespace"]]
    names = dice.some(own, 2) if own and dice.chance(0.95) else ["missing"]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    pod["spec"]["volumes"] = [*volumes, {"name": "cache", "emptyDir": {}}]


def _class(dice: Dice, name: str) -> Document:
    provisioner = "kubernetes.io/no-provisioner" if name == "local" else DRIVER
    mode = "Immediate" if name == "now" else "WaitForFirstConsumer"
    found: Document = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
    if name == "made" and dice.chance(0.4):
        zones = dice.some(("a", "b", "c"), 2)
        found["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]
    return found


def _volume(dice: Dice, name: str, nodes: list[str]) -> Document:
    labels = {ZONE: dice.one(("a", "b", "a__b"))} if dice.chance(0.2) else {}
    spec: Document = {
        "capacity": {"storage": dice.one(("1Gi", "5Gi", "10Gi"))},
        "accessModes": dice.some(MODES, 2),
        "storageClassName": dice.one(CLASSES),
        "volumeMode": dice.one(("Filesystem", "Filesystem", "Block")),
        "persistentVolumeReclaimPolicy": "Retain",
    }
    key, values = dice.one(((HOST, nodes), (ZONE, ["a", "b", "c"])))
    if dice.chance(0.8):
        expression = {"key": key, "operator": "In", "values": dice.some(values, 3)}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    if dice.chance(0.6):
        spec["csi"] = {"driver": DRIVER, "volumeHandle": f"handle-{name}"}
    else:
        spec["local"] = {"path": "/data"}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": "Available"}}


def _claim(dice: Dice, name: str, storage_class: str) -> Document:
    spec: Document = {
        "accessModes": [dice.one(MODES)],
        "resources": {"requests": {"storage": dice.one(("1Gi", "5Gi", "20Gi"))}},
        "storageClassName": storage_class,
        "volumeMode": dice.one(("Filesystem", "Filesystem", "Block")),
    }
    metadata = {"name": name, "namespace": dice.one(NAMESPACES), "uid": name}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _bound(dice: Dice, name: str, volume: Document) -> Document:
    """A claim that has this volume, which is changed."""
    claim = _claim(dice, name, volume["spec"]["storageClassName"])
    claim["metadata"]["annotations"] = COMPLETED
    claim["spec"]["volumeName"] = volume["metadata"]["name"]
    claim["spec"]["accessModes"] = ["ReadWriteOncePod"] if dice.chance(0.2) else volume["spec"]["accessModes"][:1]
    claim["status"] = {"phase": "Bound"}
    reference = {
        "kind": "PersistentVolumeClaim",
        "namespace": claim["metadata"]["namespace"],
        "name": name,
        "uid": name,
    }
    volume["spec"]["claimRef"] = reference
    volume["status"] = {"phase": "Bound"}
    return claim


def _capacity(dice: Dice, name: str) -> Document:
    """Free storage of a class in some zones."""
    found: Document = {"metadata": {"name": name, "namespace": "default"}, "storageClassName": dice.one(CLASSES)}
    if dice.chance(0.9):
        found["nodeTopology"] = {"matchLabels": {ZONE: dice.one(("a", "b"))} if dice.chance(0.8) else {}}
    found["capacity"] = dice.one(("2Gi", "10Gi", "100Gi"))
    if dice.chance(0.3):
        found["maximumVolumeSize"] = dice.one(("1Gi", "10Gi"))
    return found


def _attachment(dice: Dice, volume: str, node: str) -> Document:
    spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return {"metadata": {"name": f"of-{volume}"}, "spec": spec, "status": {"attached": dice.chance(0.7)}}
