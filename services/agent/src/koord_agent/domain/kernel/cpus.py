"""The CPUs of the node from the text of lscpu, and their shared L3 caches from sysfs.

Source: agent spec, 4.4.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from koordcore.events.nodestate import CpuCache
from koordcore.values.cpuset import CpuSet, format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.topology import CpuPlace

from koord_agent.domain.kernel.counters import whole_number

COLUMNS = "CPU,NODE,SOCKET,CORE,CACHE,ONLINE"
OFFLINE = "no"
L3: Final = "3"
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_lscpu(text: str) -> tuple[CpuPlace, ...]:
    """Return the online CPUs in the output of `lscpu -e=CPU,NODE,SOCKET,CORE,CACHE,ONLINE`.

    They are sorted by NUMA node, socket, core and CPU. A line counts if it has at least 6 fields and integer CPU,
    SOCKET and CORE. NODE `-` is 0. Offline CPUs are left out (D-3).
    """
    places: list[CpuPlace] = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 6 or fields[5].lower() == OFFLINE:
            continue
        cpu, node, socket, core = fields[0], "0" if fields[1] == "-" else fields[1], fields[2], fields[3]
        numbers = [whole_number(text) for text in (cpu, node, socket, core)]
        if None not in numbers:
            cpu_id, node_id, socket_id, core_id = (number or 0 for number in numbers)
            places.append(CpuPlace(cpu=cpu_id, core=core_id, socket=socket_id, node=node_id))
    return tuple(sorted(places, key=lambda p: (p.node, p.socket, p.core, p.cpu)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFiles:
    """Texts of the files in one folder `cpu<n>/cache/index<i>` of sysfs; "" if a file does not exist."""

    level: str
    id: str  # Id of the cache. Older kernels and some machines do not have it.
    size: str  # Size, such as `32768K`
    shared_cpu_list: str


def l3_caches(files: Iterable[CacheFiles]) -> list[CpuCache]:
    """Return each L3 cache once, ordered by id; empty if unknown. Other levels and invalid texts are left out.

    Without ids of the kernel, caches are numbered in the order of their first CPU, as lscpu does.
    """
    found: dict[CpuSet, CacheFiles] = {}
    for of in files:
        if of.level.strip() != L3:
            continue
        try:
            cpus = parse_cpuset(of.shared_cpu_list.strip())
        except InvalidInput:
            continue
        if cpus:
            found.setdefault(cpus, of)
    told = [whole_number(of.id.strip()) for of in found.values()]
    has_ids = None not in told and len(set(told)) == len(told)
    ordered = sorted(found, key=min)
    return sorted(
        (
            CpuCache(
                id=(whole_number(found[cpus].id.strip()) or 0) if has_ids else number,
                cpus=format_cpuset(cpus),
                size_bytes=_bytes(found[cpus].size.strip()),
            )
            for number, cpus in enumerate(ordered)
        ),
        key=lambda cache: cache.id,
    )


def _bytes(text: str) -> int:
    number = whole_number(text.rstrip("".join(_UNITS)))
    return (number or 0) * _UNITS.get(text[-1:], 1)
