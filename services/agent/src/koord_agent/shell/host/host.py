"""The protocol of every machine. `linux` and `simulator.host` implement it.

Values are v1-style (agent spec, 3.4) on every kernel. Directories are relative to the root of a hierarchy. Calls block
briefly (files of /proc and /sys), so the shell runs the calls of one node in one thread at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from koordcore.values.topology import CpuPlace

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout
from koord_agent.domain.kernel.counters import (
    CgroupCounters,
    DiskCounters,
    NodeCounters,
    Pressure,
    SchedCounters,
    TcpCounters,
)
from koord_agent.domain.kernel.cpu_weight import WeightLine
from koord_agent.domain.kernel.features import Features
from koord_agent.domain.metrics.cpi import Counted
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.strategies.load_rise import CpuTimes
from koord_agent.shell.host.probe import HostRoots


class WriteFailed(Exception):
    """Raised if the kernel refused a value. The message has file, value and the kernel's reason."""


class Vanished(WriteFailed):
    """Raised if the file to write, or its directory, does not exist."""


class TooManyOpenFiles(Exception):
    """Raised if counters would take the descriptors by which the agent sees and protects. The message has the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    cpu_milli: int
    memory_bytes: int


class CycleSource(Protocol):
    def read(self) -> Counted:
        """Cycles and instructions since the counters were opened."""
        ...

    def close(self) -> None: ...


class Host(Protocol):
    """Access to one machine: a real one, or a simulated one. Methods return None if a reading fails.

    The argument `directory` of its methods is a cgroup directory, relative to the root of the hierarchy.
    """

    @property
    def layout(self) -> CgroupLayout: ...

    @property
    def cgroup_version(self) -> int:
        """1 or 2."""
        ...

    @property
    def roots(self) -> HostRoots | None:
        """Paths of the file systems of a real machine, such as procfs; None for a simulated machine."""
        ...

    def use_weights(self, line: WeightLine) -> None:
        """Set the line by which shares are converted to weights of cgroup v2, as the container runtime does."""
        ...

    def capacity(self) -> Capacity:
        """Raises MalformedCounter: /proc/meminfo is unreadable or malformed.

        An unreadable /proc/stat gives 0 CPUs instead.
        """
        ...

    def node_counters(self) -> NodeCounters | None:
        """None if unreadable."""
        ...

    def cgroup_counters(self, directory: str, above: str = "") -> CgroupCounters | None:
        """None if the directory does not exist. A counter that is unreadable is None in it.

        `above` is a directory above it whose counters were read before in this cycle; "" without one.
        """
        ...

    def cpu_counters(self, directory: str) -> CgroupCounters | None:
        """Only the CPU time of one cgroup; None if it is unreadable."""
        ...

    def cpu_times(self) -> CpuTimes | None:
        """Of the machine and of the best-effort class. None if one is unreadable, or on a simulated machine."""
        ...

    def numa_memory(self) -> Mapping[int, int]:
        """NUMA node -> bytes in use; empty if unreadable."""
        ...

    def numa_pages(self, directory: str) -> Mapping[int, int] | None:
        """NUMA node -> memory pages (4 KiB each) of one cgroup: on v1 all pages, on v2 anonymous and file pages.

        None if memory.numa_stat is unreadable or malformed.
        """
        ...

    def pressure(self, directory: str) -> Mapping[str, Pressure] | None:
        """PSI by resource: cpu, mem, io. None if any of the three is unreadable or invalid (agent spec, 6.8)."""
        ...

    def cold_page_bytes(self, directory: str) -> int | None:
        """Idle page cache of one cgroup ("" for the node); None if unreadable."""
        ...

    def sched_counters(self, directory: str) -> SchedCounters | None:
        """Sums over the threads of one cgroup and of two levels below it; None if no thread is readable."""
        ...

    def disk_counters(self, directory: str) -> Mapping[str, DiskCounters] | None:
        """Disk as MAJ:MIN -> I/O counters of the whole disk, for the disks that one cgroup has used.

        The requests of other cgroups count, too. None if the disks or counters are unknown.
        """
        ...

    def tcp_counters(self, directory: str) -> TcpCounters | None:
        """Of a pod's network. None if they are unknown, or if the pod uses the network of the machine."""
        ...

    def open_cycle_counters(self, directory: str) -> CycleSource | None:
        """None if that is not possible. The caller closes them.

        Raises:
            TooManyOpenFiles: Counters of others have to be closed before.
        """
        ...

    def resctrl_counters(self) -> Mapping[str, Mapping[int, Mapping[str, int]]]:
        """Group (LSR, LS, BE) -> cache id -> file name -> counter. Missing groups are left out."""
        ...

    def features(self) -> Features:
        """It probes the kernel, so it takes some time."""
        ...

    def cpu_topology(self) -> tuple[CpuPlace, ...]: ...

    def tree(self, directory: str) -> tuple[str, ...]:
        """A cgroup directory and its subdirectories down to two levels, parents first. Empty if it does not exist."""
        ...

    def cpu_lists(self, directory: str) -> Mapping[str, str]:
        """Text of cpuset.cpus by directory of `tree`, in its order. Unreadable ones are left out."""
        ...

    def read(self, file: CgroupFile) -> str | None:
        """The raw text; None if the file does not exist or is not supported."""
        ...

    def write(self, file: CgroupFile, value: str) -> None:
        """Write a value, in the style of cgroup v1, to a kernel file.

        Raises:
            Vanished: The file does not exist.
            WriteFailed: The kernel refused the value.
            InvalidInput: The value is not valid; nothing was written.
            Unsupported: The kernel does not have the file; nothing was written.
        """
        ...
