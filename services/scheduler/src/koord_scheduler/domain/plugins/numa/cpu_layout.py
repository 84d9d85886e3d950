"""The CPUs of a node by core, NUMA node and socket, as bit sets; nodes of one model share one layout.

Source: scheduler-fine-grained spec, 1.1.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from koordcore.protocol.annotations.cpu import HIGHEST_CPU
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.topology import CpuPlace

from koord_scheduler.domain.plugins.numa.core_sums import sums_of

CpuMask: TypeAlias = int
"""A set of CPUs: bit i stands for CPU i."""


class Core(NamedTuple):
    """A physical core of a node and its CPUs (hardware threads)."""

    key: int  # Unique on the node, ascending by socket
    cpus: CpuMask  # Its CPUs as a bit set
    members: tuple[int, ...]  # Its CPUs as numbers, ascending
    zone: int  # Id of its NUMA node
    socket: int  # Id of its socket


class Unit(NamedTuple):
    """The CPUs of a NUMA node or of a socket."""

    id: int
    cpus: CpuMask  # Its CPUs as a bit set
    cores: tuple[Core, ...]  # Its cores, those with most CPUs first, then ascending by key
    socket: int  # Id of the socket that contains it

    def core_sums(self, free: CpuMask) -> int:
        """Return the sums of CPUs that its cores have together whose CPUs are all free; bit n stands for n CPUs."""
        return sums_of(len(core.members) for core in self.cores if core.cpus & free == core.cpus)


@dataclass(frozen=True, slots=True, eq=False)
class CpuLayout:
    """All CPUs of a node by core, NUMA node and socket."""

    places: tuple[CpuPlace, ...]  # Every CPU with its core, NUMA node and socket. Core ids are unique on the node.
    cpus: CpuMask = field(init=False)  # All CPUs as a bit set
    cores: tuple[Core, ...] = field(init=False)  # Ascending by key
    core_of: Mapping[int, Core] = field(init=False)  # CPU -> its core
    zones: Mapping[int, Unit] = field(init=False)  # NUMA node id -> its CPUs; ascending
    sockets: Mapping[int, Unit] = field(init=False)  # Socket id -> its CPUs; ascending
    is_regular: bool = field(init=False)  # Whether all cores have as many CPUs
    # CPUs divided by cores, rounded down; likewise `cpus_per_zone` and `cpus_per_socket`.
    cpus_per_core: int = field(init=False)
    cpus_per_zone: int = field(init=False)
    cpus_per_socket: int = field(init=False)

    def __post_init__(self) -> None:
        members: defaultdict[int, list[CpuPlace]] = defaultdict(list)
        for place in self.places:
            members[place.core].append(place)
        cores = tuple(_core(key, members[key]) for key in sorted(members))
        zones = _units([(core.zone, core) for core in cores])
        sockets = _units([(core.socket, core) for core in cores])
        count = len(self.places)
        derived = {
            "is_regular": len({len(core.members) for core in cores}) <= 1,
            "cpus": mask_of(place.cpu for place in self.places),
            "cores": cores,
            "core_of": {cpu: core for core in cores for cpu in core.members},
            "zones": zones,
            "sockets": sockets,
            "cpus_per_core": count // max(1, len(cores)),
            "cpus_per_zone": count // max(1, len(zones)),
            "cpus_per_socket": count // max(1, len(sockets)),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def full_cores(self, free: CpuMask) -> CpuMask:
        """Return the CPUs of the cores whose CPUs are all free."""
        found, left = 0, free
        while left:
            cpus = self.core_of[(left & -left).bit_length() - 1].cpus
            left &= ~cpus
            if cpus & free == cpus:
                found |= cpus
        return found

    def can_fill(self, count: int) -> bool:
        """Return whether a pod of `count` CPUs can have whole cores of the node as far as their sizes are concerned."""
        if self.is_regular:
            return count % max(1, self.cpus_per_core) == 0
        return count > len(self.places) or self.fills(self.cpus, count)

    def fills(self, free: CpuMask, count: int) -> bool:
        """Return whether cores whose CPUs are all free have exactly `count` CPUs together."""
        if self.is_regular:
            return count % max(1, self.cpus_per_core) == 0 and self.full_cores(free).bit_count() >= count
        return self.core_sums(free) >> count & 1 == 1

    def core_sums(self, free: CpuMask) -> int:
        """Return the sums of CPUs that cores have together whose CPUs are all free; bit n stands for n CPUs."""
        return sums_of(len(core.members) for core in self.cores if core.cpus & free == core.cpus)

    def one_per_core(self, free: CpuMask) -> CpuMask:
        """Return the lowest free CPU of each core that has a free one."""
        found, left = 0, free
        while left:
            lowest = left & -left
            left &= ~self.core_of[lowest.bit_length() - 1].cpus
            found |= lowest
        return found

    def cores_touched(self, cpus: CpuMask) -> int:
        """Return the number of cores that have at least one of the CPUs."""
        return len({self.core_of[cpu].key for cpu in cpus_in(cpus)})


def _core(key: int, places: Sequence[CpuPlace]) -> Core:
    members = tuple(sorted(place.cpu for place in places))
    return Core(key, mask_of(members), members, places[0].node, places[0].socket)


def _units(pairs: Iterable[tuple[int, Core]]) -> dict[int, Unit]:
    by_id: defaultdict[int, list[Core]] = defaultdict(list)
    for unit, core in pairs:
        by_id[unit].append(core)
    units: dict[int, Unit] = {}
    for unit in sorted(by_id):
        cores = sorted(by_id[unit], key=lambda core: (-len(core.members), core.key))
        cpus = 0
        for core in cores:
            cpus |= core.cpus
        units[unit] = Unit(unit, cpus, tuple(cores), cores[0].socket)
    return units


def mask_of(cpus: Iterable[int]) -> CpuMask:
    """Return these CPU numbers as a bit set."""
    mask = 0
    for cpu in cpus:
        mask |= 1 << cpu
    return mask


def cpus_in(mask: CpuMask) -> list[int]:
    """Return the CPU numbers of a bit set, ascending."""
    found: list[int] = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


@lru_cache(maxsize=65_536)
def parsed_mask(text: str) -> CpuMask:
    """Return the CPUs of a Linux list such as `0-3,8` as a bit set. Raises InvalidInput: the list is invalid, or names
    a CPU beyond those that Linux supports.
    """
    cpus = parse_cpuset(text)
    if cpus and max(cpus) > HIGHEST_CPU:
        raise InvalidInput(f"CPUs up to {HIGHEST_CPU}", text)
    return mask_of(cpus)


def known_mask(text: str) -> CpuMask:
    """Return the CPUs of a Linux CPU list as a bit set. An invalid list gives the empty set."""
    try:
        return parsed_mask(text)
    except InvalidInput:
        return 0


@lru_cache(maxsize=65_536)
def mask_text(mask: CpuMask) -> str:
    """Return a bit set of CPUs as canonical Linux list, such as `0-3,8`."""
    return format_cpuset(cpus_in(mask))
