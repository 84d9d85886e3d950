"""A real Linux machine: procfs, sysfs, cgroup v1 and v2, both cgroup drivers.

If a directory or file vanishes or is invalid, methods return None or raise `Vanished`. `linux_features` probes the
features of the machine.

Source: agent spec, 6.9, 18 (disk-io, network).
"""

import errno
import os
import posixpath
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from typing import Final

from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput
from koordcore.values.topology import CpuPlace

from koord_agent.domain.kernel import counters as kernel_counters
from koord_agent.domain.kernel import counters as pressure
from koord_agent.domain.kernel.cfs_bandwidth import CFS_PERIOD_US, PER_PERIOD, in_period, with_period
from koord_agent.domain.kernel.cgroup_files import (
    INT64_MAX,
    Unsupported,
    file_path,
    from_file_text,
    parse_number,
    to_file_text,
)
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout
from koord_agent.domain.kernel.counters import (
    DiskCounters,
    MalformedCounter,
    Pressure,
    SchedCounters,
    TcpCounters,
    parse_devices,
    parse_diskstats,
    parse_schedstat,
    parse_tcp,
)
from koord_agent.domain.kernel.cpu_weight import WeightLine
from koord_agent.domain.kernel.cpus import CpuReading
from koord_agent.domain.kernel.features import Features
from koord_agent.domain.kernel.numa_usage import cold_page_bytes
from koord_agent.domain.kernel.resctrl_files import GROUPS, MONITOR_FILES, MONITOR_PREFIX, parse_monitoring
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.strategies.load_rise import CpuTimes
from koord_agent.shell.host.cpu_lists import CpuLists
from koord_agent.shell.host.host import Capacity, CycleSource, TooManyOpenFiles, Vanished, WriteFailed
from koord_agent.shell.host.kept_files import CounterFiles, CpuClocks, KeptByKey
from koord_agent.shell.host.kernel_files import read_kernel_file
from koord_agent.shell.host.linux_features import find_features
from koord_agent.shell.host.numa import NumaReader, read_cpus
from koord_agent.shell.host.perf import CountersAbsent, CycleCounters, open_cgroup_counters
from koord_agent.shell.host.probe import HostRoots, cgroup_layout, cgroup_version, jiffy_ns

GONE: Final = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)
PRESSURE_HIERARCHIES: Final = {"cpu": "cpu", "mem": "memory", "io": "blkio"}
"""Resource -> hierarchy of its PSI file on v1 kernels that do not have all files in cpuacct, such as TencentOS."""
KIDLED_SETTINGS: Final = {"scan_period_in_seconds": "5", "use_hierarchy": "1"}
_CPU_LIST: Final = "cpuset.cpus"
_ANY_PERIOD: Final = ("-1", "0")
"""Quotas and burst buffers that mean the same in a period of any length."""


def disk_counters(proc: Path, devices_file: str) -> Mapping[str, DiskCounters] | None:
    """MAJ:MIN -> counters of the whole device, for the devices that a cgroup has used; None if unknown.

    `devices_file` is its `io.stat` or `blkio.throttle.io_serviced_recursive`.
    """
    used, stats = read_kernel_file(devices_file), read_kernel_file(f"{proc}/diskstats")
    if used is None or stats is None:
        return None
    devices = parse_devices(used)
    return {device: counters for device, counters in parse_diskstats(stats).items() if device in devices}


def tcp_counters(proc: Path, processes: Iterable[str]) -> TcpCounters | None:
    """As the first living process of the pod sees its network.

    None if the pod uses the network of the machine, has no living process, or if the counters are unreadable.
    """
    host = _network(proc, "1")
    for process in processes:
        network = _network(proc, process)
        if network is None:
            continue
        if network == host:
            return None
        text = read_kernel_file(f"{proc}/{process}/net/snmp")
        try:
            return parse_tcp(text) if text is not None else None
        except MalformedCounter:
            return None
    return None


