"""The statuses of pods and nodes in the words of kubectl. This module is pure.

`Placed` is our own: the pod has a node and has not started. So are `ClosedByDrain` and `NoReport` of a node.

Source:
    kubernetes 1.35, pkg/printers/internalversion/printers.go: printPod, printNode
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from koordcore.protocol.drains import DRAIN_NODE
from koordcore.protocol.objects import POD_SCHEDULED, SCHEDULING_GATED

from koordctl.render.output import field

Item: TypeAlias = Mapping[str, Any]

ENDED: Final = {"Succeeded": "Completed", "Failed": "Error"}
"""Phase of a pod that has ended -> its status if no container tells more."""
_NOT_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints of a node whose condition is not mirrored."""


def pod_status(pod: Item) -> str:
    status = field(pod, "status", {})
    phase = status.get("phase") or "Pending"
    reason = status.get("reason") or ENDED.get(phase, phase)
    if _is_gated(pod):
        reason = SCHEDULING_GATED
    starting = _init_reason(pod)
    reason = starting or reason
    if not starting or _has_condition(pod, "Initialized"):
        reason = _container_reason(pod, reason)
    if field(pod, "metadata.deletionTimestamp") and phase not in ENDED:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return "Placed" if reason == "Pending" and field(pod, "spec.nodeName") else reason


def _is_gated(pod: Item) -> bool:
    told = any(
        each.get("type") == POD_SCHEDULED and each.get("reason") == SCHEDULING_GATED
        for each in field(pod, "status.conditions", [])
    )
    return told or bool(field(pod, "spec.schedulingGates") and not field(pod, "spec.nodeName"))


def _has_condition(pod: Item, kind: str) -> bool:
    conditions = field(pod, "status.conditions", [])
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)


def _init_reason(pod: Item) -> str:
    """Why the pod is still starting: its first init container that is not done. "" if all are."""
    declared: Sequence[Item] = field(pod, "spec.initContainers", [])
    sidecars = {each.get("name") for each in declared if each.get("restartPolicy") == "Always"}
    for number, container in enumerate(field(pod, "status.initContainerStatuses", [])):
        ended, waits_for = _terminated(container), field(container, "state.waiting.reason", "")
        if ended is not None and not ended.get("exitCode"):
            continue
        if container.get("name") in sidecars and container.get("started"):
            continue
        if ended is not None:
            return f"Init:{_ending(ended)}"
        if waits_for and waits_for != "PodInitializing":
            return f"Init:{waits_for}"
        return f"Init:{number}/{len(declared)}"
    return ""


def _container_reason(pod: Item, reason: str) -> str:
    runs, failure = False, ""
    for container in reversed(field(pod, "status.containerStatuses", [])):
        ended = _terminated(container)
        if waits_for := field(container, "state.waiting.reason", ""):
            reason = waits_for
        elif ended is not None:
            reason = _ending(ended)
            failure = reason if ended.get("exitCode") else failure
        elif container.get("ready", True):  # of a container that runs, the mirror keeps neither this nor its state
            runs = True
    if reason != "Completed":
        return reason
    if runs and _has_condition(pod, "Ready"):
        return "Running"
    return failure or ("NotReady" if runs else reason)


def _terminated(container: Item) -> Item | None:
    return field(container, "state.terminated")


def _ending(terminated: Item) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def node_status(node: Item, *, is_silent: bool) -> str:
    """A node without the condition Ready, which only a kubelet reports, is Ready unless a taint says otherwise.

    `is_silent`: whether its newest usage report is too old.
    """
    ready = [each for each in field(node, "status.conditions", []) if each.get("type") == "Ready"]
    taints = {taint.get("key") for taint in field(node, "spec.taints", [])}
    is_ready = ready[-1].get("status") == "True" if ready else taints.isdisjoint(_NOT_READY)
    found = ["Ready" if is_ready else "NotReady"]
    if field(node, "spec.unschedulable"):
        found.append("SchedulingDisabled")
    if DRAIN_NODE in taints:
        found.append("ClosedByDrain")
    if is_silent:
        found.append("NoReport")
    return ",".join(found)
