"""A simulated machine behind the `Host` protocol. It has cgroup v1, so its files have the format of v1.

`machines` holds the data of all simulated machines as columns. `start_pod` and `stop_pod` replace kubelet and container
runtime.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from koordcore.protocol.pod_resources import MEMORY
from koordcore.protocol.qos import KubeQos
from koordcore.protocol.resource_names import BATCH_MEMORY
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.topology import CpuPlace, simulated_places

from koord_agent.domain.devices.device import DeviceReport
from koord_agent.domain.kernel import cgroup_files
from koord_agent.domain.kernel.cfs_bandwidth import CFS_PERIOD_US
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout
from koord_agent.domain.kernel.counters import (
    CgroupCounters,
    CgroupMemory,
    DiskCounters,
    MemInfo,
    NodeCounters,
    Pressure,
    SchedCounters,
    Stall,
    TcpCounters,
    Throttling,
)
from koord_agent.domain.kernel.cpu_weight import WeightLine
from koord_agent.domain.kernel.features import Feature, Features, features_of
from koord_agent.domain.metrics.cpi import Counted
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.reporting.oom_kills import OOM_CONTROL
from koord_agent.domain.strategies.load_rise import CpuTimes
from koord_agent.shell.host.host import Capacity, CycleSource, Vanished, WriteFailed
from koord_agent.simulator.devices import SimulatedDevices
from koord_agent.simulator.load import CYCLES_PER_SECOND, parse_profile
from koord_agent.simulator.machines import SimulatedMachines
from koord_agent.simulator.nodes import SimulatedNode

FIRST_RESTART_SECONDS, MOST_RESTART_SECONDS = 10.0, 300.0
"""Time for which the kubelet waits before it restarts a container that has ended; it doubles each time."""
JIFFY_NS = 10_000_000
UNLIMITED = -1
MIN_QUOTA_US = 1_000
HIERARCHIES = frozenset({"cpu", "cpuset", "memory"})
"""Hierarchies with writable files. Files of cpu and cpuset have an effect; those of memory are only stored."""
FEATURES = (
    Feature.NODE_COUNTERS,
    Feature.CGROUP_COUNTERS,
    Feature.CPU_TOPOLOGY,
    Feature.PSI,
    Feature.CPI,
    Feature.SCHED_DELAY,
)
_DEFAULTS: Mapping[str, str] = {
    "cpu.cfs_quota_us": "-1",
    "cpu.cfs_period_us": str(CFS_PERIOD_US),
    "cpu.cfs_burst_us": "0",
    "cpu.bvt_warp_ns": "0",
    "cpu.idle": "0",
    "cpu.shares": "1024",
    "memory.limit_in_bytes": "9223372036854771712",
    "memory.min": "0",
    "memory.low": "0",
    "memory.high": str(cgroup_files.INT64_MAX),
    "memory.wmark_ratio": "0",
    "memory.wmark_scale_factor": "50",
    "memory.wmark_min_adj": "0",
    "memory.priority": "0",
    "memory.use_priority_oom": "0",
    "memory.oom.group": "0",
}
"""Texts of files that were never written."""


def starts_after(seconds: float) -> int:
    """How often a container has started that ends at once, this many seconds after its first start."""
    starts, waits = 1, FIRST_RESTART_SECONDS
    while waits < MOST_RESTART_SECONDS and seconds >= waits:
        starts, seconds, waits = starts + 1, seconds - waits, waits * 2
    return starts + int(seconds // MOST_RESTART_SECONDS) if waits >= MOST_RESTART_SECONDS else starts


@dataclass(slots=True)
class _SimulatedPod:
    pod: AgentPod
    row: int
    directory: str
    oom_since: float | None  # Simulated time from which its memory exceeds its limit, in seconds; None if it never does
    knobs: dict[str, str] = field(default_factory=dict[str, str])


class _CycleCounters:
    def __init__(self, fleet: SimulatedMachines, row: int) -> None:
        self._fleet, self._row = fleet, row
        self._cycles, self._instructions = self._now()

    def _now(self) -> tuple[float, float]:
        pods = self._fleet.pods
        return float(pods.cpu_ns[self._row]) / 1e9 * CYCLES_PER_SECOND, float(pods.instructions[self._row])

    def read(self) -> Counted:
        cycles, instructions = self._now()
        return Counted(cycles=cycles - self._cycles, instructions=instructions - self._instructions)

    def close(self) -> None:
        """Simulated counters hold no file descriptors."""


class SimulatedHost:
    """Implements `Host`. Not simulated are the memory of NUMA nodes, cold pages, disks, networks and resctrl."""

    def __init__(self, fleet: SimulatedMachines, index: int) -> None:
        self._fleet = fleet
        self._index = index
        self._node = fleet.nodes[index]
        self._layout = CgroupLayout(self._node.driver)
        self._be_root = self._layout.qos_directory(KubeQos.BEST_EFFORT)
        self._pods: dict[str, _SimulatedPod] = {}
        self._by_directory: dict[str, _SimulatedPod] = {}
        cpus = max(-(-self._node.cpu_milli // 1000), 1)
        self._all_cpus = format_cpuset(range(cpus))
        self._cpu_count = cpus
        self.hardware = SimulatedDevices(self._node, max(place.node for place in self.cpu_topology()) + 1)
        self._class_knobs: dict[str, dict[str, str]] = {
            self._layout.qos_directory(qos): {} for qos in (KubeQos.GUARANTEED, KubeQos.BURSTABLE, KubeQos.BEST_EFFORT)
        }

    roots = None

    @property
    def layout(self) -> CgroupLayout:
        return self._layout

    @property
    def cgroup_version(self) -> int:
        return 1

    def features(self) -> Features:
        return features_of(FEATURES, file="simulated", why="not simulated")

    def capacity(self) -> Capacity:
        return Capacity(cpu_milli=self._node.cpu_milli, memory_bytes=self._node.memory_bytes)

    def start_pod(self, pod: AgentPod) -> None:
        """The pod has its usage profile, and CPU shares and quota of its request and limit. No-op if it runs.

        Raises:
            InvalidInput: The profile annotation is invalid.
        """
        if pod.uid in self._pods:
            return
        profile = parse_profile(pod.usage_profile, pod.uid, is_best_effort=pod.is_best_effort)
        directory = self._layout.pod_directory(pod.kube_qos, pod.uid)
        row = self._fleet.pods.add(self._index, pod, profile)
        limit_bytes = pod.limits.get(BATCH_MEMORY) or pod.limits.get(MEMORY, 0)
        oom_since = self._fleet.now_seconds if self._fleet.pods.limit_memory(row, limit_bytes) else None
        started = _SimulatedPod(pod=pod, row=row, directory=directory, oom_since=oom_since)
        self._pods[pod.uid] = self._by_directory[directory] = started
        started.knobs["cpu.shares"] = str(cgroup_files.milli_to_shares(pod.cpu_request_milli))
        limit_milli = pod.limits.get("cpu", 0)
        if limit_milli:
            started.knobs["cpu.cfs_quota_us"] = str(cgroup_files.milli_to_quota_us(limit_milli))
            self._fleet.pods.cpu_limit[row] = self._limit_cores(started.knobs)
        self._fleet.changed()

    def stop_pod(self, uid: str) -> bool:
        """False if the pod does not run on this machine."""
        gone = self._pods.pop(uid, None)
        if gone is None:
            return False
        del self._by_directory[gone.directory]
        self._fleet.pods.remove(gone.row)
        self._fleet.changed()
        return True

    @property
    def running_pods(self) -> tuple[str, ...]:
        """Sorted UIDs."""
        return tuple(sorted(self._pods))

    @property
    def slowdown(self) -> float:
        """Factor by which requests of latency-sensitive pods take longer than on an idle node."""
        return float(self._fleet.slowdown[self._index])

    def use_weights(self, line: WeightLine) -> None:
        """No-op: a simulated machine has shares."""

    def node_counters(self) -> NodeCounters | None:
        now = self._fleet.snapshot()
        total, used = self._node.memory_bytes, now.node_memory[self._index]
        available = total - used
        return NodeCounters(
            at_ns=now.at_ns,
            busy_ticks=now.node_busy_ns[self._index] // JIFFY_NS,
            jiffy_ns=JIFFY_NS,
            memory=MemInfo(
                total_bytes=total,
                available_bytes=available,
                free_bytes=available - now.node_page_cache[self._index],
            ),
        )

    def cgroup_counters(self, directory: str, above: str = "") -> CgroupCounters | None:
        """Of a running pod, or of the best-effort class without memory counters; None for other directories."""
        now = self._fleet.snapshot()
        pod = self._by_directory.get(directory)
        if pod is not None:
            memory, cache = now.pod_memory[pod.row], now.pod_page_cache[pod.row]
            periods = now.pod_periods[pod.row]
            return CgroupCounters(
                at_ns=now.at_ns,
                cpu_usage_ns=now.pod_cpu_ns[pod.row],
                memory=CgroupMemory(used_bytes=memory, with_page_cache_bytes=memory + cache),
                throttling=Throttling(nr_periods=periods, nr_throttled=now.pod_throttled[pod.row]) if periods else None,
            )
        if directory == self._be_root:
            return CgroupCounters(
                at_ns=now.at_ns,
                cpu_usage_ns=now.be_cpu_ns[self._index],
                memory=None,
                throttling=Throttling(
                    nr_periods=now.be_periods[self._index], nr_throttled=now.be_throttled[self._index]
                ),
            )
        return None

    def cpu_counters(self, directory: str) -> CgroupCounters | None:
        return self.cgroup_counters(directory)

    def cpu_times(self) -> CpuTimes | None:
        return None

    def numa_memory(self) -> Mapping[int, int]:
        return {}

    def numa_pages(self, directory: str) -> Mapping[int, int] | None:
        return None

    def pressure(self, directory: str) -> Mapping[str, Pressure] | None:
        pod = self._by_directory.get(directory)
        if pod is None and directory not in self._class_knobs:
            return None
        best_effort = directory == self._be_root or (pod is not None and pod.pod.kube_qos is KubeQos.BEST_EFFORT)
        averages = self._fleet.be_pressure if best_effort else self._fleet.ls_pressure
        stalled_us = self._fleet.be_stalled_us if best_effort else self._fleet.ls_stalled_us
        avg10, avg60, avg300 = (round(float(share) * 100, 2) for share in averages[:, self._index])
        some = Stall(avg10=avg10, avg60=avg60, avg300=avg300, total_us=int(stalled_us[self._index]))
        idle = Pressure(some=Stall(), full=Stall(), full_supported=True)
        return {"cpu": Pressure(some=some, full=Stall(), full_supported=True), "mem": idle, "io": idle}

    def cold_page_bytes(self, directory: str) -> int | None:
        return None

    def sched_counters(self, directory: str) -> SchedCounters | None:
        pod = self._by_directory.get(directory)
        if pod is None:
            return None
        pods = self._fleet.pods
        return SchedCounters(wait_ns=int(pods.wait_ns[pod.row]), slices=int(pods.slices[pod.row]))

    def disk_counters(self, directory: str) -> Mapping[str, DiskCounters] | None:
        return None

    def tcp_counters(self, directory: str) -> TcpCounters | None:
        return None

    def open_cycle_counters(self, directory: str) -> CycleSource | None:
        pod = self._by_directory.get(directory)
        return None if pod is None else _CycleCounters(self._fleet, pod.row)

    def resctrl_counters(self) -> Mapping[str, Mapping[int, Mapping[str, int]]]:
        return {}

    def cpu_topology(self) -> tuple[CpuPlace, ...]:
        """Cores with two threads each, on two sockets if there are enough cores."""
        return simulated_places(self._cpu_count)

    def devices(self) -> DeviceReport:
        """The same object if nothing changed."""
        return self.hardware.report()

    def tree(self, directory: str) -> tuple[str, ...]:
        below = sorted(d for d in (*self._class_knobs, *self._by_directory) if d.startswith(directory + "/"))
        if directory not in self._class_knobs and directory not in self._by_directory:
            return ()
        return (directory, *sorted(below, key=lambda d: (d.count("/"), d)))

    def cpu_lists(self, directory: str) -> Mapping[str, str]:
        texts = ((below, self.read(CgroupFile(below, "cpuset.cpus"))) for below in self.tree(directory))
        return {below: text for below, text in texts if text is not None}

    def read(self, file: CgroupFile) -> str | None:
        knobs = self._knobs(file.directory)
        if knobs is None:
            return None
        text = knobs.get(file.resource, _DEFAULTS.get(file.resource))
        if text is None and file.resource == "cpuset.cpus":
            text = self._all_cpus
        if file.resource == OOM_CONTROL:
            return self._oom_control(file.directory)
        return None if text is None else text + "\n"

    def write(self, file: CgroupFile, value: str) -> None:
        text = cgroup_files.to_file_text(file.resource, value, 1)
        knobs = self._knobs(file.directory)
        if knobs is None or not self._is_knob(file.resource):
            raise Vanished(f"{file.key}: {value!r} not written: no such file")
        if file.resource == "cpu.cfs_quota_us" and text != str(UNLIMITED) and int(text) < MIN_QUOTA_US:
            raise WriteFailed(f"{file.key}: {value!r} not written: Invalid argument")
        if file.resource == "cpuset.cpus" and not parse_cpuset(text) <= parse_cpuset(self._all_cpus):
            raise WriteFailed(f"{file.key}: {value!r} not written: Invalid argument")
        knobs[file.resource] = str(cgroup_files.INT64_MAX) if text == "max" else text
        pod = self._by_directory.get(file.directory)
        if pod is not None:
            self._fleet.pods.cpu_limit[pod.row] = self._limit_cores(knobs)
        elif file.directory == self._be_root:
            self._fleet.be_limit_cores[self._index] = self._limit_cores(knobs)

    def _oom_control(self, directory: str) -> str:
        """A pod that needs more memory than its limit is killed whenever the kubelet has restarted its container."""
        pod = self._by_directory.get(directory)
        since = None if pod is None else pod.oom_since
        kills = 0 if since is None else starts_after(self._fleet.now_seconds - since)
        return f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"

    def _is_knob(self, name: str) -> bool:
        try:
            return cgroup_files.resource(name).hierarchy in HIERARCHIES and (name in _DEFAULTS or name == "cpuset.cpus")
        except cgroup_files.Unsupported:
            return False

    def _limit_cores(self, knobs: dict[str, str]) -> float:
        """Quota and CPU list of a directory; infinite without a limit."""
        quota = int(cgroup_files.from_file_text("cpu.cfs_quota_us", knobs.get("cpu.cfs_quota_us", str(UNLIMITED)), 1))
        period = int(
            cgroup_files.from_file_text("cpu.cfs_period_us", knobs.get("cpu.cfs_period_us", str(CFS_PERIOD_US)), 1)
        )
        limit = np.inf if quota == UNLIMITED else quota / period
        if "cpuset.cpus" in knobs:
            limit = min(limit, float(len(parse_cpuset(knobs["cpuset.cpus"]))))
        return float(limit)

    def _knobs(self, directory: str) -> dict[str, str] | None:
        if directory in self._class_knobs:
            return self._class_knobs[directory]
        pod = self._by_directory.get(directory)
        return pod.knobs if pod is not None else None


class SimulatedFleet(SimulatedMachines):
    """All simulated nodes of a process, each with a machine behind the protocol `Host`."""

    def __init__(self, nodes: Iterable[SimulatedNode], *, start_seconds: float = 0.0) -> None:
        super().__init__(nodes, start_seconds=start_seconds)
        self._hosts = [SimulatedHost(self, index) for index in range(len(self.nodes))]

    def host(self, node: str) -> SimulatedHost:
        """Raises KeyError: The node is not simulated."""
        return self._hosts[self.index_of(node)]
