"""Pods: all parts of a spec that a default plugin reads."""

from support.oracle.drawing.constraints import POD_LABELS, affinity, node_selector, spread, toleration
from support.oracle.drawing.dice import NAMESPACES, Dice
from support.oracle.drawing.resizes import resize
from support.oracle.drawing.resources import container_resources, pod_level_resources, ports
from support.oracle.lines import Document


def pod(dice: Dice, name: str) -> Document:
    """A pod as a user would send it."""
    host_network = dice.has("hostNetwork", 0.1)
    names = [f"c{number}" for number in range(dice.one((1, 1, 2)))]
    spec: Document = {"containers": [_container(dice, each, host_network=host_network) for each in names]}
    if host_network:
        spec["hostNetwork"] = True
    if dice.has("init containers", 0.25):
        inits = [f"i{number}" for number in range(dice.number(1, 3))]
        spec["initContainers"] = [_init(dice, each, host_network=host_network) for each in inits]
    if dice.has("overhead", 0.15):
        spec["overhead"] = {"cpu": dice.one(("50m", "250m")), "memory": "64Mi"}
    if dice.has("pod level", 0.15):
        spec["resources"] = pod_level_resources(dice)
    if dice.has("nodeSelector", 0.1):
        spec["nodeSelector"] = node_selector(dice)
    if found := affinity(dice):
        spec["affinity"] = found
    if dice.has("tolerations", 0.3):
        spec["tolerations"] = [toleration(dice) for _ in range(dice.number(1, 3))]
    if dice.has("spread", 0.25):
        spec["topologySpreadConstraints"] = spread(dice)
    if dice.has("gates", 0.05):
        spec["schedulingGates"] = [{"name": "example.com/gate"}]
    metadata: Document = {"name": name, "uid": name, "namespace": dice.one(("default", "default", *NAMESPACES))}
    metadata["labels"] = dice.labels(POD_LABELS, 0.8)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def running_pod(dice: Dice, name: str, node: str) -> Document:
    """A pod that was placed before: it runs, starts, leaves, or has ended."""
    found = pod(dice, name)
    found["spec"]["nodeName"] = node
    found["spec"].pop("schedulingGates", None)
    found["status"] = {"phase": dice.one(("Running", "Running", "Running", "Pending", "Succeeded", "Failed"))}
    if dice.has("resize", 0.3):
        resize(dice, found)
    if dice.has("leaving", 0.1):
        found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        found["metadata"]["deletionGracePeriodSeconds"] = 30
    return found


def _container(dice: Dice, name: str, *, host_network: bool) -> Document:
    image = dice.one(("i0", "i1", "i2:latest", "other"))
    resources, own = container_resources(dice), ports(dice, host_network=host_network)
    return {"name": name, "image": image, "resources": resources, "ports": own}


def _init(dice: Dice, name: str, *, host_network: bool) -> Document:
    sidecar = {"restartPolicy": "Always"} if dice.chance(0.5) else {}
    return {**_container(dice, name, host_network=host_network), **sidecar}
