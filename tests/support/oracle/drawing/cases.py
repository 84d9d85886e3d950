"""Random cases in the words of the API, drawn so that a good part fits barely.

Few labels, few amounts and few ports: what is drawn meets what was drawn before. Each case has themes (`Dice.has`).
"""

from copy import deepcopy

from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.pod_resources import pod_requests
from koordcore.values.quantity import parse_quantity
from support.oracle.drawing.constraints import NODE_LABELS, TEAMS, taint
from support.oracle.drawing.dice import HOST, NAMESPACES, ZONE, Dice
from support.oracle.drawing.faults import FAULTS, put
from support.oracle.drawing.owners import owner_reference, owners
from support.oracle.drawing.pods import pod, running_pod
from support.oracle.drawing.resources import WIDGET
from support.oracle.drawing.volumes import use, volumes
from support.oracle.lines import Document

TRIED = 10
DOUBTS = [name for name in FAULTS if name != "scheduler name invalid"]
"""Without the pods of other schedulers, which ours does not judge."""


def case(seed: int) -> Document:
    """Up to 12 nodes, or rarely 60, 3 running pods a node, and some pods to try."""
    dice = Dice(seed)
    nodes = [node(dice, f"n{number}") for number in range(dice.number(1, 60 if dice.chance(0.05) else 12))]
    names: list[str] = [node["metadata"]["name"] for node in nodes]
    count = dice.number(0, 3 * len(names))
    running = [running_pod(dice, f"r{number}", dice.one(names)) for number in range(count)]
    tried = [pod(dice, f"p{number}") for number in range(TRIED)]
    free = [_free_milli(each, running) for each in nodes]
    for each in tried:
        if dice.has("barely", 0.4):
            _fit_barely(dice, each, dice.one(free))
        if dice.has("doubtful", 0.1):
            put(each, deepcopy(FAULTS[dice.one(DOUBTS)]))
    more = {**owners(dice), **volumes(dice, names)}
    for each in (*running, *tried):
        if dice.has("owned", 0.3):
            each["metadata"]["ownerReferences"] = [owner_reference(dice)]
        if more["persistentVolumeClaims"] and dice.chance(0.4):
            use(dice, each, more["persistentVolumeClaims"])
    namespaces = [namespace(dice, name) for name in NAMESPACES]
    return {"namespaces": namespaces, "nodes": nodes, "running": running, "try": tried, **more}


def namespace(dice: Dice, name: str) -> Document:
    labels = {"kubernetes.io/metadata.name": name, **dice.labels({"team": TEAMS})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def node(dice: Dice, name: str) -> Document:
    labels = {HOST: name, **dice.labels({ZONE: ("a", "b", "c")}, 0.85), **dice.labels(NODE_LABELS)}
    amounts = {
        "cpu": dice.one(("2", "4", "8", "7500m")),
        "memory": dice.one(("4Gi", "8Gi", "16Gi", "10G")),
        "pods": dice.one(("3", "6", "110", "110", "110")),
    }
    if dice.has("odd amounts", 0.4):
        amounts |= {"cpu": f"{dice.number(1000, 128_000)}m", "memory": str(dice.number(10**9, 10**12))}
    if dice.has("extended", 0.5):
        amounts[WIDGET] = dice.one(("1", "2", "4"))
    if dice.has("ephemeral", 0.5):
        amounts["ephemeral-storage"] = dice.one(("1Gi", "4Gi", "20Gi"))
    if dice.has("hugepages", 0.5):
        amounts["hugepages-2Mi"] = dice.one(("8Mi", "64Mi"))
    megabytes = (10, 200, 900)
    images = [
        {"names": [f"i{number}", f"i{number}:latest"], "sizeBytes": size * 1024 * 1024}
        for number, size in enumerate(megabytes)
        if dice.chance(0.3)
    ]
    spec: Document = {}
    if dice.has("taints", 0.25):
        spec["taints"] = [taint(dice) for _ in range(dice.one((1, 1, 2)))]
    if dice.has("unschedulable", 0.05):
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts, "images": images},
    }


def _free_milli(node: Document, running: list[Document]) -> int:
    """Milli-cores that are about free on a node. Defaults are not set yet."""
    name = node["metadata"]["name"]
    here = [each for each in running if each["spec"]["nodeName"] == name and each["status"]["phase"] != "Succeeded"]
    taken = sum(pod_requests(pod_from_json(each)).get("cpu", 0) for each in here)
    return parse_quantity(node["status"]["allocatable"]["cpu"]).nano // 1_000_000 - taken


def _fit_barely(dice: Dice, asked: Document, free: int) -> None:
    """Let a pod request what is free on a node, or a little more or less."""
    resources = asked["spec"]["containers"][0]["resources"]
    resources["requests"].pop("cpu", None)
    resources["limits"].pop("cpu", None)
    wanted = free - pod_requests(pod_from_json(asked)).get("cpu", 0) + dice.one((-1, 0, 0, 1))
    if wanted > 0 and "resources" not in asked["spec"]:
        resources["requests"]["cpu"] = f"{wanted}m"
