"""Pods are resized where they run: kubelet, kernel, ledger of the node and agent follow, or all of them stay."""

import json

import pytest
from support.cluster.cluster import Cluster
from support.cluster.koord_command import Operator
from support.cluster.workloads import (
    container_files,
    kernel_values,
    pod,
    shared_cpu,
    wait_running,
    watched,
    workload,
)
from support.until import until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.root, pytest.mark.timeout(1200)]

SMALL = {"cpu": "50m", "memory": "32Mi"}
MEMORY = {"memory": "64Mi"}


def resize(cluster: Cluster, cpu: str, limit: str) -> None:
    resources = {"requests": {"cpu": cpu, "memory": "32Mi"}, "limits": {"cpu": limit, **MEMORY}}
    patch = json.dumps({"spec": {"containers": [{"name": "main", "resources": resources}]}})
    cluster.plane.kubectl("patch", "pod", "resized", "--subresource=resize", "-p", patch)


def wait_held(someone: Operator, cores: str) -> None:
    """Wait until the last line of the pod's story about what it holds names this request."""

    def held() -> bool:
        lines = [line for line in someone.koord("explain", "pod", "resized").splitlines() if "it holds" in line]
        return bool(lines) and f"cpu {cores}," in lines[-1]

    until_blocking(held, f"the ledger of the node has {cores}", every=0.5)


def wait_cycles(cluster: Cluster) -> None:
    """Wait until the agent has seen a pod come that no scheduler places: it has looked at the old ones since."""
    another = workload("another", "LS", SMALL)
    del another["spec"]["schedulerName"]
    another["spec"]["nodeName"] = cluster.machine.name
    cluster.plane.apply(another)
    wait_running(cluster, "another")
    cpu = shared_cpu(cluster)
    until_blocking(lambda: kernel_values(cluster, "another")["cpus"] == cpu, "the agent has seen it", every=0.2)
    cluster.plane.kubectl("delete", "pod", "another", "--now")


def is_deferred(cluster: Cluster) -> bool:
    conditions = pod(cluster, "resized")["status"]["conditions"]
    return any(each["type"] == "PodResizePending" and each["reason"] == "Deferred" for each in conditions)


def test_a_resize_holds_and_a_deferred_one_changes_nothing_on_the_node(cluster: Cluster, someone: Operator) -> None:
    cluster.plane.apply(workload("resized", "LS", SMALL, {"cpu": "200m", **MEMORY}))
    wait_running(cluster, "resized")
    file = container_files(cluster, "resized")["quota"]

    def quota() -> str:
        return file.read_text().strip()

    started = pod(cluster, "resized")["status"]["containerStatuses"][0]["containerID"]
    for request, held, limit, microseconds in (("100m", "0.1", "400m", "40000"), ("60m", "0.06", "150m", "15000")):
        before = quota()
        with watched({"quota": file}) as seen:
            resize(cluster, request, limit)
            until_blocking(lambda wanted=microseconds: quota() == wanted, f"quota of {limit}", every=0.05)
            wait_held(someone, held)
            wait_cycles(cluster)
        assert seen["quota"] == {before, microseconds}
        assert quota() == microseconds
    with watched({"quota": file}) as seen:
        resize(cluster, "1500m", "1900m")
        until_blocking(lambda: is_deferred(cluster), "the resize is deferred", every=0.2)
        # The kubelet gives nothing. The scheduler keeps the room that the pod waits for from others.
        wait_held(someone, "1.5")
        cluster.plane.apply(workload("waits", "LS", SMALL))
        until_blocking(lambda: "lacks cpu" in someone.koord("explain", "pod", "waits"), "no room", every=0.5)
        wait_cycles(cluster)
    assert seen["quota"] == {"15000"}
    assert pod(cluster, "resized")["status"]["containerStatuses"][0]["containerID"] == started
    cluster.plane.kubectl("delete", "pod", "resized", "--now")
    wait_running(cluster, "waits")
    cluster.plane.kubectl("delete", "pod", "waits", "--now")
