"""Simulated machines with the face of a real one, many of them in one process.

`SimulatedFleet` holds all nodes and pods as columns and advances them together with numpy; `SimulatedHost` is one
node of it behind the `Host` protocol. Pods use cpu and memory by their profile (`koord_agent.domain.simulation`), pods
of the best-effort class obey the quota and CPU list that the agent writes, counters accumulate like a kernel's, so the
same collectors and the same executor run on it. The fleet is not thread-safe: one task advances it and reads it.
"""

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from koordcore.protocol.pod_resources import DEFAULT_CPU_MILLI, DEFAULT_MEMORY_BYTES
from koordcore.protocol.qos import KubeQos
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.topology import CpuPlace
from numpy.typing import NDArray

from koord_agent.domain.cgroup_files import (
    CFS_PERIOD_US,
    from_file_text,
    resource,
    to_file_text,
)
from koord_agent.domain.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.counters import CgroupCounters, CgroupMemory, MemInfo, NodeCounters, Throttling
from koord_agent.domain.plan import CgroupFile
from koord_agent.domain.pods import AgentPod
from koord_agent.domain.simulation import (
    Floats,
    ProfileKind,
    ProfileTable,
    UsageProfile,
    mean_fractions,
    parse_profile,
    share_cpu,
    sum_by_node,
)
from koord_agent.shell.host.host import Capacity, PodDirectory, Vanished, WriteFailed

JIFFY_NS = 10_000_000
NANOSECONDS = 1_000_000_000
PERIOD_SECONDS = CFS_PERIOD_US / 1_000_000
SYSTEM_CPU_FRACTION = 0.01
SYSTEM_MEMORY_FRACTION = 0.02
PAGE_CACHE_FRACTION = 0.1
"""Share of a pod's memory request that it keeps as page cache."""
FIRST_ROWS = 256
UNLIMITED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """A node to simulate."""

    name: str
    cpu_milli: int
    memory_bytes: int
    driver: Driver = Driver.SYSTEMD


class _PodColumns:
    """Pods of all nodes as columns; rows of gone pods are reused. Growing doubles the rows."""

    COLUMNS = (
        "node",
        "is_best_effort",
        "cpu_request",
        "memory_bytes",
        "page_cache_bytes",
        "cpu_ns",
        "kind",
        "level",
        "swing",
        "period_seconds",
        "phase_seconds",
        "duty",
        "seed",
    )

    def __init__(self) -> None:
        self.rows = FIRST_ROWS
        self.node = np.zeros(self.rows, np.int64)
        self.is_best_effort = np.zeros(self.rows, np.bool_)
        self.cpu_request = np.zeros(self.rows, np.float64)
        self.memory_bytes = np.zeros(self.rows, np.int64)
        self.page_cache_bytes = np.zeros(self.rows, np.int64)
        self.cpu_ns = np.zeros(self.rows, np.int64)
        self.kind = np.zeros(self.rows, np.int8)
        self.level = np.zeros(self.rows, np.float64)
        self.swing = np.zeros(self.rows, np.float64)
        self.period_seconds = np.ones(self.rows, np.float64)
        self.phase_seconds = np.zeros(self.rows, np.float64)
        self.duty = np.zeros(self.rows, np.float64)
        self.seed = np.zeros(self.rows, np.uint64)
        self.traces: dict[int, tuple[Floats, Floats]] = {}
        self.free = list(range(self.rows - 1, -1, -1))

    def add(self, node: int, pod: AgentPod, profile: UsageProfile) -> int:
        """Put a pod into a free row; its counters start at zero."""
        if not self.free:
            self._grow()
        row = self.free.pop()
        self.node[row] = node
        memory = pod.memory_request_bytes or DEFAULT_MEMORY_BYTES
        # the cgroup decides whom the best-effort quota holds, not the label
        self.is_best_effort[row] = pod.kube_qos is KubeQos.BEST_EFFORT
        self.cpu_request[row] = (pod.cpu_request_milli or DEFAULT_CPU_MILLI) / 1000
        self.memory_bytes[row] = int(memory * profile.memory_fraction)
        self.page_cache_bytes[row] = int(memory * PAGE_CACHE_FRACTION)
        self.cpu_ns[row] = 0
        self.kind[row] = profile.kind
        self.level[row] = profile.level
        self.swing[row] = profile.swing
        self.period_seconds[row] = profile.period_seconds
        self.phase_seconds[row] = profile.phase_seconds
        self.duty[row] = profile.duty
        self.seed[row] = profile.seed
        if profile.kind is ProfileKind.TRACE:
            points = np.array(profile.points, np.float64)
            self.traces[row] = (points[:, 0], points[:, 1])
        return row

    def remove(self, row: int) -> None:
        """Give a row back; it uses nothing from now on."""
        self.cpu_request[row] = 0.0
        self.memory_bytes[row] = self.page_cache_bytes[row] = 0
        self.kind[row] = ProfileKind.CONSTANT
        self.level[row] = 0.0
        self.traces.pop(row, None)
        self.free.append(row)

    def profiles(self) -> ProfileTable:
        return ProfileTable(
            kind=self.kind,
            level=self.level,
            swing=self.swing,
            period_seconds=self.period_seconds,
            phase_seconds=self.phase_seconds,
            duty=self.duty,
            seed=self.seed,
            traces=self.traces,
        )

    def _grow(self) -> None:
        old = self.rows
        self.rows = old * 2
        for name in self.COLUMNS:
            column: NDArray[np.generic] = getattr(self, name)
            # repeats old values into the new rows; add() sets all of a row, and unused rows must request nothing
            setattr(self, name, np.resize(column, self.rows))
        self.cpu_request[old:] = 0.0
        self.memory_bytes[old:] = self.page_cache_bytes[old:] = 0
        self.free.extend(range(self.rows - 1, old - 1, -1))


