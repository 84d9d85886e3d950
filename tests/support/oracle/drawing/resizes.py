"""Pods whose containers are being resized: what the kubelet has admitted, what is in force, and what it says of it."""

from typing import Any

from support.oracle.drawing.dice import Dice
from support.oracle.drawing.resources import CPUS, MEMORIES
from support.oracle.lines import Document

STATES = (
    None,
    ("PodResizePending", "Infeasible"),
    ("PodResizePending", "Deferred"),
    ("PodResizeInProgress", ""),
    ("PodResizeInProgress", "Error"),
)


def resize(dice: Dice, pod: Document) -> None:
    """Give a running pod the status of a resize in any state, also one that few kubelets would write."""
    status, spec = pod["status"], pod["spec"]
    for field, containers in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")):
        found = [_status(dice, each) for each in spec.get(containers, ()) if dice.chance(0.8)]
        if found:
            status[field] = found
    state = dice.one(STATES)
    if state is not None:
        kind, reason = state
        status["conditions"] = [{"type": kind, "status": "True", "reason": reason}]


def _status(dice: Dice, container: Document) -> Document:
    found: Document = {"name": container["name"], "image": container["image"]}
    if dice.chance(0.8):
        found["resources"] = {"requests": _amounts(dice, container), "limits": {}}
    if dice.chance(0.8):
        found["allocatedResources"] = _amounts(dice, container)
    return found


def _amounts(dice: Dice, container: Document) -> dict[str, Any]:
    """Requests of the container, some of them changed."""
    found = dict(container["resources"]["requests"])
    for resource, amounts in (("cpu", CPUS), ("memory", MEMORIES)):
        if dice.chance(0.4):
            found[resource] = dice.one(amounts)
    return found