def _network(proc: Path, process: str) -> str | None:
    try:
        return os.readlink(f"{proc}/{process}/ns/net")  # noqa: PTH115 - its target is a name, not a path
    except OSError:
        return None


def read_resctrl_counters(root: Path) -> Mapping[str, Mapping[int, Mapping[str, int]]]:
    """Group -> cache id -> file name -> counter. Groups without counters are left out."""
    found: dict[str, Mapping[int, Mapping[str, int]]] = {}
    for group in GROUPS:
        data = root / group / "mon_data"
        try:
            directories = sorted(entry.name for entry in data.iterdir() if entry.name.startswith(MONITOR_PREFIX))
        except OSError:
            continue
        texts = {
            directory: {
                name: text
                for name in MONITOR_FILES
                if (text := read_kernel_file(f"{data}/{directory}/{name}")) is not None
            }
            for directory in directories
        }
        if counters := parse_monitoring(texts):
            found[group] = counters
    return found


class LinuxHost:
    """This machine behind the protocol `Host`.

    Directory names, cgroup version and clock tick are detected unless they are given.

    Args:
        monotonic_ns: Returns a monotonic time in nanoseconds, the time of readings.
        roots: Paths of the file systems; None: the usual ones.
        version: Version of the cgroup interface: 1 or 2.
    """

    def __init__(
        self,
        *,
        monotonic_ns: Callable[[], int],
        roots: HostRoots | None = None,
        layout: CgroupLayout | None = None,
        version: int | None = None,
        jiffy: int | None = None,
    ) -> None:
        self._roots = roots or HostRoots()
        self._monotonic_ns = monotonic_ns
        self._version = version or cgroup_version(self._roots.cgroup)
        self._layout = layout or cgroup_layout(
            self._roots.cgroup,
            self._version,
            self._roots.proc,
            self._roots.kubelet_cgroup_root,
            self._roots.kubelet,
        )
        self._jiffy_ns = jiffy or jiffy_ns()
        self._numa = NumaReader(self._roots.sys)
        self._stat, self._meminfo = str(self._roots.proc / "stat"), str(self._roots.proc / "meminfo")
        self._counters = KeptByKey(self._counter_files, monotonic_ns)
        self._cpu_lists = CpuLists(self._cpu_list, partial(self._children, "cpu"), self._links, monotonic_ns)
        best_effort = self._layout.qos_directory(KubeQos.BEST_EFFORT)
        self._clocks = CpuClocks(
            self._path(CgroupFile("", "cpuacct.usage"), reading=True),
            self._path(CgroupFile(best_effort, "cpuacct.usage"), reading=True),
            monotonic_ns,
        )
        self._counting: list[CycleCounters] = []
        self._weights = WeightLine.QUADRATIC
        self._topology = CpuReading((), ())

    @property
    def layout(self) -> CgroupLayout:
        return self._layout

    @property
    def cgroup_version(self) -> int:
        return self._version

    @property
    def roots(self) -> HostRoots:
        return self._roots

    @property
    def numa(self) -> NumaReader:
        return self._numa

    def use_weights(self, line: WeightLine) -> None:
        self._weights = line

    def features(self) -> Features:
        return find_features(self._roots, self._version, self._layout)

    def capacity(self) -> Capacity:
        cpus = kernel_counters.parse_busy_ticks_per_cpu(read_kernel_file(self._stat) or "")
        memory = kernel_counters.parse_node_memory(read_kernel_file(self._meminfo) or "")
        return Capacity(cpu_milli=len(cpus) * 1000, memory_bytes=memory.total_bytes)

    def node_counters(self) -> kernel_counters.NodeCounters | None:
        at_ns = self._monotonic_ns()
        stat, meminfo = read_kernel_file(self._stat), read_kernel_file(self._meminfo)
        if stat is None or meminfo is None:
            return None
        try:
            ticks, memory = kernel_counters.parse_busy_ticks(stat), kernel_counters.parse_node_memory(meminfo)
        except kernel_counters.MalformedCounter:
            return None
        return kernel_counters.NodeCounters(
            at_ns=at_ns,
            busy_ticks=ticks,
            jiffy_ns=self._jiffy_ns,
            memory=memory,
            busy_ticks_by_cpu=kernel_counters.parse_busy_ticks_per_cpu(stat) if self._numa.nodes else {},
            cpus=stat.count("\ncpu"),
        )

    def cgroup_counters(self, directory: str, above: str = "") -> kernel_counters.CgroupCounters | None:
        get = self._counters.get
        return get(directory).read(self._monotonic_ns(), get(above) if above else None)

    def cpu_counters(self, directory: str) -> kernel_counters.CgroupCounters | None:
        used_ns = self._counters.get(directory).cpu_time_ns()
        return None if used_ns is None else kernel_counters.CgroupCounters(self._monotonic_ns(), used_ns, None)

    def cpu_times(self) -> CpuTimes | None:
        return self._clocks.read()

    def numa_memory(self) -> Mapping[int, int]:
        return self._numa.memory_used()

    def numa_pages(self, directory: str) -> Mapping[int, int] | None:
        return self._counters.get(directory).numa_pages()

    def pressure(self, directory: str) -> Mapping[str, Pressure] | None:
        found: dict[str, Pressure] = {}
        for resource, file in pressure.RESOURCES.items():
            text = self.read(CgroupFile(directory, file))
            if text is None and self._version == 1:
                text = read_kernel_file(f"{self._hierarchy(PRESSURE_HIERARCHIES[resource], directory)}/{file}")
            try:
                if text is None:
                    return None
                found[resource] = pressure.parse_pressure(text)
            except kernel_counters.MalformedCounter:
                return None
        return found

    def cold_page_bytes(self, directory: str) -> int | None:
        text = self.read(CgroupFile(directory, "memory.idle_page_stats"))
        try:
            return cold_page_bytes(text) if text is not None else None
        except kernel_counters.MalformedCounter:
            return None

    def start_cold_page_scans(self) -> bool:
        """Start the kernel's scan for idle pages (kidled; agent spec, 6.10). Return False if it is not available."""
        folder = self._roots.sys / "kernel/mm/kidled"
        try:
            for name, value in KIDLED_SETTINGS.items():
                descriptor = os.open(folder / name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
                try:
                    os.write(descriptor, value.encode())
                finally:
                    os.close(descriptor)
        except OSError:
            return False
        return True

    def sched_counters(self, directory: str) -> SchedCounters | None:
        wait_ns = slices = 0
        threads = 0
        for below in self.tree(directory):
            for thread in (self.read(CgroupFile(below, "tasks")) or "").split():
                text = read_kernel_file(f"{self._roots.proc}/{thread}/schedstat")
                try:
                    counters = parse_schedstat(text) if text is not None else None
                except kernel_counters.MalformedCounter:
                    continue
                if counters is not None:
                    threads += 1
                    wait_ns += counters.wait_ns
                    slices += counters.slices
        return SchedCounters(wait_ns=wait_ns, slices=slices) if threads else None

    def disk_counters(self, directory: str) -> Mapping[str, DiskCounters] | None:
        file = "io.stat" if self._version == 2 else "blkio.throttle.io_serviced_recursive"
        return disk_counters(self._roots.proc, f"{self._hierarchy('blkio', directory)}/{file}")

    def tcp_counters(self, directory: str) -> TcpCounters | None:
        processes = (
            process
            for below in self.tree(directory)
            for process in (self.read(CgroupFile(below, "cgroup.procs")) or "").split()
        )
        return tcp_counters(self._roots.proc, processes)

    def open_cycle_counters(self, directory: str) -> CycleSource | None:
        cpus = sorted(kernel_counters.parse_busy_ticks_per_cpu(read_kernel_file(self._stat) or ""))
        self._counting = [counters for counters in self._counting if counters.open_descriptors]
        held = sum(counters.open_descriptors for counters in self._counting)
        # measuring must not take the descriptors by which the agent sees and protects
        limit, _ = getrlimit(RLIMIT_NOFILE)
        if limit != RLIM_INFINITY and held + 2 * len(cpus) > limit // 2:
            raise TooManyOpenFiles(f"each needs {2 * len(cpus)} descriptors, and half of {limit} may be used for them")
        if not cpus:
            return None
        try:
            counters = open_cgroup_counters(self._hierarchy("perf_event", directory), cpus)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise TooManyOpenFiles(str(error.strerror)) from error
            return None
        except CountersAbsent:
            return None
        self._counting.append(counters)
        return counters

    def resctrl_counters(self) -> Mapping[str, Mapping[int, Mapping[str, int]]]:
        return read_resctrl_counters(self._roots.resctrl)

    def cpu_topology(self) -> tuple[CpuPlace, ...]:
        self._topology = read_cpus(self._roots.sys, self._numa.cpus())
        return self._topology.places

    @property
    def topology_problems(self) -> tuple[str, ...]:
        """What the last call of `cpu_topology` could not read, one sentence each."""
        return self._topology.problems

    def tree(self, directory: str) -> tuple[str, ...]:
        if not os.path.isdir(self._hierarchy("cpu", directory)):  # noqa: PTH112 - in the fast loop
            return ()
        below = [f"{directory}/{name}" for name in self._children("cpu", directory)]
        lowest = [f"{child}/{name}" for child in below for name in self._children("cpu", child)]
        return (directory, *below, *lowest)

    def cpu_lists(self, directory: str) -> Mapping[str, str]:
        return self._cpu_lists.below(directory)

    def _links(self, directory: str) -> int:
        try:
            return os.stat(self._hierarchy("cpu", directory)).st_nlink  # noqa: PTH116 - in the fast loop
        except OSError:
            return 0

    def read(self, file: CgroupFile) -> str | None:
        if file.resource == _CPU_LIST:
            return self._cpu_lists.read(file.directory)
        try:
            text = read_kernel_file(self._path(file, reading=True))
        except Unsupported:
            return None
        if text is None or file.resource not in PER_PERIOD or " " in text.strip():
            return text
        if text.strip() in _ANY_PERIOD:
            return with_period(text, CFS_PERIOD_US)
        return with_period(text, self._period_us(file))

    def _period_us(self, file: CgroupFile) -> int:
        """CFS period of the directory of a file; 100 ms if it is unreadable."""
        text = read_kernel_file(self._path(CgroupFile(file.directory, "cpu.cfs_period_us"), reading=True))
        try:
            return int(from_file_text("cpu.cfs_period_us", text or "", self._version)) or CFS_PERIOD_US
        except InvalidInput:
            return CFS_PERIOD_US

    def write(self, file: CgroupFile, value: str) -> None:
        path = self._path(file, reading=False)
        number = parse_number(value) if file.resource in PER_PERIOD else None
        if number is not None and number != INT64_MAX:
            value = str(in_period(file.resource, number, self._period_us(file)))
        text = to_file_text(file.resource, value, self._version, self._weights)
        try:
            # without O_CREAT: a knob that is not there must not become a file of ours; a kernel's knob is never a link
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            kind = Vanished if error.errno in GONE else WriteFailed
            raise kind(f"{path}: {value!r} not written: {error.strerror}") from error

    def _path(self, file: CgroupFile, *, reading: bool) -> str:
        return file_path(str(self._roots.cgroup), file.resource, file.directory, self._version, reading=reading)

    def _counter_files(self, directory: str) -> CounterFiles:
        return CounterFiles(lambda name: self._path(CgroupFile(directory, name), reading=True), self._version)

    def _cpu_list(self, directory: str) -> str:
        return self._path(CgroupFile(directory, _CPU_LIST), reading=True)

    def _hierarchy(self, name: str, directory: str) -> str:
        root = str(self._roots.cgroup)
        return posixpath.join(root, name, directory) if self._version == 1 else posixpath.join(root, directory)

    def _children(self, hierarchy: str, directory: str) -> list[str]:
        try:
            with os.scandir(self._hierarchy(hierarchy, directory)) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return []
