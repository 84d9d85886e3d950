"""Batch work beside a latency-sensitive server: a CPU hog, a kill for lack of memory, and memory pressure."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from support.cluster.cluster import NODES, Cluster
from support.cluster.koord_command import Operator
from support.cluster.load import hog, latency, python, server
from support.cluster.suppression import configure, remove, start, suppressed_after
from support.cluster.workloads import MIB, Json, best_effort, kernel_values, pod, wait_running, workload
from support.until import until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.root, pytest.mark.timeout(1200)]

REQUESTS = 400
ROUNDS = 3
TOKENS = "/var/run/secrets/koordstream"
EATER = """
import time
held = b"x" * %d
print("full", flush=True)
time.sleep(100000)
"""
"""Takes so many bytes of memory and keeps them."""
MOST_EATEN = 4096 * MIB


@pytest.mark.usefixtures("suppression")
def test_a_batch_hog_is_suppressed_beside_a_server(cluster: Cluster, someone: Operator) -> None:
    """Prints what docs/benchmarks.md shows. Times depend on what else the machine does, so none is asserted."""
    address = start(cluster, server("server"), "server", "serves")
    try:
        alone = latency(cluster, address, REQUESTS)
        start(cluster, hog("hog", "BE"), "hog", "burns")
        beside = latency(cluster, address, REQUESTS)
        reactions = [suppressed_after(cluster, address) for _ in range(ROUNDS)]
        assert "BE may use" in someone.koord("explain", "node", cluster.machine.name)
        remove(cluster, "hog")
        start(cluster, hog("hog", "LS", {"cpu": "50m", "memory": "64Mi"}), "hog", "burns")
        ordinary = latency(cluster, address, REQUESTS)
    finally:
        remove(cluster, "hog", "server")
    print(f"\nserver alone: {alone}\nbeside six loops in BE: {beside}\nbeside six loops in an ordinary pod: {ordinary}")
    print(f"quota of BE below half after {', '.join(f'{each:.2f}' for each in sorted(reactions))} s")


@pytest.fixture(scope="module")
def larger_agent(cluster: Cluster) -> Generator[None]:
    """The agent reads its kubelet, as docs/node-agent.md says, and evicts best effort when memory is short."""
    name = ("daemonset/koord-agent", "-n", NODES)
    document = cluster.plane.get(*name)
    spec: Json = document["spec"]["template"]["spec"]
    address, token = f"--kubelet-address={cluster.machine.address}", f"--kubelet-token-file={TOKENS}/kubelet"
    spec["containers"][0]["args"] += [address, token, "--feature-gates=BEMemoryEvict=true"]
    (volume,) = (each for each in spec["volumes"] if each["name"] == "token")
    volume["projected"]["sources"].append({"serviceAccountToken": {"expirationSeconds": 3600, "path": "kubelet"}})
    bound = ("clusterrolebinding", "agents-read-kubelets")
    account = f"--serviceaccount={NODES}:koord-agent"
    cluster.plane.kubectl("create", *bound, "--clusterrole=system:kubelet-api-admin", account)
    cluster.plane.kubectl("replace", "-f", "-", stdin=json.dumps(document))
    cluster.plane.kubectl("rollout", "status", *name, "--timeout=240s")
    yield
    try:
        configure(cluster, None)
        # The agent without a kubelet does not put back the quota of a container that started without one.
        until_blocking(lambda: kernel_values(cluster, "batch")["quota"] == "30000", "the quota of batch", every=0.05)
    finally:
        cluster.plane.kubectl("rollout", "undo", *name)
        cluster.plane.kubectl("rollout", "status", *name, "--timeout=240s")
        cluster.plane.kubectl("delete", *bound)


def ended(cluster: Cluster, name: str) -> Json:
    """How the container of a pod ended last, {} if it has not ended."""
    statuses: list[Json] = pod(cluster, name)["status"].get("containerStatuses") or [{}]
    (status,) = statuses
    states: list[Json | None] = [status.get(part, {}).get("terminated") for part in ("state", "lastState")]
    return next(filter(None, states), Json())


@pytest.mark.usefixtures("larger_agent")
def test_a_kill_for_lack_of_memory_reaches_the_recommender(cluster: Cluster, someone: Operator) -> None:
    amounts = {"cpu": "50m", "memory": "300Mi"}
    greedy = python(workload("greedy", "LS", amounts, {**amounts, "cpu": "500m"}), f"x = b'x' * (1000 * {MIB})")
    greedy["metadata"]["labels"]["app"] = "greedy"
    recommendation = {
        "apiVersion": "analysis.koordinator.sh/v1alpha1",
        "kind": "Recommendation",
        "metadata": {"name": "greedy", "namespace": "default"},
        "spec": {"target": {"type": "podSelector", "podSelector": {"matchLabels": {"app": "greedy"}}}},
    }

    def recommended() -> int:
        """Recommended memory in bytes."""
        status: Json = cluster.plane.get("recommendation", "greedy").get("status", {})
        found: list[Json] = status.get("podStatus", {}).get("containerStatuses", [])
        return sum(int(each["resources"].get("memory", 0)) for each in found)

    try:
        cluster.plane.apply(recommendation, greedy)
        until_blocking(lambda: ended(cluster, "greedy").get("reason") == "OOMKilled", "it was killed", every=0.2)
        told = "oom-killed"
        until_blocking(lambda: told in someone.koord("explain", "pod", "greedy"), "the agent has told it", every=1)
        # 100 MiB more than it had, and the margin; without the kill, less than 345 MiB.
        until_blocking(lambda: recommended() > 400 * MIB, "more memory is recommended", seconds=300, every=1)
    finally:
        remove(cluster, "greedy")
        cluster.plane.kubectl("delete", "recommendation", "greedy", "--ignore-not-found")


def memory() -> tuple[int, int]:
    """The machine's memory in bytes, in all and available. The node sees the machine's."""
    rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (1024 * int(rows[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    return total, available


@pytest.mark.usefixtures("larger_agent")
def test_memory_pressure_evicts_best_effort_and_nothing_else(cluster: Cluster, someone: Operator) -> None:
    """The thresholds fall below what is in use. So machines of any size are under pressure, and none runs short."""
    before = {name: pod(cluster, name)["status"]["containerStatuses"] for name in ("web", "pinned")}
    _, available = memory()
    document = python(workload("memory-hog", "BE", {}), EATER % min(MOST_EATEN, available // 4))
    del document["spec"]["containers"][0]["resources"]
    document["spec"]["restartPolicy"] = "Never"

    def is_gone() -> bool:
        found = cluster.plane.ask("get", "pod", "memory-hog", "-o", "jsonpath={.status.phase}")
        return found.code != 0 or found.out == "Failed"

    try:
        start(cluster, document, "memory-hog", "full")
        total, available = memory()
        threshold = max(100 * (total - available) // total - 2, 2)
        configure(cluster, {"memoryEvictThresholdPercent": threshold, "memoryEvictLowerPercent": threshold - 1})
        until_blocking(is_gone, "the hog is evicted", seconds=240, every=0.2)
        assert {name: pod(cluster, name)["status"]["containerStatuses"] for name in before} == before
        assert "default/memory-hog by BEMemoryEvict" in someone.koord("explain", "node", cluster.machine.name)
    finally:
        configure(cluster, None)
        remove(cluster, "memory-hog")
    if cluster.plane.ask("get", "pod", "batch").code:
        cluster.plane.apply(best_effort("batch"))
    wait_running(cluster, "batch", *before)
