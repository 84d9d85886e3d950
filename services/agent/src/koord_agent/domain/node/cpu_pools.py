"""CPUs of each kind of pods: shared pools of latency-sensitive and best-effort pods, and exclusive CPUs.

Source: agent spec, 4.7.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from koordcore.protocol.annotations.cpu import parse_system_qos_resource
from koordcore.protocol.annotations.node import node_reservation, reported_reserved_cpus
from koordcore.protocol.qos import QosClass
from koordcore.values.cpuset import EMPTY, CpuSet, format_cpuset, parse_cpuset
from koordcore.values.topology import CpuTopology

from koord_agent.domain.node.kubelet import KubeletAllocation, kubelet_allocations
from koord_agent.domain.node.pods import AgentPod


class SharedPool(msgspec.Struct, frozen=True):
    """The CPUs of one NUMA node that several pods share; the CPU list is "" if no CPU is left."""

    socket: int
    node: int
    cpuset: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuPools:
    ls: tuple[SharedPool, ...]  # Shared pools of latency-sensitive pods, sorted by socket and NUMA node
    be: tuple[SharedPool, ...]  # Shared pools of best-effort pods, sorted by socket and NUMA node
    reserved: CpuSet  # CPUs of the node reservation
    system_exclusive: CpuSet  # CPUs of system QoS that no other pod may use
    kubelet: tuple[KubeletAllocation, ...]  # CPUs that a static CPU manager assigned to pods
    system: CpuSet = EMPTY  # CPUs of system QoS, whether other pods may use them or not
    strict: CpuSet = EMPTY  # CPUs that the kubelet keeps free of all containers (strict-cpu-reservation)

    @property
    def kept_free(self) -> CpuSet:
        """CPUs of no pool: those of the node reservation, and those that the kubelet keeps free."""
        return self.reserved | self.strict


def cpu_pools(
    topology: CpuTopology,
    pods: Sequence[AgentPod],
    annotations: Mapping[str, str],
    kubelet_entries: Mapping[str, Mapping[str, str]],
    strict: CpuSet = EMPTY,
) -> CpuPools:
    """Compute which CPUs each kind of pods may use now.

    `kubelet_entries` are those of the CPU manager's state; empty without the static policy. `strict` are the CPUs that
    the kubelet keeps free of all containers.

    Raises:
        InvalidInput: The annotation of system QoS of the node is invalid. Then this cycle reports nothing.

    Source: agent spec, 4.7 (1 to 5); reality, 4.9.
    """
    allocations, pinned = kubelet_allocations(kubelet_entries, pods)
    free = topology.cpus - pinned
    ls = free - _owned(pods)
    be = free - _owned(pod for pod in pods if pod.qos_label == QosClass.LSE)
    reserved = parse_cpuset(reported_reserved_cpus(node_reservation(annotations), topology))
    of_system = parse_system_qos_resource(annotations)
    system = EMPTY if of_system is None else parse_cpuset(of_system.cpuset)
    exclusive = system if of_system is not None and of_system.exclusive else EMPTY
    without = reserved | exclusive | strict
    return CpuPools(
        ls=_grouped(topology, ls, without=without),
        be=_grouped(topology, be, without=without),
        reserved=reserved,
        system_exclusive=exclusive,
        kubelet=allocations,
        system=system,
        strict=strict,
    )


def _owned(pods: Iterable[AgentPod]) -> CpuSet:
    return frozenset(cpu for pod in pods for cpu in pod.cpuset)


def _grouped(topology: CpuTopology, pool: CpuSet, *, without: CpuSet) -> tuple[SharedPool, ...]:
    """By socket and NUMA node. A pool stays in the list even if `without` contains all its CPUs."""
    groups: dict[tuple[int, int], set[int]] = {}
    for place in topology.places:
        if place.cpu in pool:
            groups.setdefault((place.socket, place.node), set()).add(place.cpu)
    return tuple(
        SharedPool(socket=socket, node=node, cpuset=format_cpuset(groups[socket, node] - without))
        for socket, node in sorted(groups)
    )