@dataclass(slots=True)
class _Snapshot:
    """Counters as Python numbers, made once per tick: reading them one by one from arrays costs ten times as much."""

    at_ns: int
    pod_cpu_ns: list[int]
    pod_memory: list[int]
    pod_page_cache: list[int]
    node_busy_ns: list[int]
    node_memory: list[int]
    node_page_cache: list[int]
    be_cpu_ns: list[int]
    be_periods: list[int]
    be_throttled: list[int]


class SimulatedFleet:
    """All simulated nodes of a process.

    nodes           names must differ
    start_seconds   simulated time at which the machines boot
    """

    def __init__(self, nodes: Iterable[SimulatedNode], *, start_seconds: float = 0.0) -> None:
        self.nodes = tuple(nodes)
        self._index = {node.name: index for index, node in enumerate(self.nodes)}
        if len(self._index) != len(self.nodes):
            raise ValueError("simulated nodes: names must differ")
        count = len(self.nodes)
        self._now_seconds = start_seconds
        self._capacity = np.array([node.cpu_milli / 1000 for node in self.nodes], np.float64)
        self._memory = np.array([node.memory_bytes for node in self.nodes], np.int64)
        self._system_memory = (self._memory * SYSTEM_MEMORY_FRACTION).astype(np.int64)
        self._busy_ns = np.zeros(count, np.int64)
        self._be_ns = np.zeros(count, np.int64)
        self._be_periods = np.zeros(count, np.float64)
        self._be_throttled = np.zeros(count, np.float64)
        self.be_limit_cores = np.full(count, np.inf)
        self.pods = _PodColumns()
        self._snapshot: _Snapshot | None = None
        self._hosts = [SimulatedHost(self, index) for index in range(count)]

    @property
    def now_seconds(self) -> float:
        """Simulated time that the counters have reached."""
        return self._now_seconds

    def host(self, node: str) -> "SimulatedHost":
        """The machine of one node. Raises KeyError for a name that is not simulated."""
        return self._hosts[self._index[node]]

    def advance(self, now_seconds: float) -> None:
        """Let all machines run until the given simulated time; a time that is not later changes nothing.

        Quotas written since the last call hold for the whole interval.
        """
        length = now_seconds - self._now_seconds
        if length <= 0:
            return
        pods, nodes = self.pods, len(self.nodes)
        wanted = mean_fractions(pods.profiles(), self._now_seconds, now_seconds) * pods.cpu_request
        system = self._capacity * SYSTEM_CPU_FRACTION
        shares = share_cpu(
            wanted,
            pods.node,
            pods.is_best_effort,
            capacity=self._capacity,
            system=system,
            be_limit=self.be_limit_cores,
        )
        used_ns = np.floor(shares.used * (length * NANOSECONDS))
        be_ns = sum_by_node(np.where(pods.is_best_effort, used_ns, 0.0), pods.node, nodes)
        all_ns = sum_by_node(used_ns, pods.node, nodes)
        pods.cpu_ns += used_ns.astype(np.int64)
        self._be_ns += be_ns.astype(np.int64)
        self._busy_ns += (all_ns + np.floor(system * (length * NANOSECONDS))).astype(np.int64)
        periods = length / PERIOD_SECONDS
        limited = np.isfinite(self.be_limit_cores)
        self._be_periods += np.where(limited, periods, 0.0)
        self._be_throttled += np.where(shares.be_throttled, periods, 0.0)
        self._now_seconds = now_seconds
        self._snapshot = None

    def changed(self) -> None:
        """Pods came or went: what was read before is out of date."""
        self._snapshot = None

    def snapshot(self) -> _Snapshot:
        """The counters of this moment."""
        if self._snapshot is None:
            pods, nodes = self.pods, len(self.nodes)
            memory = sum_by_node(pods.memory_bytes.astype(np.float64), pods.node, nodes).astype(np.int64)
            cache = sum_by_node(pods.page_cache_bytes.astype(np.float64), pods.node, nodes).astype(np.int64)
            used = np.minimum(memory + self._system_memory, self._memory)
            self._snapshot = _Snapshot(
                at_ns=int(self._now_seconds * NANOSECONDS),
                pod_cpu_ns=pods.cpu_ns.tolist(),
                pod_memory=pods.memory_bytes.tolist(),
                pod_page_cache=pods.page_cache_bytes.tolist(),
                node_busy_ns=self._busy_ns.tolist(),
                node_memory=used.tolist(),
                node_page_cache=np.minimum(cache, self._memory - used).tolist(),
                be_cpu_ns=self._be_ns.tolist(),
                be_periods=self._be_periods.astype(np.int64).tolist(),
                be_throttled=self._be_throttled.astype(np.int64).tolist(),
            )
        return self._snapshot


