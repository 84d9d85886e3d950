"""The report about CPUs and NUMA nodes: content of the NodeResourceTopology.

Source: agent spec, 4.7.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from koordcore.events.envelope import Event
from koordcore.events.nodestate import CpuCache, DeviceInventoryChanged, NodeTopologyReported, TopologyZone
from koordcore.protocol import keys
from koordcore.protocol.annotations.cpu import HIGHEST_ZONE, KubeletCpuManagerPolicy, SystemQosResource
from koordcore.protocol.annotations.node import numa_zone_reserved
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values import codec
from koordcore.values.cpuset import EMPTY, format_cpuset
from koordcore.values.quantity import ZERO
from koordcore.values.resources import ResourceList
from koordcore.values.topology import CpuTopology

from koord_agent.domain.node.cpu_pools import CpuPools
from koord_agent.domain.node.kubelet import KubeletConfiguration, static_reserved_cpus, topology_policy

HUGEPAGES: Final = {2048: "hugepages-2Mi", 1_048_576: "hugepages-1Gi"}
"""Page size in KiB -> resource name."""
KIBIBYTE: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaMemory:
    """Memory of one NUMA node: total bytes, and page size in KiB -> number of huge pages."""

    total_bytes: int
    hugepages: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """One NUMA node in the report, named `node-<id>`: amounts of cpu in milli-cores, of everything else in bytes."""

    name: str
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]


def zones(
    topology: CpuTopology,
    memory: Mapping[int, NumaMemory],
    *,
    report_hugepages: bool = False,
    numa_reservation: tuple[ResourceList, ResourceList] | None = None,
) -> tuple[Zone, ...]:
    """Return a zone `node-<id>` for each NUMA node, by its id in the kernel, which may have holes.

    A node with only CPUs or only memory (CXL, GH200) is a zone with the other amount 0. A node with neither is left
    out. `memory` is by node. `numa_reservation` is capacity and allocatable of a node with the label
    enable-numa-reservation. The difference is subtracted evenly from the zones that have the resource, rounded up in
    milli-units.

    Source: agent spec, 4.7 (7), which reports nothing at all instead; reality, 4.10.
    """
    with_cpus, with_memory = topology.nodes.keys(), {node for node, of in memory.items() if of.total_bytes}
    reserved_milli: dict[str, int] = {}
    if numa_reservation is not None:
        for name, having in ((CPU, with_cpus), (MEMORY, with_memory)):
            reserved = numa_zone_reserved(*numa_reservation, max(len(having), 1))
            reserved_milli[name] = reserved.get(name, ZERO).milli()
    found: list[Zone] = []
    for node in sorted(with_cpus | with_memory):
        of_node = memory.get(node, NumaMemory(total_bytes=0, hugepages={}))
        pages = {
            name: of_node.hugepages.get(size, 0) * size * KIBIBYTE if report_hugepages else 0
            for size, name in HUGEPAGES.items()
        }
        cpu_milli = len(topology.nodes.get(node, EMPTY)) * 1000
        memory_bytes = max(of_node.total_bytes - sum(pages.values()), 0)
        left_milli_bytes = memory_bytes * 1000 - reserved_milli.get(MEMORY, 0)
        found.append(
            Zone(
                name=f"node-{node}",
                capacity={CPU: cpu_milli, MEMORY: memory_bytes, **pages},
                allocatable={
                    CPU: max(cpu_milli - reserved_milli.get(CPU, 0), 0),
                    MEMORY: max(-(-left_milli_bytes // 1000), 0),
                    **pages,
                },
            )
        )
    return tuple(found)


def zone_problems(topology: CpuTopology, memory: Mapping[int, NumaMemory | None]) -> tuple[str, ...]:
    """What the zones of a report lack, one sentence each. `memory` is by NUMA node, None if unreadable."""
    unreadable = sorted(node for node, of in memory.items() if of is None)
    absent = sorted(topology.nodes.keys() - memory.keys())
    ignored = sorted(node for node in topology.nodes.keys() | memory.keys() if node > HIGHEST_ZONE)
    return (
        *(f"memory of NUMA node {node} cannot be read" for node in unreadable),
        *(f"NUMA node {node} has CPUs, but the kernel does not list it: its memory is unknown" for node in absent),
        *(f"NUMA node {node}: the scheduler ignores zones above {HIGHEST_ZONE}" for node in ignored),
    )


DEVICES_OF: Final = "devices of "
"""Before the name of a node: the key under which the digest of its devices is stored."""
MANAGED_BY: Final = {keys.MANAGED_BY: keys.MANAGED_BY_KOORDINATOR}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTopology:
    topology: CpuTopology
    memory: Mapping[int, NumaMemory]  # By NUMA node
    basic: Mapping[str, str | bool]  # cpuModel, hyperThreadEnabled and so on; empty and false values are left out
    # Configuration of the kubelet; None if there is no kubelet or it has not answered yet.
    kubelet: KubeletConfiguration | None = None
    l3_caches: Sequence[CpuCache] = ()  # L3 caches; empty if unknown


def topology_reported(
    found: NodeTopology,
    pools: CpuPools,
    *,
    labels: Mapping[str, str],
    numa_reservation: tuple[ResourceList, ResourceList],
    report_hugepages: bool = False,
) -> NodeTopologyReported:
    """Return the content of the NodeResourceTopology of a node.

    Source: agent spec, 4.7.
    """
    is_reserved = labels.get(keys.ENABLE_NUMA_RESERVATION) == "true"
    of_zones = zones(
        found.topology,
        found.memory,
        report_hugepages=report_hugepages,
        numa_reservation=numa_reservation if is_reserved else None,
    )
    kubelet = found.kubelet or KubeletConfiguration()
    copied = {key: labels[key] for key in (keys.ENABLE_NUMA_RESERVATION,) if key in labels}
    return NodeTopologyReported(
        policies=[topology_policy(kubelet.topology_manager_policy, kubelet.topology_manager_scope)],
        zones=[
            TopologyZone(name=zone.name, capacity=dict(zone.capacity), allocatable=dict(zone.allocatable))
            for zone in of_zones
        ],
        annotations=_annotations(found, pools),
        labels={**MANAGED_BY, **copied},
        l3_caches=list(found.l3_caches),
    )


def report_digest(report: Event) -> str:
    """Reports with equal digests have the same content. The time at which devices were discovered does not count."""
    if isinstance(report, DeviceInventoryChanged):
        annotations = {key: text for key, text in report.annotations.items() if key != keys.DEVICE_DISCOVERY_TIMESTAMP}
        report = msgspec.structs.replace(report, annotations=annotations)
    return hashlib.blake2b(codec.encode_canonical(report), digest_size=16).hexdigest()


def _annotations(found: NodeTopology, pools: CpuPools) -> dict[str, str]:
    detail = [
        {"id": place.cpu, "core": place.core, "socket": place.socket, "node": place.node}
        for place in sorted(found.topology.places, key=lambda place: place.cpu)
    ]
    values: dict[str, object] = {
        keys.CPU_BASIC_INFO: {name: value for name, value in found.basic.items() if value},
        keys.CPU_TOPOLOGY: {"detail": detail},
        keys.CPU_SHARED_POOLS: pools.ls,
        keys.BE_CPU_SHARED_POOLS: pools.be,
        keys.POD_CPU_ALLOCS: pools.kubelet or None,
    }
    if found.kubelet is not None:
        values[keys.KUBELET_CPU_MANAGER_POLICY] = KubeletCpuManagerPolicy(
            policy=found.kubelet.cpu_manager_policy,
            options=found.kubelet.cpu_manager_policy_options,
            reserved_cpus=static_reserved_cpus(found.kubelet, found.topology),
        )
    if pools.reserved:
        values[keys.NODE_RESERVATION] = {"reservedCPUs": format_cpuset(pools.reserved)}
    if pools.system:
        values[keys.SYSTEM_QOS_RESOURCE] = SystemQosResource(
            cpuset=format_cpuset(pools.system), exclusive=bool(pools.system_exclusive)
        )
    return {key: codec.encode(value).decode() for key, value in values.items()}
