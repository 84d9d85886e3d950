"""NUMA nodes and L3 caches of this machine from sysfs: memory in use, totals, huge pages.

Source: agent spec, 4.4, 4.7 (7), 6.1, 6.11.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from koordcore.events.nodestate import CpuCache

from koord_agent.domain.kernel.counters import MalformedCounter, parse_meminfo, whole_number
from koord_agent.domain.kernel.cpus import CacheFiles, l3_caches
from koord_agent.domain.kernel.numa_usage import numa_memory_used_bytes
from koord_agent.domain.reporting.topology_report import NumaMemory
from koord_agent.shell.host.kernel_files import read_kernel_file

_PREFIX = "node"
_PAGES_PREFIX, _PAGES_SUFFIX = "hugepages-", "kB"
CPUS = "devices/system/cpu"


class NumaReader:
    """Reads the NUMA nodes of this machine from `<sys>/bus/node/devices/node<i>`. The list of nodes is read once.

    Nodes with only an initiator (`has_generic_initiator`) have no memory and are ignored.
    """

    def __init__(self, sys: Path) -> None:
        self._devices = sys / "bus" / "node" / "devices"
        self._nodes = self._find()

    @property
    def nodes(self) -> tuple[int, ...]:
        """Only nodes with memory, ascending."""
        return self._nodes

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

    def memory(self) -> tuple[NumaMemory, ...] | None:
        """In the order of the nodes; None if one node is unreadable."""
        found: list[NumaMemory] = []
        for node in self._nodes:
            text = read_kernel_file(f"{self._devices}/{_PREFIX}{node}/meminfo")
            total = parse_meminfo(text, prefix=f"Node {node} ").get("MemTotal") if text is not None else None
            if total is None:
                return None
            found.append(NumaMemory(total_bytes=total, hugepages=self._huge_pages(node)))
        return tuple(found)

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
        initiators = self._initiators()
        return tuple(sorted(number for number in numbers if number is not None and number not in initiators))

    def _initiators(self) -> frozenset[int]:
        text = read_kernel_file(str(self._devices.parent.parent.parent / "devices/system/node/has_generic_initiator"))
        memory = read_kernel_file(str(self._devices.parent.parent.parent / "devices/system/node/has_memory"))
        only = _listed(text) - _listed(memory)
        return frozenset(only)


def _listed(text: str | None) -> frozenset[int]:
    found: set[int] = set()
    for item in (text or "").strip().split(","):
        first, _, last = item.partition("-")
        low, high = whole_number(first), whole_number(last or first)
        if low is not None and high is not None and high - low < 4096:
            found.update(range(low, high + 1))
    return frozenset(found)


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