@dataclass(slots=True)
class _SimulatedPod:
    pod: AgentPod
    row: int
    directory: str
    knobs: dict[str, str] = field(default_factory=dict[str, str])


class SimulatedHost:
    """One simulated machine, see `Host`; cgroup v1, so texts are what a v1 kernel writes.

    `start_pod` and `stop_pod` stand for the kubelet and the container runtime.
    """

    def __init__(self, fleet: SimulatedFleet, index: int) -> None:
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
        self._class_knobs: dict[str, dict[str, str]] = {
            self._layout.qos_directory(qos): {} for qos in (KubeQos.GUARANTEED, KubeQos.BURSTABLE, KubeQos.BEST_EFFORT)
        }

    @property
    def layout(self) -> CgroupLayout:
        return self._layout

    @property
    def cgroup_version(self) -> int:
        return 1

    def capacity(self) -> Capacity:
        return Capacity(cpu_milli=self._node.cpu_milli, memory_bytes=self._node.memory_bytes)

    def start_pod(self, pod: AgentPod) -> None:
        """Run a pod by its usage profile; a pod that runs already stays as it is.

        raises    InvalidInput for a malformed profile annotation
        """
        if pod.uid in self._pods:
            return
        profile = parse_profile(pod.usage_profile, pod.uid, is_best_effort=pod.is_best_effort)
        directory = self._layout.pod_directory(pod.kube_qos, pod.uid)
        row = self._fleet.pods.add(self._index, pod, profile)
        self._pods[pod.uid] = self._by_directory[directory] = _SimulatedPod(pod=pod, row=row, directory=directory)
        self._fleet.changed()

    def stop_pod(self, uid: str) -> bool:
        """End a pod and remove its cgroup; False if it does not run here."""
        gone = self._pods.pop(uid, None)
        if gone is None:
            return False
        del self._by_directory[gone.directory]
        self._fleet.pods.remove(gone.row)
        self._fleet.changed()
        return True

    @property
    def running_pods(self) -> tuple[str, ...]:
        """Uids of the pods that run here, sorted."""
        return tuple(sorted(self._pods))

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

    def cgroup_counters(self, directory: str) -> CgroupCounters | None:
        now = self._fleet.snapshot()
        pod = self._by_directory.get(directory)
        if pod is not None:
            memory, cache = now.pod_memory[pod.row], now.pod_page_cache[pod.row]
            return CgroupCounters(
                at_ns=now.at_ns,
                cpu_usage_ns=now.pod_cpu_ns[pod.row],
                memory=CgroupMemory(used_bytes=memory, with_page_cache_bytes=memory + cache),
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

    def cpu_topology(self) -> tuple[CpuPlace, ...]:
        """Cores of two threads each, all on one socket (cpu 2k and 2k+1 share core k)."""
        return tuple(CpuPlace(cpu=cpu, core=cpu // 2, socket=0, node=0) for cpu in range(self._cpu_count))

    def pod_directories(self) -> tuple[PodDirectory, ...]:
        found = [
            PodDirectory(
                qos=pod.pod.kube_qos,
                pod_id=self._layout.parse_pod(posixpath.basename(pod.directory)) or "",
                directory=pod.directory,
            )
            for pod in self._by_directory.values()
        ]
        return tuple(sorted(found, key=lambda p: p.directory))

    def tree(self, directory: str) -> tuple[str, ...]:
        below = sorted(d for d in (*self._class_knobs, *self._by_directory) if d.startswith(directory + "/"))
        if directory not in self._class_knobs and directory not in self._by_directory:
            return ()
        return (directory, *sorted(below, key=lambda d: (d.count("/"), d)))

    def read(self, file: CgroupFile) -> str | None:
        knobs = self._knobs(file.directory)
        if knobs is None:
            return None
        if file.resource in knobs:
            return knobs[file.resource] + "\n"
        match file.resource:
            case "cpu.cfs_quota_us":
                return "-1\n"
            case "cpu.cfs_period_us":
                return f"{CFS_PERIOD_US}\n"
            case "cpuset.cpus":
                return self._all_cpus + "\n"
            case _:
                return None

    def write(self, file: CgroupFile, value: str) -> None:
        text = to_file_text(file.resource, value, 1)
        knobs = self._knobs(file.directory)
        if knobs is None or resource(file.resource).hierarchy not in ("cpu", "cpuset"):
            raise Vanished(f"{file.key}: {value!r} not written: no such file")
        if file.resource == "cpu.cfs_quota_us" and text != str(UNLIMITED) and int(text) < 1000:
            raise WriteFailed(f"{file.key}: {value!r} not written: Invalid argument")
        if file.resource == "cpuset.cpus" and not parse_cpuset(text) <= parse_cpuset(self._all_cpus):
            raise WriteFailed(f"{file.key}: {value!r} not written: Invalid argument")
        knobs[file.resource] = text
        if file.directory == self._be_root:
            self._fleet.be_limit_cores[self._index] = self._be_limit_cores(knobs)

    def _be_limit_cores(self, knobs: dict[str, str]) -> float:
        """What quota and CPU list of the best-effort root leave to it, cores; infinite if neither limits."""
        quota = int(from_file_text("cpu.cfs_quota_us", knobs.get("cpu.cfs_quota_us", str(UNLIMITED)), 1))
        period = int(from_file_text("cpu.cfs_period_us", knobs.get("cpu.cfs_period_us", str(CFS_PERIOD_US)), 1))
        limit = np.inf if quota == UNLIMITED else quota / period
        if "cpuset.cpus" in knobs:
            limit = min(limit, float(len(parse_cpuset(knobs["cpuset.cpus"]))))
        return float(limit)

    def _knobs(self, directory: str) -> dict[str, str] | None:
        if directory in self._class_knobs:
            return self._class_knobs[directory]
        pod = self._by_directory.get(directory)
        return pod.knobs if pod is not None else None
