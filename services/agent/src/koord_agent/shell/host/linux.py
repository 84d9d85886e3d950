"""A real Linux machine: procfs, cgroup v1 and v2, both cgroup drivers.

Everything that can vanish between two calls (a pod's directory, a file of it) is answered with None or `Vanished`.
"""

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from koordcore.protocol.qos import KubeQos
from koordcore.values.topology import CpuPlace

from koord_agent.domain.cgroup_files import Unsupported, file_path, to_file_text
from koord_agent.domain.cgroup_layout import CgroupLayout
from koord_agent.domain.counters import (
    CgroupCounters,
    CgroupMemory,
    MalformedCounter,
    NodeCounters,
    Throttling,
    parse_busy_ticks,
    parse_busy_ticks_per_cpu,
    parse_cgroup_memory,
    parse_cpu_usage_ns,
    parse_node_memory,
    parse_throttling,
)
from koord_agent.domain.cpu_info import COLUMNS, parse_lscpu
from koord_agent.domain.plan import CgroupFile
from koord_agent.shell.host.host import Capacity, PodDirectory, Vanished, WriteFailed
from koord_agent.shell.host.probe import HostRoots, cgroup_layout, cgroup_version, jiffy_ns

LSCPU_TIMEOUT_SECONDS = 5
GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)


class LinuxHost:
    """This machine, see `Host`.

    monotonic_ns   the machine's own clock: counters advance in real time, whatever the service's clock does
    layout, version, jiffy   None = probed
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
        self._layout = layout or cgroup_layout(self._roots.cgroup, self._version)
        self._jiffy_ns = jiffy or jiffy_ns()

    @property
    def layout(self) -> CgroupLayout:
        return self._layout

    @property
    def cgroup_version(self) -> int:
        return self._version

    def capacity(self) -> Capacity:
        cpus = parse_busy_ticks_per_cpu((self._roots.proc / "stat").read_text())
        memory = parse_node_memory((self._roots.proc / "meminfo").read_text())
        return Capacity(cpu_milli=len(cpus) * 1000, memory_bytes=memory.total_bytes)

    def node_counters(self) -> NodeCounters | None:
        try:
            at_ns = self._monotonic_ns()
            ticks = parse_busy_ticks((self._roots.proc / "stat").read_text())
            memory = parse_node_memory((self._roots.proc / "meminfo").read_text())
        except (OSError, MalformedCounter):
            return None
        return NodeCounters(at_ns=at_ns, busy_ticks=ticks, jiffy_ns=self._jiffy_ns, memory=memory)

    def cgroup_counters(self, directory: str) -> CgroupCounters | None:
        at_ns = self._monotonic_ns()
        usage_text = self.read(CgroupFile(directory, "cpuacct.usage"))
        memory_text = self.read(CgroupFile(directory, "memory.stat"))
        if usage_text is None and memory_text is None:
            return None
        # on v2 both cpu values come from one file
        stat_text = usage_text if self._version == 2 else self.read(CgroupFile(directory, "cpu.stat"))
        return CgroupCounters(
            at_ns=at_ns,
            cpu_usage_ns=self._cpu_usage(usage_text),
            memory=self._memory(memory_text),
            throttling=self._throttling(stat_text),
        )

    def _cpu_usage(self, text: str | None) -> int | None:
        try:
            return parse_cpu_usage_ns(text, self._version) if text is not None else None
        except MalformedCounter:
            return None

    def _memory(self, text: str | None) -> CgroupMemory | None:
        try:
            return parse_cgroup_memory(text, self._version) if text is not None else None
        except MalformedCounter:
            return None

    def _throttling(self, text: str | None) -> Throttling | None:
        try:
            return parse_throttling(text, self._version) if text is not None else None
        except MalformedCounter:
            return None

    def cpu_topology(self) -> tuple[CpuPlace, ...]:
        try:
            done = subprocess.run(
                ["lscpu", f"-e={COLUMNS}"], capture_output=True, text=True, timeout=LSCPU_TIMEOUT_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return ()
        return parse_lscpu(done.stdout)

    def pod_directories(self) -> tuple[PodDirectory, ...]:
        found: list[PodDirectory] = []
        for qos in KubeQos:
            directory = self._layout.qos_directory(qos)
            for name in self._children("cpu", directory):
                pod_id = self._layout.parse_pod(name)
                if pod_id is not None:
                    found.append(PodDirectory(qos=qos, pod_id=pod_id, directory=f"{directory}/{name}"))
        return tuple(found)

    def tree(self, directory: str) -> tuple[str, ...]:
        if not self._hierarchy("cpu", directory).is_dir():
            return ()
        below = [f"{directory}/{name}" for name in self._children("cpu", directory)]
        lowest = [f"{child}/{name}" for child in below for name in self._children("cpu", child)]
        return (directory, *below, *lowest)

    def read(self, file: CgroupFile) -> str | None:
        try:
            return self._path(file, reading=True).read_text()
        except (OSError, Unsupported):
            return None

    def write(self, file: CgroupFile, value: str) -> None:
        path = self._path(file, reading=False)
        text = to_file_text(file.resource, value, self._version)
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

    def _path(self, file: CgroupFile, *, reading: bool) -> Path:
        return Path(file_path(str(self._roots.cgroup), file.resource, file.directory, self._version, reading=reading))

    def _hierarchy(self, name: str, directory: str) -> Path:
        return (self._roots.cgroup / name if self._version == 1 else self._roots.cgroup) / directory

    def _children(self, hierarchy: str, directory: str) -> list[str]:
        try:
            with os.scandir(self._hierarchy(hierarchy, directory)) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return []
