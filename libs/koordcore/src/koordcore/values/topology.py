"""The CPUs of a node by socket, NUMA node and core, and the packed choice of CPUs.

The agent chooses the reserved CPUs of a node with it. The scheduler's CPU accumulator is a different algorithm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from koordcore.values.cpuset import EMPTY, CpuSet


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuPlace:
    """The core, NUMA node and socket of one logical CPU. All ids are unique on the node."""

    cpu: int
    core: int
    socket: int
    node: int


_Members: TypeAlias = dict[int, frozenset[int]]


@dataclass(frozen=True, slots=True)
class CpuTopology:
    """All logical CPUs of a node, grouped by socket, NUMA node and core."""

    places: tuple[CpuPlace, ...]
    sockets: _Members = field(init=False, repr=False, compare=False)  # Socket id -> CPU ids
    nodes: _Members = field(init=False, repr=False, compare=False)  # NUMA node id -> CPU ids
    cores: _Members = field(init=False, repr=False, compare=False)  # Core id -> CPU ids
    # Socket id -> ids of its NUMA nodes.
    nodes_of_socket: Mapping[int, tuple[int, ...]] = field(init=False, repr=False, compare=False)
    # NUMA node id -> ids of its cores.
    cores_of_node: Mapping[int, tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        def group(key: Callable[[CpuPlace], int], member: Callable[[CpuPlace], int]) -> dict[int, frozenset[int]]:
            found: defaultdict[int, set[int]] = defaultdict(set)
            for place in self.places:
                found[key(place)].add(member(place))
            return {name: frozenset(members) for name, members in found.items()}

        object.__setattr__(self, "sockets", group(lambda p: p.socket, lambda p: p.cpu))
        object.__setattr__(self, "nodes", group(lambda p: p.node, lambda p: p.cpu))
        object.__setattr__(self, "cores", group(lambda p: p.core, lambda p: p.cpu))
        nodes_of_socket = group(lambda p: p.socket, lambda p: p.node)
        cores_of_node = group(lambda p: p.node, lambda p: p.core)
        object.__setattr__(self, "nodes_of_socket", {k: tuple(sorted(v)) for k, v in nodes_of_socket.items()})
        object.__setattr__(self, "cores_of_node", {k: tuple(sorted(v)) for k, v in cores_of_node.items()})

    @property
    def cpus(self) -> CpuSet:
        """Ids of all CPUs."""
        return frozenset(place.cpu for place in self.places)


def simulated_places(cpus: int) -> tuple[CpuPlace, ...]:
    """Return the places of the CPUs of a simulated node with two NUMA nodes. Core k has the CPUs 2k and 2k+1. Each NUMA
    node is a socket. If the number of CPUs is not a multiple of four, there is only one NUMA node.
    """
    half = cpus // 2 if cpus % 4 == 0 else cpus
    return tuple(CpuPlace(cpu=cpu, core=cpu // 2, socket=cpu // half, node=cpu // half) for cpu in range(cpus))


def take_packed(topology: CpuTopology, count: int, available: CpuSet | None = None) -> CpuSet | None:
    """Choose `count` CPUs that use as few sockets, NUMA nodes and cores as possible. Whole free sockets are taken
    first, then whole free NUMA nodes, whole free cores, and single CPUs. A socket, NUMA node or core is free if all its
    CPUs are available. Among equals, the one with the fewest available CPUs comes first, then the smaller id. NUMA
    nodes are ordered by socket, cores by NUMA node.

    `available`: CPUs to choose from; None: all.

    Returns:
        The chosen CPUs; empty for count < 1. None if fewer than `count` CPUs are available.

    Source: protocol spec, 7.3 (steps 1-5); agent spec, 4.7.1; vectors protocol/node_reservation, agent/cpu_shared_pool.
    """
    if count < 1:
        return EMPTY
    untaken = set(topology.cpus if available is None else available & topology.cpus)
    if count > len(untaken):
        return None
    taken: set[int] = set()

    def ordered(ids: Iterable[int], members: _Members) -> list[int]:
        counted = [(len(members[unit] & untaken), unit) for unit in ids]
        return [unit for left, unit in sorted(counted) if left]

    def socket_order() -> list[int]:
        return ordered(topology.sockets, topology.sockets)

    def node_order() -> list[int]:
        return [node for socket in socket_order() for node in ordered(topology.nodes_of_socket[socket], topology.nodes)]

    def core_order() -> list[int]:
        return [core for node in node_order() for core in ordered(topology.cores_of_node[node], topology.cores)]

    steps = ((socket_order, topology.sockets), (node_order, topology.nodes), (core_order, topology.cores))
    for order, members in steps:
        for unit in order():
            cpus = members[unit]
            if cpus <= untaken and len(cpus) <= count - len(taken):
                untaken -= cpus
                taken |= cpus
    if len(taken) < count:
        # the order is fixed before the first single CPU goes: taking one must not move its core
        single = [cpu for core in core_order() for cpu in sorted(topology.cores[core] & untaken)]
        taken.update(single[: count - len(taken)])
    return frozenset(taken)
