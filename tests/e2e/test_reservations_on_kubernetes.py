"""Reservations behind an API server: a manager and a scheduler place them, and write what becomes of them."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import yaml
from koordcore.embedded.nats import NatsServer
from koordcore.protocol import keys
from support.kubernetes.cluster_day import Day, cluster_day
from support.kubernetes.gateway_world import install_crds, node

pytestmark = [pytest.mark.slow, pytest.mark.nats]

EXAMPLES = Path(__file__).parents[2] / "examples" / "reservations"


def documents(example: str) -> list[dict[str, Any]]:
    """The documents of an example, with the scheduler's name in pods and templates."""
    found = list(yaml.safe_load_all((EXAMPLES / f"{example}.yaml").read_text(encoding="utf-8")))
    for each in found:
        spec = each["spec"] if each["kind"] == "Pod" else each["spec"]["template"]["spec"]
        spec["schedulerName"] = "koord-scheduler"
    return found


@pytest.fixture
async def day(tmp_path: Path, fresh_nats_server: NatsServer) -> AsyncGenerator[Day]:
    """A cluster with one node of 4 CPUs."""
    async with cluster_day(tmp_path, fresh_nats_server) as day:
        await install_crds(day.server)
        await day.server.apply(node("node-1", cpu=4))
        await day.start("scheduler", "koord_scheduler")
        await day.start_manager("manager")
        yield day


def pod_of(day: Day, name: str) -> dict[str, Any]:
    return day.server.object("pods", "default", name) or {"spec": {}, "metadata": {}}


def used_by(day: Day, name: str) -> dict[str, str]:
    """Name and uid of the Reservation that a pod names; {} if it names none."""
    return json.loads(pod_of(day, name)["metadata"].get("annotations", {}).get(keys.RESERVATION_ALLOCATED, "{}"))


def status_of(day: Day, name: str) -> dict[str, Any]:
    return (day.server.object("reservations", "", name) or {}).get("status", {})


@pytest.mark.deep
async def test_the_status_names_the_owners_of_a_reservation_and_they_outlive_it(day: Day) -> None:
    reservation, *pods = documents("label-owner")
    await day.server.apply(reservation)
    await day.until(lambda: status_of(day, "label-owner").get("phase") == "Available", "the Reservation has a node")
    assert status_of(day, "label-owner")["nodeName"] == "node-1"

    for pod in pods:
        await day.server.apply(pod)
    await day.until(lambda: len(status_of(day, "label-owner").get("currentOwners", [])) == 2, "both owners")
    assert (status_of(day, "label-owner")["allocatable"], status_of(day, "label-owner")["allocated"]) == (
        {"cpu": "3"},
        {"cpu": "2"},
    )
    stored = day.server.object("reservations", "", "label-owner") or {}
    used = {"name": "label-owner", "uid": stored["metadata"]["uid"]}
    names = [pod["metadata"]["name"] for pod in pods]
    await day.until(lambda: all(used_by(day, name) == used for name in names), "the owners name it")

    await day.server.delete("reservations", "", "label-owner")
    (big,) = (each for each in documents("operating-mode") if each["metadata"]["name"] == "render-job")
    del big["metadata"]["annotations"]
    big["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    await day.server.apply(big)
    await day.until(lambda: pod_of(day, "render-job")["spec"].get("nodeName") == "node-1", "the freed CPU is used")
    assert all(pod_of(day, pod["metadata"]["name"])["spec"]["nodeName"] == "node-1" for pod in pods)


@pytest.mark.deep
async def test_owners_lose_the_annotation_with_the_gate(tmp_path: Path, fresh_nats_server: NatsServer) -> None:
    reservation, pod, _ = documents("label-owner")
    async with cluster_day(tmp_path, fresh_nats_server) as day:
        await install_crds(day.server)
        await day.server.apply(node("node-1", cpu=4))
        await day.start("scheduler", "koord_scheduler", ["--feature-gates=CleanExpiredReservationAllocated=true"])
        await day.start_manager("manager")
        await day.server.apply(reservation)
        await day.until(lambda: status_of(day, "label-owner").get("phase") == "Available", "the Reservation has a node")
        await day.server.apply(pod)
        name = pod["metadata"]["name"]

        await day.until(lambda: used_by(day, name), "the pod uses it")
        await day.server.delete("reservations", "", "label-owner")
        await day.until(lambda: not used_by(day, name), "the annotation is gone")
        assert pod_of(day, name)["spec"]["nodeName"] == "node-1"


async def test_the_example_of_a_pod_that_acts_as_a_reservation(day: Day) -> None:
    for document in documents("operating-mode"):
        await day.server.apply(document)
    await day.until(lambda: pod_of(day, "render-warm")["spec"].get("nodeName") == "node-1", "the first pod has a node")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await day.server.patch_status("pods", "default", "render-warm", ready)

    def owner() -> Any:
        text = pod_of(day, "render-warm")["metadata"].get("annotations", {}).get(keys.RESERVATION_CURRENT_OWNER)
        return None if text is None else json.loads(text)["name"]

    await day.until(lambda: owner() == "render-job", "the first pod names its owner")
    await day.until(lambda: used_by(day, "render-job").get("name") == "render-warm", "the owner names it")
    assert pod_of(day, "render-job")["spec"]["nodeName"] == "node-1"
