"""Pods of users on a real node, and what the kernel shows of them.

The first line that a container prints has the values that hold for its first instruction (`support.agent.real_node`).
"""

import re
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koordcore.protocol.qos import KubeQos
from koordctl.stack.containers import IMAGE
from support.agent.real_node import FILES, SHOW
from support.cluster.cluster import Cluster
from support.until import until_blocking

Json = dict[str, Any]
LAYOUT: Final = CgroupLayout(Driver.CGROUPFS)
START_SECONDS: Final = 240.0
LOOK_SECONDS: Final = 0.02
MIB: Final = 1 << 20

BATCH: Final = {"kubernetes.io/batch-cpu": "300", "kubernetes.io/batch-memory": "64Mi"}
PINNED: Final = {"cpu": "1", "memory": "64Mi"}


def workload(name: str, qos: str, requests: Mapping[str, str], limits: Mapping[str, str] | None = None) -> Json:
    """A pod that shows its first values and sleeps. Without `limits`, they are its requests."""
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", SHOW],
        "resources": {"requests": dict(requests), "limits": dict(limits or requests)},
    }
    spec = {
        "schedulerName": "koord-scheduler",
        "priorityClassName": "koord-batch" if qos == "BE" else "koord-prod",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    metadata = {"name": name, "namespace": "default", "labels": {"koordinator.sh/qosClass": qos}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def best_effort(name: str) -> Json:
    """A batch pod of 0.3 CPUs and 64 MiB."""
    return workload(name, "BE", BATCH)


def pod(cluster: Cluster, name: str) -> Json:
    """A pod as the API server shows it."""
    return cluster.plane.get("pod", name)


def wait_running(cluster: Cluster, *names: str) -> None:
    """Wait until these pods run."""
    path = ("-o", "jsonpath={.status.phase} {.status.containerStatuses[0].ready}")
    for name in names:
        until_blocking(
            lambda name=name: cluster.plane.ask("get", "pod", name, *path).out == "Running true",
            f"{name} runs",
            seconds=START_SECONDS,
            every=0.2,
        )


def first_line(cluster: Cluster, name: str, container: str = "main") -> dict[str, str]:
    """Name -> value in the first line that a pod's container printed."""
    words = ("logs", name, "-c", container)
    line = until_blocking(lambda: cluster.plane.ask(*words).out, f"the first line of {name} {container}", every=0.2)
    return dict(re.findall(r"(\w+)=(\S*)", line.splitlines()[0]))


def pod_directory(found: Json) -> str:
    """Directory of a pod's cgroup below the roots of the hierarchies."""
    return LAYOUT.pod_directory(KubeQos(found["status"]["qosClass"]), found["metadata"]["uid"])


def container_of(status: Mapping[str, Any]) -> str:
    """Name of the cgroup of a container, from its status."""
    return str(status["containerID"]).rpartition("/")[2]


def kernel_file(cluster: Cluster, directory: str, path: str) -> Path:
    """A file of a cgroup, such as `cpu/cpu.shares`."""
    hierarchy, _, file = path.partition("/")
    return cluster.machine.cgroup_file(hierarchy, f"{directory}/{file}")


def kernel_value(cluster: Cluster, directory: str, path: str) -> str:
    """The value in a file of a cgroup, such as `cpu/cpu.shares`."""
    return kernel_file(cluster, directory, path).read_text().strip()


def container_files(cluster: Cluster, name: str) -> dict[str, Path]:
    """Name -> file of the kernel, of a pod's running container."""
    found = pod(cluster, name)
    directory = f"{pod_directory(found)}/{container_of(found['status']['containerStatuses'][0])}"
    return {value: kernel_file(cluster, directory, path) for value, path in FILES.items()}


def kernel_values(cluster: Cluster, name: str) -> dict[str, str]:
    """Name -> value in the kernel's files of a pod's running container."""
    return {value: file.read_text().strip() for value, file in container_files(cluster, name).items()}


def shared_cpu(cluster: Cluster) -> str:
    """The CPU of the pods that own none, on a node of two CPUs on which the pod `pinned` owns the other one."""
    return {"0": "1", "1": "0"}[kernel_values(cluster, "pinned")["cpus"]]


@contextmanager
def watched(files: Mapping[str, Path]) -> Generator[dict[str, set[str]]]:
    """Look at files of the kernel all the time inside the block.

    Yields:
        Name -> the values that were seen, complete after the block.
    """
    seen: dict[str, set[str]] = {name: set() for name in files}
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_SECONDS):
            for name, file in files.items():
                with suppress(OSError):  # the container may have ended
                    seen[name].add(file.read_text().strip())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
