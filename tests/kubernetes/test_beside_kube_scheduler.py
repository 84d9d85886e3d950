"""kube-scheduler and ours on the same nodes: each places its own pods, and counts those of the other."""

from collections import Counter
from typing import Any

import pytest
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import Installation
from support.kubernetes.kube_scheduler import PROGRAM, kube_scheduler
from support.kubernetes.kubelets import add_nodes, node_document

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(not PROGRAM.exists(), reason="kube-scheduler not built: `make test-kubernetes` needs Go"),
]

Json = dict[str, Any]
NODES = ("shared-0", "shared-1")
THEIRS, OURS = "default-scheduler", "koord-scheduler"


def pod(name: str, scheduler: str) -> Json:
    """A pod of one core."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
    placement = {"nodeSelector": {"test/shared": "yes"}, "tolerations": [{"key": "test/shared", "operator": "Exists"}]}
    spec = {"schedulerName": scheduler, **placement, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def shared_node(name: str) -> Json:
    """A node with four cores, and half a core for the pods of DaemonSets. Other installed pods stay away."""
    node = node_document(name, labels={"test/shared": "yes"})
    node["spec"] = {"taints": [{"key": "test/shared", "effect": "NoSchedule"}]}
    for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
        amounts["cpu"] = "4500m"
    return node


def reporters(plane: ControlPlane) -> dict[str, str]:
    """Return pod -> scheduler that reported its binding."""
    items = plane.get("events", "-n", "default", "--field-selector", "reason=Scheduled")["items"]
    return {
        item["involvedObject"]["name"]: item.get("reportingComponent") or item["source"]["component"] for item in items
    }


def condition(plane: ControlPlane, name: str) -> str:
    """Return the message of the condition PodScheduled."""
    conditions = plane.get("pod", name, "-n", "default")["status"].get("conditions", [])
    return next((item.get("message", "") for item in conditions if item["type"] == "PodScheduled"), "")


async def test_each_scheduler_counts_the_pods_of_the_other(plane: ControlPlane, installed: Installation) -> None:
    """Each node has room for four pods; pods of both fill it, and neither gives a core away twice.

    Only one of the schedulers has a pod to place at any moment: two at once may give away the same room.
    """
    add_nodes(plane, *(shared_node(name) for name in NODES))
    await installed.start_both()
    async with kube_scheduler(plane):
        for number in range(4):  # in turns, so that both fill both nodes
            ours, theirs = f"ours-{number}", f"theirs-{number}"
            plane.apply(pod(theirs, THEIRS))
            await installed.until(lambda name=theirs: name in installed.bound_pods(), f"{theirs} is bound")
            plane.apply(pod(ours, OURS))
            await installed.until(lambda name=ours: name in installed.bound_pods(), f"{ours} is bound")
        for waiting, scheduler, leaving in (("ours-waits", OURS, "theirs-0"), ("theirs-waits", THEIRS, "ours-0")):
            plane.apply(pod(waiting, scheduler))
            await installed.until(
                lambda name=waiting: "Insufficient cpu" in condition(plane, name), f"{waiting} sees full nodes"
            )
            plane.kubectl("delete", "pod", leaving, "-n", "default", "--grace-period=1")
            await installed.until(lambda name=waiting: name in installed.bound_pods(), f"{waiting} gets what was freed")

    assert Counter(installed.bound_pods().values()) == dict.fromkeys(NODES, 4)
    by = reporters(plane)
    assert {by[name] for name in by if name.startswith("theirs-")} == {THEIRS}
    assert {by[name] for name in by if name.startswith("ours-")} == {OURS}
    plane.kubectl("delete", "node", *NODES)


async def test_ours_takes_over_from_a_scheduler_of_its_name_and_gives_back(
    plane: ControlPlane, installed: Installation
) -> None:
    """Step 3 of moving over. kube-scheduler stands in for Koordinator's scheduler, which is built from it.

    A node has room for four pods. Each scheduler counts those that the other one bound.
    """
    add_nodes(plane, shared_node(NODES[0]))
    await installed.start_manager("manager")

    async def placed(name: str) -> None:
        plane.apply(pod(name, OURS))
        await installed.until(lambda: name in installed.bound_pods(), f"{name} is bound")

    async with kube_scheduler(plane, OURS):
        await placed("before-0")
        await placed("before-1")
    await installed.start_scheduler()
    await placed("moved")
    await installed.processes.pop("scheduler").kill()
    async with kube_scheduler(plane, OURS):
        await placed("back")
        plane.apply(pod("too-many", OURS))
        await installed.until(lambda: "Insufficient cpu" in condition(plane, "too-many"), "the node is full")

    assert installed.bound_pods() == dict.fromkeys(("before-0", "before-1", "moved", "back"), NODES[0])
    plane.kubectl("delete", "node", NODES[0])
