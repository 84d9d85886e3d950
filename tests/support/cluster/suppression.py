"""CPU suppression on a real node: its configuration, its quota in the kernel, and a server that makes it act."""

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from koordcore.protocol.qos import KubeQos
from support.cluster.cluster import SYSTEM, Cluster
from support.cluster.load import burn, calm
from support.cluster.workloads import LAYOUT, Json, kernel_value, pod, wait_running
from support.until import until_blocking

THRESHOLDS: Final = "resource-threshold-config"
NO_LIMIT: Final = -1
BY_QUOTA: Final = {"cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"}
"""The strategy of examples/colocation.yaml."""


def configure(cluster: Cluster, strategy: Mapping[str, object] | None) -> None:
    """Set the strategy of protection, None to remove it."""
    section = None if strategy is None else json.dumps({"clusterStrategy": {"enable": True, **strategy}})
    patch = json.dumps({"data": {THRESHOLDS: section}})
    cluster.plane.kubectl("patch", "configmap", "slo-controller-config", "-n", SYSTEM, "--type=merge", "-p", patch)


def class_quota(cluster: Cluster) -> int:
    """Quota of the best-effort class in microseconds."""
    return int(kernel_value(cluster, LAYOUT.qos_directory(KubeQos.BEST_EFFORT), "cpu/cpu.cfs_quota_us"))


def start(cluster: Cluster, document: Json, name: str, printed: str) -> str:
    """Start a pod, wait until it has printed a word, and return its address."""
    cluster.plane.apply(document)
    wait_running(cluster, name)
    until_blocking(lambda: printed in cluster.plane.ask("logs", name).out, f"{name} {printed}", every=0.2)
    return str(pod(cluster, name)["status"]["podIP"])


def remove(cluster: Cluster, *names: str) -> None:
    cluster.plane.kubectl("delete", "pod", *names, "--ignore-not-found", "--now")


def suppressed_after(cluster: Cluster, address: str) -> float:
    """Let the server use all CPUs. Return the seconds until best effort has less than half of its quota."""
    before = until_blocking(lambda: wide_quota(cluster), "best effort has its CPU back", every=0.1)
    with ThreadPoolExecutor(1) as thread:
        began = thread.submit(burn, cluster, address)
        until_blocking(lambda: class_quota(cluster) < before // 2, "best effort is suppressed", every=0.005)
        ended = time.monotonic()
    calm(cluster, address)
    return ended - began.result()


def wide_quota(cluster: Cluster) -> int:
    """The quota of the best-effort class if it is 0.6 CPUs or more, else 0."""
    quota = class_quota(cluster)
    return quota if quota >= 60_000 else 0
