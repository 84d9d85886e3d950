"""The first day of a cluster: install, the first pods, colocation, and what holds for their first instruction."""

import json

import pytest
import yaml
from koordcore.values.quantity import parse_milli, parse_value
from support.cluster.cluster import NODES, SYSTEM, Cluster
from support.cluster.koord_command import Operator
from support.cluster.workloads import (
    BATCH,
    MIB,
    PINNED,
    best_effort,
    first_line,
    kernel_values,
    pod,
    wait_running,
    workload,
)
from support.kubernetes.control_plane import ROOT
from support.until import until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.root, pytest.mark.timeout(1200)]

CPUSET = "scheduling.koordinator.sh/resource-status"


def test_the_installed_system_leaves_room_on_a_small_node(cluster: Cluster) -> None:
    pods = [item for name in (SYSTEM, NODES) for item in cluster.plane.get("pods", "-n", name)["items"]]
    asked = [part["resources"]["requests"] for item in pods for part in item["spec"]["containers"]]
    assert sum(parse_milli(each["cpu"]) for each in asked) <= 600
    assert sum(parse_value(each["memory"]) for each in asked) <= 1408 * MIB
    # Only the agents take the place of pods of users.
    critical = {item["metadata"]["labels"]["koord-app"] for item in pods if item["spec"]["priority"] > 0}
    assert critical == {"koord-agent"}


def test_the_first_pod_runs_and_is_explained(cluster: Cluster, someone: Operator) -> None:
    cluster.plane.apply(workload("web", "LS", {"cpu": "200m", "memory": "64Mi"}, {"cpu": "500m", "memory": "128Mi"}))
    wait_running(cluster, "web")
    story = someone.koord("explain", "pod", "web")
    assert "Running on node-1" in story
    assert "started            by the agent of node-1" in story


def test_batch_cpu_is_published_when_colocation_is_switched_on(cluster: Cluster, someone: Operator) -> None:
    document = yaml.safe_load((ROOT / "examples" / "colocation.yaml").read_text())
    data = {"colocation-config": document["data"]["colocation-config"]}
    patch = json.dumps({"data": data})
    cluster.plane.kubectl("patch", "configmap", "slo-controller-config", "-n", SYSTEM, "--type=merge", "-p", patch)

    def published() -> int:
        allocatable = cluster.plane.get("node", cluster.machine.name)["status"]["allocatable"]
        return int(allocatable.get("kubernetes.io/batch-cpu", "0"))

    until_blocking(lambda: published() >= int(BATCH["kubernetes.io/batch-cpu"]), "batch-cpu", seconds=240, every=1)
    assert "batch cpu" in someone.koord("explain", "node", cluster.machine.name)


def test_pods_start_with_the_values_of_their_class(cluster: Cluster, someone: Operator) -> None:
    cluster.plane.apply(best_effort("batch"), workload("pinned", "LSR", PINNED))
    wait_running(cluster, "batch", "pinned")
    cpu = json.loads(pod(cluster, "pinned")["metadata"]["annotations"][CPUSET])["cpuset"]
    wanted = {
        "batch": {"shares": "307", "quota": "30000", "memory": str(64 * MIB)},
        "pinned": {"cpus": cpu, "quota": "-1", "shares": "1024", "memory": str(64 * MIB)},
    }
    for name, values in wanted.items():
        first, now = first_line(cluster, name), kernel_values(cluster, name)
        assert {value: first[value] for value in values} == values, name
        assert {value: now[value] for value in values} == values, name
    assert first_line(cluster, "pinned")["allowed"] == cpu
    # The pod that shares CPUs left the exclusive one.
    other = {"0": "1", "1": "0"}[cpu]
    until_blocking(lambda: kernel_values(cluster, "web")["cpus"] == other, "web is on the other CPU")
    # A pod that starts now never sees the exclusive one.
    cluster.plane.apply(workload("shared", "LS", {"cpu": "50m", "memory": "32Mi"}, {"cpu": "200m", "memory": "64Mi"}))
    wait_running(cluster, "shared")
    first = first_line(cluster, "shared")
    values = {"cpus": other, "allowed": other, "quota": "20000", "shares": "51", "memory": str(64 * MIB)}
    assert {value: first[value] for value in values} == values
    cluster.plane.kubectl("delete", "pod", "shared", "--now")
    assert f"given CPUs {cpu}" in someone.koord("explain", "pod", "pinned")
