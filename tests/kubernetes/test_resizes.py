"""Pods that a real API server resizes where they run. The test tells what a kubelet tells of each step."""

import json
from typing import Any

import pytest
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import Installation
from support.kubernetes.kubelets import add_nodes, node_document

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, Any]
NODE = "resizing"


def pod(name: str, cpu: str) -> Json:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    spec = {
        "schedulerName": "koord-scheduler",
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def resize(plane: ControlPlane, name: str, cpu: str) -> None:
    """Ask for another request, as VerticalPodAutoscaler does."""
    wanted = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
    plane.kubectl("patch", "pod", name, "-n", "default", "--subresource=resize", "-p", json.dumps(wanted))


def tell(plane: ControlPlane, name: str, *, actual: str, allocated: str) -> None:
    """Write the status of a container as a kubelet does."""
    status: Json = {
        "name": "main",
        "image": "pause",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {}},
        "allocatedResources": {"cpu": allocated},
        "resources": {"requests": {"cpu": actual}},
    }
    patch = json.dumps({"status": {"containerStatuses": [status]}})
    plane.kubectl("patch", "pod", name, "-n", "default", "--subresource=status", "--type=merge", "-p", patch)


def wanted_in_log(installed: Installation, name: str) -> str:
    found: str = installed.logged("Pod", name)["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return found


async def test_a_resize_counts_until_the_kubelet_has_carried_it_out(
    plane: ControlPlane, installed: Installation
) -> None:
    add_nodes(plane, node_document(NODE, cpu=4, labels={"kubernetes.io/hostname": NODE}))
    await installed.start_both()
    plane.apply(pod("shrinks", "3"))
    await installed.until(lambda: installed.bound_pods().get("shrinks") == NODE, "the pod is bound")
    tell(plane, "shrinks", actual="3", allocated="3")
    plane.apply(pod("waits", "2"))

    def refused() -> bool:
        return "Insufficient cpu" in plane.kubectl("describe", "pod", "waits", "-n", "default")

    await installed.until(refused, "there is no room")
    resize(plane, "shrinks", "1")
    await installed.until(lambda: wanted_in_log(installed, "shrinks") == "1", "the log has the resize")
    tell(plane, "shrinks", actual="3", allocated="1")
    plane.apply(pod("small", "1"))
    await installed.until(lambda: installed.bound_pods().get("small") == NODE, "what is left fits")
    assert "waits" not in installed.bound_pods(), "the kubelet has not taken the CPU away yet"

    plane.kubectl("delete", "pod", "small", "-n", "default", "--force", "--grace-period=0")
    tell(plane, "shrinks", actual="1", allocated="1")
    await installed.until(lambda: installed.bound_pods().get("waits") == NODE, "the room is free")

    tell(plane, "waits", actual="2", allocated="2")  # the API server resizes no pod of a kubelet that tells nothing
    resize(plane, "waits", "3")
    await installed.until(lambda: wanted_in_log(installed, "waits") == "3", "the log has the resize")
    plane.apply(pod("late", "1"))
    await installed.until(
        lambda: "Insufficient cpu" in plane.kubectl("describe", "pod", "late", "-n", "default"), "the node is full"
    )
    plane.kubectl("delete", "pod", "shrinks", "waits", "late", "-n", "default", "--force", "--grace-period=0")
    plane.kubectl("delete", "node", NODE)
