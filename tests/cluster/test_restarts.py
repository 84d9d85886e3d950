"""Parts of the node and of the system go away and come back: protection never loosens, and no pod is lost."""

import os
import signal
from typing import Any

import pytest
from koordcore.protocol.qos import KubeQos
from support.cluster.cluster import NODES, SYSTEM, Cluster
from support.cluster.workloads import (
    LAYOUT,
    best_effort,
    first_line,
    kernel_values,
    wait_running,
)
from support.until import until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.root, pytest.mark.timeout(1200)]

Json = dict[str, Any]


def agent_pod(cluster: Cluster) -> dict[str, str]:
    """Uid, container and restarts of the agent, "" for what is not known."""
    (item,) = cluster.plane.get("pods", "-n", NODES, "-l", "koord-app=koord-agent")["items"]
    statuses: list[Json] = item["status"].get("containerStatuses") or [{}]
    (status,) = statuses
    identity = str(status.get("containerID", "")).rpartition("/")[2]
    ready = str(status.get("ready", False))
    return {"uid": item["metadata"]["uid"], "container": identity, "ready": ready}


def kill_agent(cluster: Cluster) -> None:
    """Kill the process of the agent, and wait until the kubelet has started another container."""
    before = agent_pod(cluster)
    directory = LAYOUT.pod_directory(KubeQos.BURSTABLE, before["uid"])
    processes = cluster.machine.cgroup_file("cpu", f"{directory}/{before['container']}/cgroup.procs")
    for process in processes.read_text().split():
        os.kill(int(process), signal.SIGKILL)

    def is_another() -> bool:
        return agent_pod(cluster)["container"] not in {before["container"], ""}

    until_blocking(is_another, "another container of the agent", every=0.2)


def wait_agent(cluster: Cluster) -> None:
    until_blocking(lambda: agent_pod(cluster)["ready"] == "True", "the agent is ready", seconds=240, every=0.5)


@pytest.mark.usefixtures("protected")
def test_the_kubelet_restarts(cluster: Cluster) -> None:
    cluster.machine.kill("kubelet")
    cluster.start_program("kubelet")
    # It starts new pods, so it has admitted the others again.
    cluster.plane.apply(best_effort("after-kubelet"))
    wait_running(cluster, "after-kubelet")
    cluster.plane.kubectl("delete", "pod", "after-kubelet")


@pytest.mark.usefixtures("protected")
def test_containerd_restarts(cluster: Cluster) -> None:
    cluster.machine.kill("containerd")
    cluster.start_program("containerd")
    until_blocking(cluster.node_is_ready, "the node is ready", every=0.5)

    def is_protected_at_once() -> bool:
        cluster.plane.apply(best_effort("after-containerd"))
        wait_running(cluster, "after-containerd")
        first = first_line(cluster, "after-containerd")
        cluster.plane.kubectl("delete", "pod", "after-containerd")
        return first["quota"] == "30000"

    until_blocking(is_protected_at_once, "the agent is connected to NRI again", every=0.5)


@pytest.mark.usefixtures("protected")
def test_the_agent_is_killed(cluster: Cluster) -> None:
    kill_agent(cluster)
    wait_agent(cluster)


@pytest.mark.usefixtures("protected")
def test_the_log_is_away_and_the_agent_starts_without_it(cluster: Cluster) -> None:
    cluster.plane.kubectl("scale", "statefulset", "nats", "-n", SYSTEM, "--replicas=0")
    cluster.plane.kubectl("wait", "pod", "nats-0", "-n", SYSTEM, "--for=delete", "--timeout=120s")
    try:
        kill_agent(cluster)
        until_blocking(lambda: "service_ready" in agent_log(cluster), "the agent runs", every=0.5)
    finally:
        cluster.plane.kubectl("scale", "statefulset", "nats", "-n", SYSTEM, "--replicas=1")
    wait_agent(cluster)
    cluster.plane.apply(best_effort("after-log"))
    wait_running(cluster, "after-log")
    assert kernel_values(cluster, "after-log")["quota"] == "30000"
    cluster.plane.kubectl("delete", "pod", "after-log")


def agent_log(cluster: Cluster) -> str:
    return cluster.plane.ask("logs", "-n", NODES, "daemonset/koord-agent").out


def test_the_node_is_switched_off_and_on(cluster: Cluster) -> None:
    cluster.machine.stop()
    cluster.up()
    cluster.wait_available()
    wait_running(cluster, "pinned", "web")

    def are_apart() -> bool:
        try:
            return {kernel_values(cluster, name)["cpus"] for name in ("pinned", "web")} == {"0", "1"}
        except FileNotFoundError:  # the status still names a container of before
            return False

    # The kubelet starts them in any order, so they may run before the agent does.
    until_blocking(are_apart, "pinned and web have a CPU each", every=0.2)
    cluster.plane.apply(best_effort("after-reboot"))
    wait_running(cluster, "after-reboot")
    assert kernel_values(cluster, "after-reboot")["quota"] == "30000"
