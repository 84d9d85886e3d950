"""Pods in cgroups of their own on this machine's kernel (cgroup v1), and the agent that protects them; no processes.

The kernel's own rules decide which values hold. Counters of the node come from a folder, so that budgets are exact.
"""

import contextlib
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.kubelet import KnownPods
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import writable_trees
from koord_agent.settings import AgentSettings
from koord_agent.shell.host.executor import CgroupExecutor
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots, cgroup_version
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.shell.node.protect import HostReadings
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.qos import KubeQos
from koordcore.values.topology import CpuPlace, simulated_places
from support.until import until_blocking

CGROUP = Path("/sys/fs/cgroup")
HIERARCHIES = ("cpu", "cpuacct", "memory")
CPUS = 8


class _Machine(LinuxHost):
    """The cgroups are this machine's, the CPUs are simulated."""

    cpus = CPUS

    def cpu_topology(self) -> tuple[CpuPlace, ...]:
        return simulated_places(self.cpus)


class _SmallMachine(_Machine):
    cpus = 2


class RealTree:
    """A tree of pods as a kubelet makes it, and the agent of the node, whose machine is said to have 8 CPUs.

    `problems` are those of the last cycle. `readings` and `executor` are for plans of a test itself.
    """

    def __init__(self, folder: Path, pods: Mapping[str, AgentPod], *, gates: str = "", small: bool = False) -> None:
        self.machine = _SmallMachine if small else _Machine
        self.layout = CgroupLayout(Driver.CGROUPFS, kubepods=f"kubepods-koordtest-{os.getpid()}")
        self.pods = dict(pods)
        self.now_ms = 1_000_000
        self.problems: tuple[str, ...] = ()
        self._made: list[Path] = []
        self._folder = folder
        for qos in KubeQos:
            self._make(self.layout.qos_directory(qos))
        for pod in pods.values():
            self.add(pod)
        (folder / "stat").write_text("cpu 1 1 1 1 1 1 1\n")
        (folder / "meminfo").write_text("MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 2048 kB\n")
        self.restart(gates)

    def restart(self, gates: str = "") -> None:
        """Begin with a new agent, which has not seen the pods before."""
        roots = HostRoots(cgroup=CGROUP, proc=self._folder, sys=self._folder / "sys")
        host = self.machine(monotonic_ns=lambda: self.now_ms * 1_000_000, roots=roots, layout=self.layout, version=1)
        self._monitor = NodeMonitor(collect_interval_ms=1_000)
        measurement = Measurement(monitor=self._monitor)
        settings = AgentSettings.model_validate({"feature_gates": gates})
        self.readings = HostReadings(host, None)
        self.executor = CgroupExecutor(host, trees=writable_trees(self.layout))
        self.agent = NodeAgent("n", host, measurement, interval_ms=1_000, settings=settings)

    def add(self, pod: AgentPod) -> None:
        """Make the cgroups of a pod and of its created containers."""
        self.pods[pod.uid] = pod
        self._make(self.pod(pod.uid))
        for container in pod.containers:
            if container.container_id:
                self._make(self.container(pod.uid, container.container_id))

    def pod(self, uid: str) -> str:
        return self.layout.pod_directory(self.pods[uid].kube_qos, uid)

    def container(self, uid: str, container_id: str = "") -> str:
        """The directory of a container; without id, of the first one."""
        pod = self.pods[uid]
        return self.layout.container_directory(pod.kube_qos, uid, container_id or pod.containers[0].container_id)

    def live(self, seconds: int, slo: dict[str, Any], *, annotations: dict[str, str] | None = None) -> None:
        """Run one cycle a second."""
        amounts = {"cpu": self.machine.cpus * 1_000, "memory": 4_096 << 10}
        desired = DesiredNode(node="n", slo=slo, capacity=amounts, allocatable=amounts, annotations=annotations or {})
        self.agent.desired = view_of(desired)
        for _ in range(seconds):
            self.now_ms += 1_000
            self.agent.known = KnownPods(pods=self.pods, at_ms=self.now_ms)
            self.problems = self.agent.run_cycle(self.now_ms).problems

    def throttle(self, uid: str) -> None:
        """Let the next cycle find that the first container of a pod was throttled in half of its periods."""
        store, identity = self._monitor.store, self.pods[uid].containers[0].container_id
        store.append(Kind.CONTAINER_CPU_THROTTLED, self.now_ms + 1_000, 0.5, identity)

    def read(self, directory: str, name: str) -> int:
        """Value of a file of the cpu hierarchy."""
        return int((CGROUP / "cpu" / directory / name).read_text())

    def write(self, directory: str, name: str, value: int) -> None:
        """Write as the kubelet or the container runtime does.

        Raises:
            OSError: The kernel refuses the value.
        """
        (CGROUP / "cpu" / directory / name).write_text(str(value))

    def quotas(self, uid: str) -> tuple[int, int]:
        """CPU quotas of a pod and of its first container."""
        return self.read(self.pod(uid), "cpu.cfs_quota_us"), self.read(self.container(uid), "cpu.cfs_quota_us")

    def set_quotas(self, uid: str, pod: int, container: int) -> None:
        """As the kubelet and the runtime write them: the pod's first."""
        self.write(self.pod(uid), "cpu.cfs_quota_us", pod)
        self.write(self.container(uid), "cpu.cfs_quota_us", container)

    def _make(self, directory: str) -> None:
        for name in HIERARCHIES:
            path = CGROUP / name / directory
            if not path.exists():
                path.mkdir()
                self._made.append(path)

    def remove(self) -> None:
        for directory in reversed(self._made):
            until_blocking(lambda directory=directory: _is_removed(directory), f"the removal of {directory}", every=0)


def _is_removed(directory: Path) -> bool:
    with contextlib.suppress(OSError):
        directory.rmdir()
    return not directory.exists()


@contextmanager
def real_tree(
    folder: Path, pods: Mapping[str, AgentPod], *, gates: str = "", small: bool = False
) -> Generator[RealTree]:
    """Skips the test without root or without cgroup v1. A `small` machine has 2 CPUs."""
    if os.geteuid() != 0 or cgroup_version(CGROUP) != 1 or not os.access(CGROUP / "cpu" / "tasks", os.W_OK):
        pytest.skip("needs root and a writable file system of cgroup v1")
    tree = RealTree(folder, pods, gates=gates, small=small)
    try:
        yield tree
    finally:
        tree.remove()
