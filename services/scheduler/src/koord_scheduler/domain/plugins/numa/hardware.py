"""The CPUs, zones and CPU policies of a node, read once from its NodeResourceTopology, labels and annotations. CPUs
that the node reserves are never given to pods by the scheduler.

Source: scheduler-fine-grained spec, 1.1, 1.2, 1.5 (1), 1.9, 4.3; vectors scheduler/node_reserved_cpus
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.amplification import NO_RATIO, amplify, parse_ratios
from koordcore.protocol.annotations.cpu import (
    HIGHEST_ZONE,
    KubeletCpuManagerPolicy,
    KubeletCpus,
    NodeCpuBindPolicy,
    node_cpu_bind_policy,
    parse_cpu_topology,
    parse_kubelet_cpu_manager_policy,
    parse_kubelet_cpus,
    parse_system_qos_resource,
)
from koordcore.protocol.annotations.node import node_reservation, num_reserved_cpus, reported_reserved_cpus
from koordcore.protocol.hardware.node_topology import NodeResourceTopology
from koordcore.protocol.objects import Node
from koordcore.protocol.resource_names import CPU
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import MAX_AMOUNT, Amounts, parse_amounts
from koordcore.values.topology import CpuTopology

from koord_scheduler.domain.framework.topology_hints import TopologyPolicy
from koord_scheduler.domain.plugins.numa.cpu_layout import CpuLayout, CpuMask, known_mask


def reserved_cpus(
    layout: CpuLayout,
    annotations: Mapping[str, str],
    kubelet: KubeletCpuManagerPolicy,
    allocs: Iterable[KubeletCpus],
) -> CpuMask:
    """Return the CPUs of a node that the scheduler never binds to pods. These are the CPUs of the node reservation, of
    pods with QoS SYSTEM, and those that the kubelet reserves or manages. `annotations`: Annotations with node
    reservation and CPUs of system QoS; invalid ones count as absent.
    """
    texts = [alloc.cpuset for alloc in allocs if alloc.managed_by_kubelet and alloc.uid]
    texts += [kubelet.reserved_cpus, node_reserved_cpus(layout, annotations), _system_cpus(annotations)]
    reserved = 0
    for text in texts:
        reserved |= known_mask(text)
    return reserved


def node_reserved_cpus(layout: CpuLayout, annotations: Mapping[str, str]) -> str:
    """Return the CPUs of the annotation `node.koordinator.sh/reservation` as a Linux list; "" if it reserves none. If
    the reservation is an amount, the CPUs are chosen as the agent chooses them.
    """
    reservation = node_reservation(annotations)
    if reservation.reserved_cpus or num_reserved_cpus(reservation):
        return reported_reserved_cpus(reservation, CpuTopology(layout.places))
    return ""


def _system_cpus(annotations: Mapping[str, str]) -> str:
    try:
        found = parse_system_qos_resource(annotations)
    except InvalidInput:
        return ""
    return found.cpuset if found is not None and found.exclusive else ""


def zone_cpu_left(milli: int, layout: CpuLayout | None, zone: int, reserved: CpuMask) -> int:
    """Return the CPU of a zone minus its reserved CPUs, in milli-cores, at least 0. `milli`: CPU of the zone in
    milli-cores; 0 stays 0. `layout`: the CPUs of the node; None if the node does not report them. `reserved`: CPUs that
    pods never get.
    """
    if layout is None or not milli or zone not in layout.zones:
        return milli
    return max(0, milli - 1000 * (layout.zones[zone].cpus & reserved).bit_count())


INVALID_RATIO: Final = -1.0
"""The node's amplification annotation cannot be read."""
HIGHEST_RATIO: Final = 1000.0
"""A higher amplification ratio is invalid."""
MOST_ZONES: Final = HIGHEST_ZONE + 1
"""Zones with a higher id are ignored."""
_ZONE_NAME: Final = re.compile(r"node-([0-9]{1,4})")
_POLICIES: Final = {
    f"{policy.value}{scope}": policy
    for policy in (TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE)
    for scope in ("", "PodLevel", "ContainerLevel")
}
_LABELLED: Final = {policy.value: policy for policy in TopologyPolicy}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHardware:
    """CPUs, NUMA zones and CPU policies of a node, from its NodeResourceTopology, labels and annotations."""

    layout: CpuLayout | None = None  # Its CPUs; None if the node does not report them or they are invalid
    reserved: CpuMask = 0  # CPUs that pods never get
    # Zone -> allocatable amounts, without reserved CPUs, multiplied by the amplification ratios.
    zones: Mapping[int, Amounts] = field(default_factory=dict[int, Amounts])
    ratio: float = 1.0  # Amplification ratio of the CPU of its zones; at most 1 means none
    # CPU ratio of the Node's own annotation, which the filter reads; `INVALID_RATIO` if it is invalid.
    node_ratio: float = 1.0
    bind_policy: NodeCpuBindPolicy = NodeCpuBindPolicy.NONE  # CPU bind policy that the node demands of every pod
    policy: TopologyPolicy = TopologyPolicy.NONE  # NUMA topology policy of the node
    strategy: str = ""  # Label `node.koordinator.sh/numa-allocate-strategy`; "": the plugin's arguments decide

    @property
    def is_imposing(self) -> bool:
        """Return whether the node's labels or annotations affect how CPUs of all its pods are allocated or counted.
        These are a CPU bind policy, a NUMA topology policy, and an amplification ratio above 1 or invalid.
        """
        return (
            self.bind_policy is not NodeCpuBindPolicy.NONE
            or self.policy is not TopologyPolicy.NONE
            or self.node_ratio > 1
            or self.node_ratio == INVALID_RATIO
        )


