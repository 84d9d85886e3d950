"""Choose n CPUs out of the available CPUs of a node.

The steps are tried in this order; their letters are those of the specification:

    A   whole cores: of one zone, else of one socket, else of several sockets
    B   spread over cores: of one zone, else of one socket
    C   single CPUs from anywhere, in an order that keeps cores and sockets together

Source: scheduler-fine-grained spec, 1.4; vectors scheduler/cpu_accumulator.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from koord_scheduler.domain.plugins.numa.core_sums import chosen_with
from koord_scheduler.domain.plugins.numa.cpu_layout import Core, CpuLayout, CpuMask, Unit, cpus_in

NOT_ENOUGH_CPUS = "not enough cpus available to satisfy request"


class BindPolicy(StrEnum):
    """Policy of the choice of CPUs: FULL_PCPUS takes whole physical cores, SPREAD_BY_PCPUS one CPU of each core."""

    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


class ExclusivePolicy(StrEnum):
    """Unit that a pod with bound CPUs does not share with other such pods: a physical core, a NUMA zone, or NONE. Only
    pods with the same policy avoid each other. It is a preference.
    """

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


_NO_COUNTS: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuRequest:
    """Number of CPUs that a pod needs, and the policies by which they are chosen."""

    count: int  # Number of CPUs
    bind_policy: BindPolicy  # Preferred way to choose the CPUs
    # Unit (core or zone) that the pod prefers not to share with pods of the same policy.
    exclusive_policy: ExclusivePolicy = ExclusivePolicy.NONE
    # Order of zones and sockets. True: those with the fewest free CPUs come first; False: those with the most. It does
    # not order cores: when single CPUs are taken, cores with the fewest free CPUs come first.
    most_allocated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """CPUs of a node that pods are bound to, as far as the choice of further CPUs depends on them."""

    # CPU -> number of pods that have it; only used if a CPU may be given more than once.
    ref_counts: Mapping[int, int] = field(default_factory=lambda: _NO_COUNTS)
    # Exclusive policy -> CPUs of the pods that were allocated with it.
    exclusive: Mapping[ExclusivePolicy, CpuMask] = field(default_factory=dict[ExclusivePolicy, CpuMask])


NOT_USED = CpuUse()


def take_cpus(
    layout: CpuLayout, available: CpuMask, request: CpuRequest, use: CpuUse = NOT_USED, preferred: CpuMask = 0
) -> CpuMask | None:
    """Choose CPUs for a pod. Return them as a bit set, or None if fewer than requested are available.

    Args:
        available: CPUs that may be given.
        request: Number of CPUs and the policies of their choice. A count below 1 gives the empty set.
        use: CPUs that are bound to pods.
        preferred: CPUs to take first, for example those that a Reservation holds.
    """
    if request.count < 1:
        return 0
    if available.bit_count() < request.count:
        return None
    first = available & preferred
    if not first:
        return _Accumulator(layout, available, request, use, request.count).run()
    taken = _Accumulator(layout, first, request, use, min(request.count, first.bit_count())).run()
    left = request.count - taken.bit_count()
    return taken if not left else taken | _Accumulator(layout, available & ~preferred, request, use, left).run()


def _size(cores: Iterable[Core]) -> int:
    return sum(len(core.members) for core in cores)


class _Accumulator:
    """One choice. `run` is called once, with enough CPUs available."""

    def __init__(self, layout: CpuLayout, free: CpuMask, request: CpuRequest, use: CpuUse, need: int) -> None:
        self._layout = layout
        self._free = free
        self._need = need
        self._policy = request.bind_policy
        self._exclusive = request.exclusive_policy
        self._sign = 1 if request.most_allocated else -1
        self._refs = use.ref_counts
        self._others = use.exclusive.get(request.exclusive_policy, 0)
        self._taken: CpuMask = 0

    def run(self) -> CpuMask:
        layout = self._layout
        is_full = self._policy is BindPolicy.FULL_PCPUS
        if is_full and not layout.is_regular:
            self._take_unequal_cores()
        elif is_full or (layout.is_regular and layout.cpus_per_core == 1):
            self._take_whole_cores()
        if self._need and not is_full:
            self._take_spread()
        for free in self._passes(pcpu=True, numa=True):
            if self._need:
                self._take_list(self._spread(self._ranked(free)))
        return self._taken

    # --- A: whole cores ----------------------------------------------------------------------------------------------

    def _take_whole_cores(self) -> None:
        layout, need = self._layout, self._need
        if need <= layout.cpus_per_zone:
            for free in self._passes(pcpu=False, numa=True):
                zones = [zone for zone in layout.zones.values() if (zone.cpus & free).bit_count() >= need]
                lists = self._full_core_lists(zones, free)
                found = [(self._sign * len(cpus), self._socket_free(zone, free), zone.id, cpus) for zone, cpus in lists]
                if self._take_first_of(cpus for _, _, _, cpus in sorted(found) if cpus):
                    return
        lists = self._full_core_lists(layout.sockets.values(), self._free)
        by_socket = [cpus for _, _, cpus in sorted((self._sign * len(cpus), socket.id, cpus) for socket, cpus in lists)]
        if need <= layout.cpus_per_socket and self._take_first_of(by_socket):
            return
        aside: list[list[int]] = []
        for cpus in sorted(by_socket, key=len, reverse=True):
            if len(cpus) > self._need:
                aside.append(cpus)
            else:
                self._take_list(cpus)
        per_core = layout.cpus_per_core
        for cpus in sorted(aside, key=len):
            for start in range(0, len(cpus), per_core):
                if self._need < per_core:
                    return
                self._take_list(cpus[start : start + per_core])

    def _take_unequal_cores(self) -> None:
        """Take cores that have exactly as many CPUs as are needed, in the same order, though cores differ in size."""
        layout = self._layout
        for free in self._passes(pcpu=False, numa=True):
            zones = [(zone, self._full_cores(zone, free)) for zone in layout.zones.values()]
            sized = [
                (self._sign * _size(cores), self._socket_free(zone, free), zone.id, cores) for zone, cores in zones
            ]
            if any(self._take_exactly(cores) for _, _, _, cores in sorted(sized)):
                return
        sockets = [(socket, self._full_cores(socket, self._free)) for socket in layout.sockets.values()]
        by_socket = [
            cores for _, _, cores in sorted((self._sign * _size(each), unit.id, each) for unit, each in sockets)
        ]
        if not any(self._take_exactly(cores) for cores in by_socket):
            longest = sorted(by_socket, key=_size, reverse=True)
            self._take_exactly([core for cores in longest for core in cores])

    def _take_exactly(self, cores: Sequence[Core]) -> bool:
        """Take cores that have as many CPUs as are needed, the first ones if possible; return False if none have."""
        chosen = chosen_with([len(core.members) for core in cores], self._need)
        for place in chosen or ():
            self._take_list(cores[place].members)
        return chosen is not None

    def _full_core_lists(self, units: Iterable[Unit], free: CpuMask) -> list[tuple[Unit, list[int]]]:
        """Return the CPUs of the full cores of each unit, in core order."""
        return [(unit, [cpu for core in self._full_cores(unit, free) for cpu in core.members]) for unit in units]

    def _full_cores(self, unit: Unit, free: CpuMask) -> list[Core]:
        cores = [core for core in unit.cores if core.cpus & free == core.cpus]
        if self._refs:
            cores.sort(key=lambda core: (-len(core.members), self._refs_of(core, free), core.key))
        return cores

    # --- B: spread over cores ----------------------------------------------------------------------------------------

    def _take_spread(self) -> None:
        layout, need = self._layout, self._need
        if need <= layout.cpus_per_zone:
            for index, free in enumerate(self._both_passes(pcpu=True, numa=True)):
                found = [
                    (self._sign * (zone.cpus & free).bit_count(), self._socket_free(zone, free), zone.id, zone)
                    for zone in layout.zones.values()
                    if zone.cpus & free
                ]
                lists = (self._single_list(zone, free, is_filtered=index == 0) for _, _, _, zone in sorted(found))
                if self._take_first_of(lists, self._spread):
                    return
        if need <= layout.cpus_per_socket:
            for index, free in enumerate(self._both_passes(pcpu=True, numa=False)):
                by_socket = [
                    (self._sign * len(cpus), socket.id, cpus)
                    for socket in layout.sockets.values()
                    if (cpus := self._single_list(socket, free, is_filtered=index == 0))
                ]
                if self._take_first_of((cpus for _, _, cpus in sorted(by_socket)), self._spread):
                    return

    def _single_list(self, unit: Unit, free: CpuMask, *, is_filtered: bool) -> list[int]:
        """Return the free CPUs of a unit by reference count and id; of each core only the first if filtered."""
        cpus = self._by_refs(cpus_in(unit.cpus & free))
        if not is_filtered:
            return cpus
        first: dict[int, int] = {}
        for cpu in cpus:
            first.setdefault(self._layout.core_of[cpu].key, cpu)
        return list(first.values())

    # --- C: single CPUs ----------------------------------------------------------------------------------------------

    def _ranked(self, free: CpuMask) -> list[int]:
        """Return the free CPUs, core by core, in the order in which they are taken."""
        layout, sign = self._layout, self._sign
        taken = {socket.id: (socket.cpus & self._taken).bit_count() for socket in layout.sockets.values()}
        of_socket = {socket.id: sign * (socket.cpus & free).bit_count() for socket in layout.sockets.values()}
        of_zone = {zone.id: sign * (zone.cpus & free).bit_count() for zone in layout.zones.values()}
        ranked = sorted(
            (
                -taken[core.socket],
                of_socket[core.socket],
                of_zone[core.zone],
                (core.cpus & free).bit_count(),
                core.socket,
                self._refs_of(core, free),
                core.key,
            )
            for core in layout.cores
            if core.cpus & free
        )
        by_key = {core.key: core for core in layout.cores}
        return [cpu for entry in ranked for cpu in self._by_refs(cpus_in(by_key[entry[-1]].cpus & free))]

    # --- what the steps share ----------------------------------------------------------------------------------------

    def _both_passes(self, *, pcpu: bool, numa: bool) -> Iterator[CpuMask]:
        """Yield the free CPUs without those that the exclusive policy excludes, then all of them."""
        excluded = 0
        policy = self._exclusive
        if (pcpu and policy is ExclusivePolicy.PCPU_LEVEL) or (numa and policy is ExclusivePolicy.NUMA_NODE_LEVEL):
            barring = self._others | self._taken
            units: Iterable[Core | Unit] = (
                self._layout.cores if policy is ExclusivePolicy.PCPU_LEVEL else self._layout.zones.values()
            )
            for unit in units:
                if unit.cpus & barring:
                    excluded |= unit.cpus
        yield self._free & ~excluded
        yield self._free

    def _passes(self, *, pcpu: bool, numa: bool) -> Iterator[CpuMask]:
        """Yield the same, once if nothing is excluded: a second pass would find nothing else."""
        first: CpuMask | None = None
        for free in self._both_passes(pcpu=pcpu, numa=numa):
            if free != first:
                yield free
            first = free

    def _socket_free(self, zone: Unit, free: CpuMask) -> int:
        return self._sign * (self._layout.sockets[zone.socket].cpus & free).bit_count()

    def _take_first_of(
        self, lists: Iterable[list[int]], ordered: Callable[[list[int]], Sequence[int]] = lambda cpus: cpus
    ) -> bool:
        """Take the needed CPUs from the first list that has enough; return False if no list has enough."""
        for cpus in lists:
            if len(cpus) >= self._need:
                self._take_list(ordered(cpus))
                return True
        return False

    def _take_list(self, cpus: Sequence[int]) -> None:
        """Take CPUs of the list, from its begin, until the pod has enough."""
        for cpu in cpus[: self._need]:
            self._taken |= 1 << cpu
        self._need -= min(len(cpus), self._need)
        self._free &= ~self._taken

    def _spread(self, cpus: list[int]) -> list[int]:
        """Return the CPUs in another order: first one CPU of each core, then a second one of each core, and so on."""
        if len(cpus) <= self._layout.cpus_per_core:
            return cpus
        core_of = self._layout.core_of
        rounds: dict[int, list[int]] = {}
        seen: dict[int, int] = {}
        for cpu in cpus:
            key = core_of[cpu].key
            number = seen[key] = seen.get(key, -1) + 1
            rounds.setdefault(number, []).append(cpu)
        return [cpu for number in sorted(rounds) for cpu in rounds[number]]

    def _by_refs(self, cpus: list[int]) -> list[int]:
        return sorted(cpus, key=lambda cpu: self._refs.get(cpu, 0)) if self._refs else cpus

    def _refs_of(self, core: Core, free: CpuMask) -> int:
        return sum(self._refs.get(cpu, 0) for cpu in cpus_in(core.cpus & free)) if self._refs else 0
