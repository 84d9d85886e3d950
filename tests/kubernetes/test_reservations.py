"""Reservations as `kubectl` shows them: placed, used by their owners, consumed, expired, deleted."""

import json
from typing import Any

import pytest
import yaml
from koordcore.protocol import keys
from support.guide import ROOT
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import Installation
from support.kubernetes.kubelets import add_nodes, node_document

pytestmark = [pytest.mark.kubernetes]

NODE = "reserving-node"


def documents(example: str) -> list[dict[str, Any]]:
    """Return the documents of an example, for our scheduler on one node."""
    text = (ROOT / "examples" / "reservations" / f"{example}.yaml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    for each in found:
        spec = each["spec"] if each["kind"] == "Pod" else each["spec"]["template"]["spec"]
        spec["schedulerName"] = "koord-scheduler"
        spec["nodeSelector"] = {"kubernetes.io/hostname": NODE}
        if each["kind"] == "Pod":
            each["metadata"]["namespace"] = "default"
    return found


def columns(plane: ControlPlane, name: str) -> list[str]:
    """Return the cells that `kubectl get reservation` prints, without the age."""
    cells = plane.kubectl("get", "reservation", name, "--no-headers").split()
    return [*cells[:2], *cells[3:]]


def status(plane: ControlPlane, name: str) -> dict[str, Any]:
    """Return the status of a Reservation."""
    found: dict[str, Any] = plane.get("reservation", name).get("status", {})
    return found


def used(plane: ControlPlane, pod: str) -> str:
    """Return the name of the Reservation that a pod uses; "" for none."""
    annotations = plane.get("pod", pod, "-n", "default")["metadata"].get("annotations", {})
    return str(json.loads(annotations.get(keys.RESERVATION_ALLOCATED, "{}")).get("name", ""))


async def test_reservations_live_on_the_api_server_as_kubectl_shows_them(
    plane: ControlPlane, installed: Installation
) -> None:
    add_nodes(plane, node_document(NODE, labels={"kubernetes.io/hostname": NODE}, cpu=16, memory="32Gi"))
    await installed.start_both()
    shared, *rankings = documents("label-owner")
    once, *indexes = documents("allocate-once")
    (expiring,) = documents("expiry")

    plane.apply(shared, once, expiring)
    await installed.until(
        lambda: {status(plane, name).get("phase") for name in ("label-owner", "allocate-once")} == {"Available"},
        "two Reservations have a node",
    )
    assert columns(plane, "label-owner") == ["label-owner", "Available", NODE, "24h"]

    for pod in (*rankings, *indexes):
        plane.apply(pod)
    names = {pod["metadata"]["name"] for pod in (*rankings, *indexes)}
    await installed.until(lambda: names <= set(installed.bound_pods()), "all pods are bound")
    await installed.until(lambda: len(status(plane, "label-owner").get("currentOwners", [])) == 2, "two owners")
    await installed.until(lambda: status(plane, "allocate-once").get("phase") == "Succeeded", "it is consumed")
    assert status(plane, "label-owner")["allocated"] == {"cpu": "2"}
    assert {used(plane, pod["metadata"]["name"]) for pod in rankings} == {"label-owner"}
    assert sorted(used(plane, pod["metadata"]["name"]) for pod in indexes) == ["", "allocate-once"]

    await installed.until(lambda: status(plane, "expiry").get("phase") == "Failed", "the unused one expires")
    (ready,) = (each for each in status(plane, "expiry")["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Expired")

    plane.kubectl("delete", "reservation", "label-owner", "allocate-once", "expiry")
    running = plane.get("pods", "-n", "default")["items"]
    assert names <= {pod["metadata"]["name"] for pod in running if pod["spec"].get("nodeName") == NODE}