UNKNOWN: Final = NodeHardware()
"""A node without NodeResourceTopology, labels and annotations."""


def hardware_of(node: Node, topology: NodeResourceTopology | None) -> NodeHardware:
    """Return the hardware and CPU policies of a node. Invalid annotations are ignored. Only an invalid amplification
    ratio in the Node's own annotation is recorded, see `NodeHardware.node_ratio`. `topology`: its NodeResourceTopology;
    None if there is none.
    """
    labels, own = node.metadata.labels, node.metadata.annotations
    reported = {} if topology is None else topology.metadata.annotations
    layout = cpu_layout(reported.get(keys.CPU_TOPOLOGY, ""))
    kubelet = _kubelet(reported)
    annotations = {key: reported.get(key) or own.get(key, "") for key in _RESERVING}
    reserved = 0 if layout is None else reserved_cpus(layout, annotations, kubelet, _kubelet_cpus(reported))
    node_ratios, ratios = _ratios(own), _ratios(reported)
    zones = {} if topology is None else _zones(topology, layout, reserved)
    if not ratios and node_ratios:
        zones = {zone: _amplified(amounts, node_ratios) for zone, amounts in zones.items()}
        ratios = node_ratios
    policies = () if topology is None else topology.topology_policies
    policy = _LABELLED.get(labels.get(keys.NUMA_TOPOLOGY_POLICY, ""), TopologyPolicy.NONE)
    if policy is TopologyPolicy.NONE and policies:
        policy = _POLICIES.get(policies[0], TopologyPolicy.NONE)
    return NodeHardware(
        layout=layout,
        reserved=reserved,
        zones=zones,
        ratio=(ratios or {}).get(CPU, 1.0),
        node_ratio=INVALID_RATIO if node_ratios is None else node_ratios.get(CPU, 1.0),
        bind_policy=node_cpu_bind_policy(labels, kubelet),
        policy=policy,
        strategy=labels.get(keys.NUMA_ALLOCATE_STRATEGY, ""),
    )


_RESERVING: Final = (keys.NODE_RESERVATION, keys.SYSTEM_QOS_RESOURCE)


@lru_cache(maxsize=256)
def cpu_layout(text: str) -> CpuLayout | None:
    """Return the CPUs in the text of the annotation `node.koordinator.sh/cpu-topology`. None if it is invalid or has no
    CPU. Equal texts share one object.
    """
    try:
        places = parse_cpu_topology(text)
    except InvalidInput:
        return None
    return CpuLayout(places) if places else None


def _kubelet(annotations: Mapping[str, str]) -> KubeletCpuManagerPolicy:
    try:
        return parse_kubelet_cpu_manager_policy(annotations)
    except InvalidInput:
        return KubeletCpuManagerPolicy()


def _kubelet_cpus(annotations: Mapping[str, str]) -> list[KubeletCpus]:
    try:
        return parse_kubelet_cpus(annotations)
    except InvalidInput:
        return []


def _ratios(annotations: Mapping[str, str]) -> dict[str, float] | None:
    """Return the ratios by resource; None if they cannot be read."""
    try:
        ratios = parse_ratios(annotations)
    except InvalidInput:
        return None
    return ratios if all(0 <= ratio <= HIGHEST_RATIO for ratio in ratios.values()) else None


def _zones(topology: NodeResourceTopology, layout: CpuLayout | None, reserved: CpuMask) -> dict[int, Amounts]:
    """Return zone -> allocatable, without the reserved CPUs."""
    zones: dict[int, Amounts] = {}
    for zone in topology.zones:
        name = _ZONE_NAME.fullmatch(zone.name)
        if zone.type != "Node" or name is None or int(name[1]) >= MOST_ZONES:
            continue
        try:
            amounts = parse_amounts({each.name: each.allocatable for each in zone.resources})
        except InvalidInput:
            continue
        if CPU in amounts:
            amounts[CPU] = zone_cpu_left(amounts[CPU], layout, int(name[1]), reserved)
        zones[int(name[1])] = {resource: min(max(0, amount), MAX_AMOUNT) for resource, amount in amounts.items()}
    return dict(sorted(zones.items()))


def _amplified(amounts: Amounts, ratios: Mapping[str, float]) -> Amounts:
    return {name: amplify(amount, ratios.get(name, NO_RATIO)) for name, amount in amounts.items()}
