"""On a real kernel: limits of pods contain overhead, sidecars and init containers; a static pod is measured once."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.kubelet import KnownPods
from koord_agent.domain.node.pods import agent_pod_from_json
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import cgroup_version
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koordcore.events.node_ledger import pod_on_node
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.qos import KubeQos
from support.until import until_blocking

pytestmark = pytest.mark.root

CGROUP = Path("/sys/fs/cgroup")
# as below the cgroupRoot of a kubelet
LAYOUT = CgroupLayout(Driver.CGROUPFS, kubepods=f"podlimits-{os.getpid()}/kubepods")
MIB = 1 << 20
CONTAINERS = {"kata": ("main",), "sidecar": ("main", "side")}


def hierarchies() -> list[Path]:
    if cgroup_version(CGROUP) == 2:
        return []
    roots = [(CGROUP / name).resolve() for name in ("cpu", "cpuacct", "memory")]
    return [root for root in dict.fromkeys(roots) if os.access(root / "tasks", os.W_OK)]


@pytest.fixture
def host() -> Iterator[LinuxHost]:
    """A host whose pods have cgroups in the hierarchies of this machine; everything is removed afterwards."""
    if os.geteuid() != 0 or not hierarchies():
        pytest.skip("needs root and writable hierarchies of cgroup v1")
    best_effort = [LAYOUT.pod_directory(KubeQos.BEST_EFFORT, uid) for uid in CONTAINERS]
    directories = (
        LAYOUT.root.partition("/")[0],
        LAYOUT.root,
        *(LAYOUT.qos_directory(qos) for qos in (KubeQos.BURSTABLE, KubeQos.BEST_EFFORT)),
        LAYOUT.pod_directory(KubeQos.BURSTABLE, "hash"),
        *best_effort,
        *(f"{pod}/{name}" for pod, names in zip(best_effort, CONTAINERS.values(), strict=True) for name in names),
    )
    made = [root / directory for root in hierarchies() for directory in directories]
    try:
        for path in made:
            path.mkdir()
        yield LinuxHost(monotonic_ns=time.monotonic_ns, layout=LAYOUT)
    finally:
        for path in reversed(made):
            _remove(path)


def _remove(directory: Path) -> None:
    def is_gone() -> bool:
        with contextlib.suppress(OSError):
            directory.rmdir()
        return not directory.exists()

    until_blocking(is_gone, f"the removal of {directory}", every=0)


def batch(cpu_milli: int, memory_mib: int) -> dict[str, str]:
    return {"kubernetes.io/batch-cpu": str(cpu_milli), "kubernetes.io/batch-memory": f"{memory_mib}Mi"}


def container(name: str, cpu_milli: int, memory_mib: int, **more: Any) -> dict[str, Any]:
    amounts = batch(cpu_milli, memory_mib)
    return {"name": name, "resources": {"requests": amounts, "limits": amounts}, **more}


def listed(uid: str, spec: dict[str, Any], *, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod as the kubelet lists it. The ids of its containers are their names."""
    qos = "Burstable" if annotations else "BestEffort"
    statuses = [{"name": name, "containerID": f"containerd://{name}"} for name in CONTAINERS.get(uid, ())]
    return {
        "metadata": {
            "uid": uid,
            "namespace": "d",
            "name": "etcd" if annotations else uid,
            "labels": {} if annotations else {"koordinator.sh/qosClass": "BE"},
            "annotations": annotations or {},
        },
        "spec": spec,
        "status": {"phase": "Running", "qosClass": qos, "containerStatuses": statuses},
    }


def test_limits_are_those_that_the_pod_needs_and_the_static_pod_is_measured_once(host: LinuxHost) -> None:
    kata = listed("kata", {"containers": [container("main", 500, 64)], "overhead": batch(500, 128)})
    kata["spec"]["runtimeClassName"] = "kata"
    init = [container("side", 250, 32, restartPolicy="Always"), container("init", 100, 512)]
    sidecar = listed("sidecar", {"containers": [container("main", 500, 64)], "initContainers": init})
    etcd = {"containers": [{"name": "etcd"}]}
    mirror = listed("mirror", etcd, annotations={"kubernetes.io/config.mirror": "hash"})
    static = listed("hash", etcd, annotations={"kubernetes.io/config.hash": "hash"})

    monitor = NodeMonitor(collect_interval_ms=1_000)
    agent = NodeAgent("n", host, Measurement(monitor=monitor), interval_ms=1_000)
    agent.desired = view_of(DesiredNode(node="n", slo={}, pods=[pod_on_node("mirror", pod_from_json(mirror))]))
    pods = [agent_pod_from_json(document) for document in (kata, sidecar, static)]
    agent.known = KnownPods(pods={pod.uid: pod for pod in pods}, at_ms=1_000)
    for second in (1, 2):
        done = agent.run_cycle(second * 1_000)
        assert not [problem for problem in done.problems if "not written" in problem or "cgroup of the pods" in problem]

    def values(directory: str) -> tuple[int, int]:
        """Quota in microseconds and memory limit in MiB."""
        below = f"{LAYOUT.qos_directory(KubeQos.BEST_EFFORT)}/pod{directory}"
        quota = host.read(CgroupFile(below, "cpu.cfs_quota_us"))
        return int(quota or 0), int(host.read(CgroupFile(below, "memory.limit_in_bytes")) or 0) // MIB

    assert values("kata") == (100_000, 192)
    assert values("sidecar") == (75_000, 544)
    assert values("sidecar/main") == (50_000, 64)
    assert values("sidecar/side") == (25_000, 32)
    assert values("kata/main")[0] == -1, "the machine in the pod divides its limits itself"
    assert set(monitor.store.objects(Kind.POD_CPU)) == {"kata", "sidecar", "mirror"}
