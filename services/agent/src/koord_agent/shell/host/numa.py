"""CPUs, NUMA nodes and L3 caches of this machine from sysfs. No program of the machine is run.

Source: agent spec, 4.4, 4.7 (7), 6.1, 6.11.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from koordcore.events.nodestate import CpuCache
from koordcore.values.cpuset import EMPTY, CpuSet, parse_cpuset
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.kernel.counters import MalformedCounter, parse_meminfo, whole_number
from koord_agent.domain.kernel.cpus import CacheFiles, CpuFiles, CpuReading, cpu_places, l3_caches
from koord_agent.domain.kernel.numa_usage import numa_memory_used_bytes
from koord_agent.domain.reporting.topology_report import NumaMemory
from koord_agent.shell.host.kernel_files import read_kernel_file

_PREFIX = "node"
_PAGES_PREFIX, _PAGES_SUFFIX = "hugepages-", "kB"
CPUS = "devices/system/cpu"


class NumaReader:
    """Reads the NUMA nodes of this machine from `<sys>/bus/node/devices/node<i>`, with the ids of the kernel.

    Nodes that have neither CPUs nor memory, but only an initiator (`has_generic_initiator`), are ignored.
    """

    def __init__(self, sys: Path) -> None:
        self._devices = sys / "bus" / "node" / "devices"
        self._lists = sys / "devices" / "system" / "node"
        self._nodes = self._find()

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that `memory` found last, ascending. Before the first call, those at the start."""
        return self._nodes

    def cpus(self) -> Mapping[int, CpuSet]:
        """NUMA node -> its CPUs. Unreadable nodes are left out; a node that has only memory has no CPUs."""
        found: dict[int, CpuSet] = {}
        for node in self._find():
            text = read_kernel_file(f"{self._devices}/{_PREFIX}{node}/cpulist")
            try:
                if text is not None:
                    found[node] = parse_cpuset(text.strip())
            except InvalidInput:
                continue
        return found

    def memory_used(self) -> Mapping[int, int]:
        """NUMA node -> bytes in use. Unreadable nodes are left out."""
        found: dict[int, int] = {}
        for node in self._nodes:
            text = read_kernel_file(f"{self._devices}/{_PREFIX}{node}/meminfo")
            try:
                if text is not None:
                    found[node] = numa_memory_used_bytes(text, node)
            except MalformedCounter:
                continue
        return found

    def memory(self) -> Mapping[int, NumaMemory | None]:
        """NUMA node -> its memory, None if unreadable. The nodes are looked up again: memory can be plugged in."""
        self._nodes = self._find()
        return {node: self._memory(node) for node in self._nodes}

    def _memory(self, node: int) -> NumaMemory | None:
        text = read_kernel_file(f"{self._devices}/{_PREFIX}{node}/meminfo")
        total = parse_meminfo(text, prefix=f"Node {node} ").get("MemTotal") if text is not None else None
        return None if total is None else NumaMemory(total_bytes=total, hugepages=self._huge_pages(node))

    def _huge_pages(self, node: int) -> Mapping[int, int]:
        folder = self._devices / f"{_PREFIX}{node}" / "hugepages"
        pages: dict[int, int] = {}
        try:
            names = sorted(entry.name for entry in folder.iterdir())
        except OSError:
            return pages
        for name in names:
            size = whole_number(name.removeprefix(_PAGES_PREFIX).removesuffix(_PAGES_SUFFIX))
            count = whole_number((read_kernel_file(f"{folder}/{name}/nr_hugepages") or "").strip())
            if size is not None and count is not None:
                pages[size] = count
        return pages

    def _find(self) -> tuple[int, ...]:
        try:
            names = [entry.name for entry in self._devices.iterdir()]
        except OSError:
            return ()
        numbers = (whole_number(name.removeprefix(_PREFIX)) for name in names if name.startswith(_PREFIX))
        only_initiators = self._listed("has_generic_initiator") - self._listed("has_memory") - self._listed("has_cpu")
        return tuple(sorted(number for number in numbers if number is not None and number not in only_initiators))

    def _listed(self, name: str) -> CpuSet:
        """The node ids in a list of the kernel, which has the format of a CPU list; empty if unreadable."""
        try:
            return parse_cpuset((read_kernel_file(str(self._lists / name)) or "").strip())
        except InvalidInput:
            return EMPTY


def read_cpus(sys: Path, nodes: Mapping[int, CpuSet]) -> CpuReading:
    """The places of the online CPUs. `nodes` is NUMA node -> its CPUs."""
    file = sys / CPUS / "online"
    try:
        online = parse_cpuset((read_kernel_file(str(file)) or "").strip())
    except InvalidInput:
        online = EMPTY
    if not online:
        return CpuReading((), (f"{file}: no list of online CPUs can be read",))
    return cpu_places({cpu: _cpu_files(sys / CPUS / f"cpu{cpu}/topology") for cpu in online}, nodes)


def _cpu_files(folder: Path) -> CpuFiles:
    def first(*names: str) -> str:
        return next((text for name in names if (text := read_kernel_file(f"{folder}/{name}")) is not None), "")

    return CpuFiles(
        core_cpus=first("core_cpus_list", "thread_siblings_list"),
        package_cpus=first("package_cpus_list", "core_siblings_list"),
        core_id=first("core_id"),
        die_id=first("die_id"),
        package_id=first("physical_package_id"),
    )


def read_l3_caches(sys: Path) -> list[CpuCache]:
    """Each once; empty if unknown."""
    return l3_caches(_files(sys / CPUS))


def _files(cpus: Path) -> Iterator[CacheFiles]:
    for cpu in _entries(cpus, "cpu"):
        for cache in _entries(cpu / "cache", "index"):
            texts = {name: read_kernel_file(f"{cache}/{name}") or "" for name in ("level", "id", "size")}
            yield CacheFiles(**texts, shared_cpu_list=read_kernel_file(f"{cache}/shared_cpu_list") or "")


def _entries(folder: Path, prefix: str) -> list[Path]:
    try:
        return sorted(e for e in folder.iterdir() if whole_number(e.name.removeprefix(prefix)) is not None)
    except OSError:
        return []
