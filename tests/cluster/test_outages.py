"""The manager or the log is away: what runs stays protected, and what does not need them goes on."""

import json
import time
from collections.abc import Generator

import pytest
import yaml
from support.cluster.cluster import NODES, SYSTEM, Cluster
from support.cluster.load import server
from support.cluster.suppression import remove, start, suppressed_after
from support.cluster.workloads import BATCH, Json, best_effort, kernel_values, wait_running, workload
from support.until import until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.root, pytest.mark.timeout(1200)]

OUTAGE_SECONDS = 75
SECTION = "colocation-config"


def scale(cluster: Cluster, workload: str, replicas: int) -> None:
    cluster.plane.kubectl("scale", workload, "-n", SYSTEM, f"--replicas={replicas}")
    if replicas:
        cluster.plane.kubectl("rollout", "status", workload, "-n", SYSTEM, "--timeout=240s")
    else:
        selected = ("-l", f"koord-app={workload.rpartition('/')[2]}", "-n", SYSTEM)
        cluster.plane.kubectl("wait", "pod", *selected, "--for=delete", "--timeout=120s")


def plain(name: str) -> Json:
    """A pod that has nothing to do with Koordstream."""
    document = workload(name, "LS", {"cpu": "50m", "memory": "32Mi"})
    del document["spec"]["schedulerName"], document["spec"]["priorityClassName"], document["metadata"]["labels"]
    return document


@pytest.mark.usefixtures("protected")
def test_the_manager_is_away(cluster: Cluster) -> None:
    scale(cluster, "deployment/koord-manager", 0)
    try:
        cluster.plane.apply(plain("plain"))
        wait_running(cluster, "plain")
        # A pod that a profile may change is not created without it.
        refused = cluster.plane.ask("apply", "-f", "-", stdin=yaml.safe_dump(best_effort("early")))
        assert refused.code != 0
        assert "failed calling webhook" in refused.err
    finally:
        scale(cluster, "deployment/koord-manager", 1)

    def is_created() -> bool:
        return cluster.plane.ask("apply", "-f", "-", stdin=yaml.safe_dump(best_effort("early"))).code == 0

    until_blocking(is_created, "a batch pod is created again", every=0.5)
    wait_running(cluster, "early")
    assert kernel_values(cluster, "early")["quota"] == "30000"
    remove(cluster, "early", "plain")


def set_colocation(cluster: Cluster, document: Json) -> None:
    patch = json.dumps({"data": {SECTION: json.dumps(document)}})
    cluster.plane.kubectl("patch", "configmap", "slo-controller-config", "-n", SYSTEM, "--type=merge", "-p", patch)


@pytest.fixture
def short_validity(cluster: Cluster) -> Generator[None]:
    """A usage report is valid for one minute instead of fifteen, so an outage of ten minutes takes one."""
    before = json.loads(cluster.plane.get("configmap", "slo-controller-config", "-n", SYSTEM)["data"][SECTION])
    set_colocation(cluster, {**before, "degradeTimeMinutes": 1})
    yield
    set_colocation(cluster, before)


@pytest.mark.usefixtures("short_validity", "suppression", "protected")
def test_the_log_is_away_for_longer_than_reports_are_valid(cluster: Cluster) -> None:
    address = start(cluster, server("server"), "server", "serves")
    scale(cluster, "statefulset/nats", 0)
    try:
        began = time.monotonic()
        print(f"\nwithout the log: quota of BE below half after {suppressed_after(cluster, address):.2f} s")
        until_blocking(lambda: time.monotonic() > began + OUTAGE_SECONDS, "reports are too old", every=1)
        print(f"later: {suppressed_after(cluster, address):.2f} s")
    finally:
        scale(cluster, "statefulset/nats", 1)
    remove(cluster, "server")
    cluster.plane.kubectl("rollout", "status", "daemonset/koord-agent", "-n", NODES, "--timeout=240s")

    def published() -> int:
        allocatable = cluster.plane.get("node", cluster.machine.name)["status"]["allocatable"]
        return int(allocatable.get("kubernetes.io/batch-cpu", "0"))

    until_blocking(lambda: published() >= int(BATCH["kubernetes.io/batch-cpu"]), "batch-cpu", seconds=240, every=1)
