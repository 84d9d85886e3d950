"""Sidecars, init containers, host network, static pods and ephemeral containers have the right values in cgroups."""

import secrets
from pathlib import Path

import pytest
import yaml
from koordcore.protocol.qos import KubeQos
from koordctl.stack.containers import IMAGE
from support.agent.real_node import SHOW
from support.cluster.cluster import Cluster
from support.cluster.files import MANIFESTS
from support.cluster.koord_command import Operator
from support.cluster.workloads import (
    LAYOUT,
    MIB,
    Json,
    best_effort,
    container_of,
    first_line,
    kernel_value,
    kernel_values,
    pod,
    pod_directory,
    shared_cpu,
    wait_running,
    workload,
)
from support.until import until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.root, pytest.mark.timeout(1200)]

SMALL = {"cpu": "50m", "memory": "32Mi"}


def batch(cpu: int, memory: str) -> Json:
    amounts = {"kubernetes.io/batch-cpu": str(cpu), "kubernetes.io/batch-memory": memory}
    return {"requests": amounts, "limits": amounts}


def test_sidecars_and_init_containers_of_a_batch_pod_count(cluster: Cluster) -> None:
    document = best_effort("sidecars")
    document["spec"]["containers"][0]["resources"] = batch(200, "64Mi")
    plain = {"image": IMAGE, "imagePullPolicy": "Never"}
    document["spec"]["initContainers"] = [
        {
            "name": "sidecar",
            "restartPolicy": "Always",
            "resources": batch(100, "32Mi"),
            **plain,
            "command": ["/bin/sh", "-c", SHOW],
        },
        {"name": "first", "resources": batch(250, "128Mi"), **plain, "command": ["/bin/sh", "-c", "true"]},
    ]
    cluster.plane.apply(document)
    wait_running(cluster, "sidecars")
    # `first` has the limits of its pod.
    wanted = {"main": ("20000", 64 * MIB), "sidecar": ("10000", 32 * MIB)}
    for name, (quota, memory) in wanted.items():
        first = first_line(cluster, "sidecars", name)
        assert (first["quota"], first["memory"]) == (quota, str(memory)), name

    found = pod(cluster, "sidecars")
    directory = pod_directory(found)
    statuses = [*found["status"]["containerStatuses"], *found["status"]["initContainerStatuses"]]
    paths = {each["name"]: f"{directory}/{container_of(each)}" for each in statuses if "running" in each["state"]}
    assert paths.keys() == {"main", "sidecar"}
    # The stage of `first` beside the sidecar needs more than the containers that run later.
    # An agent that knows only the annotation when the sandbox starts corrects the pod in its next cycle.
    until_blocking(lambda: kernel_value(cluster, directory, "cpu/cpu.cfs_quota_us") == "35000", "the quota of the pod")
    amounts = {directory: ("35000", 160 * MIB), **{path: wanted[name] for name, path in paths.items()}}
    for path, (quota, memory) in amounts.items():
        assert kernel_value(cluster, path, "cpu/cpu.cfs_quota_us") == quota, path
        assert kernel_value(cluster, path, "memory/memory.limit_in_bytes") == str(memory), path
    cluster.plane.kubectl("delete", "pod", "sidecars", "--now")


def test_pods_on_the_hosts_network_and_static_pods_leave_the_exclusive_cpu(cluster: Cluster, someone: Operator) -> None:
    document = workload("host-network", "LS", SMALL)
    document["spec"]["hostNetwork"] = True
    cluster.plane.apply(document)
    static = workload("static", "LS", SMALL)
    del static["spec"]["schedulerName"], static["spec"]["priorityClassName"]
    manifest = cluster.machine.folder / "kubernetes" / Path(MANIFESTS).name / "static.yaml"
    manifest.write_text(yaml.safe_dump(static))
    name = f"static-{cluster.machine.name}"
    try:
        wait_running(cluster, "host-network", name)
        mirror = pod(cluster, name)
        # The cgroup has the UID of the kubelet's pod, and not that of its mirror in the API.
        uid = mirror["metadata"]["annotations"]["kubernetes.io/config.hash"]
        directory = LAYOUT.pod_directory(KubeQos(mirror["status"]["qosClass"]), uid)
        container = f"{directory}/{container_of(mirror['status']['containerStatuses'][0])}"
        cpu = shared_cpu(cluster)
        until_blocking(lambda: kernel_values(cluster, "host-network")["cpus"] == cpu, "host network", every=0.2)
        until_blocking(lambda: kernel_value(cluster, container, "cpuset/cpuset.cpus") == cpu, "static pod", every=0.2)
        assert kernel_value(cluster, container, "cpu/cpu.cfs_quota_us") == "5000"
        assert f"Running on {cluster.machine.name}" in someone.koord("explain", "pod", name)
    finally:
        manifest.unlink()
        cluster.plane.kubectl("delete", "pod", "host-network", "--ignore-not-found", "--now")
    until_blocking(lambda: cluster.plane.ask("get", "pod", name).code != 0, "the static pod is gone", every=0.5)


def test_an_ephemeral_container_has_the_cpus_of_its_pod(cluster: Cluster) -> None:
    name = f"look-{secrets.token_hex(3)}"  # that of an ephemeral container is never free again
    words = (f"--container={name}", "--image", IMAGE, "--image-pull-policy=Never", "--profile=general")
    cluster.plane.kubectl("debug", "pinned", *words, "--attach=false", "--", "/bin/sh", "-c", "sleep 60")

    def running() -> str:
        statuses: list[Json] = pod(cluster, "pinned")["status"].get("ephemeralContainerStatuses", [])
        own: Json = next((each for each in statuses if each["name"] == name), Json())
        return container_of(own) if "running" in own.get("state", {}) else ""

    container = until_blocking(running, "the ephemeral container runs", every=0.2)
    path = f"{pod_directory(pod(cluster, 'pinned'))}/{container}"
    own = kernel_values(cluster, "pinned")["cpus"]
    until_blocking(lambda: kernel_value(cluster, path, "cpuset/cpuset.cpus") == own, "its CPUs", every=0.2)
