"""The CPUs of the node and their shared L3 caches from texts of sysfs.

Source: agent spec, 4.4.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from koordcore.events.nodestate import CpuCache
from koordcore.values.cpuset import EMPTY, CpuSet, format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.topology import CpuPlace

from koord_agent.domain.kernel.counters import whole_number

L3: Final = "3"
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFiles:
    """Texts of the files in one folder `cpu<n>/topology` of sysfs; "" if a file does not exist."""

    core_cpus: str = ""  # CPUs of the same core: core_cpus_list, before Linux 5.3 thread_siblings_list
    package_cpus: str = ""  # CPUs of the same socket: package_cpus_list, before Linux 5.3 core_siblings_list
    core_id: str = ""  # Unique within its die only
    die_id: str = ""  # Unique within its socket only
    package_id: str = ""  # -1 if the firmware does not tell it, as on some virtual machines


class CpuReading(NamedTuple):
    places: tuple[CpuPlace, ...]  # Online CPUs by NUMA node, socket, core and CPU; empty if unknown
    problems: tuple[str, ...]  # What cannot be read, one sentence each


def cpu_places(files: Mapping[int, CpuFiles], nodes: Mapping[int, CpuSet]) -> CpuReading:
    """Return the place of each CPU; CPUs whose core or socket is unknown are left out and told.

    Cores and sockets are numbered from 0 in the order of their first CPU, because the ids of the kernel repeat in each
    socket. So the numbers are those of lscpu, which the reference runs. NUMA nodes keep the kernel's ids, with holes. A
    CPU of no NUMA node is in node 0.

    Args:
        files: Online CPU -> its files.
        nodes: NUMA node -> its CPUs.

    Source: agent spec, 4.4; reality, 4.10.
    """
    node_of = {cpu: node for node, cpus in sorted(nodes.items(), reverse=True) for cpu in cpus}
    cores, sockets = dict[_Unit, int](), dict[_Unit, int]()
    places: list[CpuPlace] = []
    unknown: list[int] = []
    for cpu, of in sorted(files.items()):
        core = _unit(cpu, of.core_cpus, (of.package_id, of.die_id, of.core_id))
        socket = _unit(cpu, of.package_cpus, (of.package_id,))
        if core is None or socket is None:
            unknown.append(cpu)
            continue
        places.append(
            CpuPlace(
                cpu=cpu,
                core=cores.setdefault(core, len(cores)),
                socket=sockets.setdefault(socket, len(sockets)),
                node=node_of.get(cpu, 0),
            )
        )
    problems = (f"core or socket of CPUs {format_cpuset(unknown)} cannot be read",) if unknown else ()
    return CpuReading(tuple(sorted(places, key=lambda p: (p.node, p.socket, p.core, p.cpu))), problems)


_Unit: TypeAlias = CpuSet | tuple[str, ...]
"""A core or socket: its CPUs, or its ids if the kernel does not list them."""


def _unit(cpu: int, siblings: str, ids: tuple[str, ...]) -> _Unit | None:
    """None if neither list nor ids can be read."""
    try:
        cpus = parse_cpuset(siblings.strip())
    except InvalidInput:
        cpus = EMPTY
    if cpu in cpus:
        return cpus
    return tuple(text.strip() for text in ids) if ids[-1].strip() else None


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
