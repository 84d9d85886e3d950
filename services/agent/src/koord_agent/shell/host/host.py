"""The face that every machine shows to the agent. `linux` and `simulated` implement it.

Values are v1-style (agent spec, 3.4) whatever the kernel has; directories are relative to a hierarchy's root. Calls
block briefly (files of /proc and /sys): the shell runs one node's calls in one thread at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from koordcore.protocol.qos import KubeQos
from koordcore.values.topology import CpuPlace

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout
from koord_agent.domain.kernel.counters import CgroupCounters, NodeCounters
from koord_agent.domain.kernel.features import Features
from koord_agent.domain.kernel.io_counters import DiskCounters, TcpCounters
from koord_agent.domain.kernel.pressure import Pressure
from koord_agent.domain.kernel.sched_delay import SchedCounters
from koord_agent.domain.metrics.cpi import Counted
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.host.probe import HostRoots


class WriteFailed(Exception):
    """The kernel did not take a value. The message names file, value and the kernel's reason."""


class Vanished(WriteFailed):
    """The file or its directory is not there (any more)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDirectory:
    """A pod's cgroup as found on the machine. pod_id as written in the name (systemd: `_` for `-`)."""

    qos: KubeQos
    pod_id: str
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The whole machine."""

    cpu_milli: int
    memory_bytes: int


class CycleSource(Protocol):
    """Open hardware counters of one cgroup."""

    def read(self) -> Counted:
        """Return what was counted since they were opened."""
        ...

    def close(self) -> None:
        """Let go of them."""
        ...


class Host(Protocol):
    """One machine."""

    @property
    def layout(self) -> CgroupLayout:
        """Names of its cgroup directories."""
        ...

    @property
    def cgroup_version(self) -> int:
        """1 or 2."""
        ...

    @property
    def roots(self) -> HostRoots | None:
        """Where the file systems of a real machine are. None means a simulated one."""
        ...

    def capacity(self) -> Capacity:
        """Return the CPU and memory of the machine. Raises MalformedCounter or OSError if /proc cannot be read."""
        ...

    def node_counters(self) -> NodeCounters | None:
        """Return the counters of the whole machine. None if unreadable this time."""
        ...

    def cgroup_counters(self, directory: str) -> CgroupCounters | None:
        """Return the counters of one cgroup. None means it is not there."""
        ...

    def numa_memory(self) -> Mapping[int, int]:
        """Return the bytes in use by NUMA node. Empty = unknown this time."""
        ...

    def numa_pages(self, directory: str) -> Mapping[int, int] | None:
        """Return the pages of one cgroup by NUMA node. None if unreadable."""
        ...

    def pressure(self, directory: str) -> Mapping[str, Pressure] | None:
        """Return the PSI of one cgroup: cpu, mem, io.

        None if unreadable or malformed, for all three (agent spec, 6.8).
        """
        ...

    def cold_page_bytes(self, directory: str) -> int | None:
        """Return the idle page cache of one cgroup ("" means the node). None if unreadable."""
        ...

    def sched_counters(self, directory: str) -> SchedCounters | None:
        """Return the waiting for a CPU, summed over the threads below one cgroup. None if unreadable."""
        ...

    def disk_counters(self, directory: str) -> Mapping[str, DiskCounters] | None:
        """Return the counters of the disks that one cgroup has used, by MAJ:MIN. None if unknown."""
        ...

    def tcp_counters(self, directory: str) -> TcpCounters | None:
        """Return the counters of a pod's own network. None if unknown, or it shares the machine's."""
        ...

    def open_cycle_counters(self, directory: str) -> CycleSource | None:
        """Begin to count cycles and instructions of one cgroup. None means not possible here. Close what is given."""
        ...

    def resctrl_counters(self) -> Mapping[str, Mapping[int, Mapping[str, int]]]:
        """Return the counters of the groups LSR, LS, BE by cache id and file.

        Groups that are not there are left out.
        """
        ...

    def features(self) -> Features:
        """Return what this machine can do. Asks the kernel, so it takes a moment."""
        ...

    def cpu_topology(self) -> tuple[CpuPlace, ...]:
        """Return the online CPUs. Empty = unknown."""
        ...

    def pod_directories(self) -> tuple[PodDirectory, ...]:
        """Return all pods that have a cgroup, in a stable order."""
        ...

    def tree(self, directory: str) -> tuple[str, ...]:
        """Return the directory and those up to two levels below it, parents first. Empty = it is not there."""
        ...

    def read(self, file: CgroupFile) -> str | None:
        """Return the raw text of a knob as this kernel writes it. None means unsupported or not there."""
        ...

    def write(self, file: CgroupFile, value: str) -> None:
        """Give a knob a v1-style value.

        Raises:
            Vanished: It cannot be done.
            WriteFailed: It cannot be done.
            InvalidInput: Before anything is touched.
            Unsupported: Before anything is touched.
        """
        ...
