"""Statuses beside those of kubectl: the cases are of TestPrintPod and TestPrintNode of Kubernetes 1.35."""

from typing import Any

import pytest
from koordcore.protocol.drains import DRAIN_NODE
from koordctl.objects.statuses import node_status, pod_status

CONTAINERS, INIT = "containerStatuses", "initContainerStatuses"
READY = {"type": "Ready", "status": "True"}


def running(ready: bool = True, restarts: int = 0) -> dict[str, Any]:
    return {"ready": ready, "restartCount": restarts, "state": {"running": {}}}


def waiting(reason: str) -> dict[str, Any]:
    return {"restartCount": 3, "state": {"waiting": {"reason": reason}}}


def ended(code: int = 0, reason: str = "", signal: int = 0) -> dict[str, Any]:
    return {"state": {"terminated": {"exitCode": code, "reason": reason, "signal": signal}}}


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"phase": "Running", CONTAINERS: [running(), {"restartCount": 3}]}, "Running"),
        ({"phase": "Running", CONTAINERS: [running(), waiting("ContainerWaitingReason")]}, "ContainerWaitingReason"),
        ({"phase": "podPhase", CONTAINERS: [waiting("First"), waiting("Second")]}, "First"),
        ({"phase": "Running", "reason": "podReason", CONTAINERS: [running(), waiting("Waits")]}, "Waits"),
        ({"phase": "Running", CONTAINERS: [running(), ended(reason="TerminatedReason")]}, "TerminatedReason"),
        ({"phase": "Running", CONTAINERS: [running(), ended(1)]}, "ExitCode:1"),
        ({"phase": "Running", CONTAINERS: [running(), ended(137, signal=9)]}, "Signal:9"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({"phase": "Succeeded", CONTAINERS: [ended(reason="Completed")]}, "Completed"),
        ({"phase": "Failed", CONTAINERS: [ended(1, reason="Error")]}, "Error"),
        ({"phase": "Running", CONTAINERS: [ended(0, "Completed"), running()], "conditions": [READY]}, "Running"),
        ({"phase": "Running", CONTAINERS: [ended(0, "Completed"), running()]}, "NotReady"),
        ({"phase": "Running", CONTAINERS: [ended(0, "Completed"), ended(1, "Error")]}, "Error"),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}, "SchedulingGated"),
        ({"phase": "Pending", INIT: [ended(1, "Oops")]}, "Init:Oops"),
        ({"phase": "Pending", INIT: [ended(1)]}, "Init:ExitCode:1"),
        ({"phase": "Pending", INIT: [ended(1, signal=9)]}, "Init:Signal:9"),
        ({"phase": "Pending", INIT: [waiting("CrashLoopBackOff")]}, "Init:CrashLoopBackOff"),
        ({"phase": "Pending", INIT: [ended(), waiting("PodInitializing")]}, "Init:1/2"),
        ({"phase": "Running", INIT: [ended(), ended()], CONTAINERS: [running()]}, "Running"),
    ],
    ids=str,
)  # fmt: skip
def test_a_pod_has_the_status_of_kubectl(status: dict[str, Any], shown: str) -> None:
    spec: dict[str, Any] = {"nodeName": "n", "containers": [{}, {}], "initContainers": [{"name": "a"}, {"name": "b"}]}
    assert pod_status({"metadata": {"name": "p"}, "spec": spec, "status": status}) == shown


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"phase": "Running"}, "Terminating"),
        ({"phase": "Pending"}, "Terminating"),
        ({"phase": "Running", "reason": "NodeLost"}, "Unknown"),
        ({"phase": "Succeeded", CONTAINERS: [ended(reason="Completed")]}, "Completed"),
        ({"phase": "Failed", CONTAINERS: [ended(1, reason="Error")]}, "Error"),
    ],
    ids=str,
)
def test_a_pod_that_is_deleted_terminates_until_it_has_ended(status: dict[str, Any], shown: str) -> None:
    meta = {"name": "p", "deletionTimestamp": "2026-11-29T08:00:00Z"}
    assert pod_status({"metadata": meta, "spec": {"nodeName": "n"}, "status": status}) == shown


def test_pods_without_statuses_of_containers_have_ours() -> None:
    def status(phase: str, **spec: Any) -> str:
        return pod_status({"metadata": {}, "spec": spec, "status": {"phase": phase} if phase else {}})

    assert status("") == status("Pending") == "Pending"
    assert status("Pending", nodeName="n") == "Placed"
    assert status("Running", nodeName="n") == "Running"
    assert status("Succeeded", nodeName="n") == "Completed"
    assert status("Failed") == "Error"
    assert status("", schedulingGates=[{"name": "g"}]) == "SchedulingGated"


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        ({"status": {"conditions": [READY]}}, "Ready"),
        ({"status": {"conditions": [READY]}, "spec": {"unschedulable": True}}, "Ready,SchedulingDisabled"),
        ({"status": {"conditions": [READY, {**READY}]}}, "Ready"),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "NotReady"),
        (
            {"status": {"conditions": [{"type": "Ready", "status": "False"}]}, "spec": {"unschedulable": True}},
            "NotReady,SchedulingDisabled",
        ),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "NotReady"),
        ({"spec": {"taints": [{"key": "node.kubernetes.io/not-ready"}]}}, "NotReady"),
        ({"spec": {"taints": [{"key": DRAIN_NODE}]}}, "Ready,ClosedByDrain"),
        ({}, "Ready"),
    ],
    ids=str,
)
def test_a_node_has_the_status_of_kubectl(node: dict[str, Any], shown: str) -> None:
    assert node_status(node, is_silent=False) == shown
    assert node_status(node, is_silent=True) == f"{shown},NoReport"
