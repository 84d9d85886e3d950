"""Annotations of a node with amounts: its reservation, network bandwidth, and overcommitted resources of third parties.

Pods do not get what `node.koordinator.sh/reservation` keeps: the scheduler reduces allocatable by it, the manager and
the agent deduct it, and the agent chooses CPUs for a reserved quantity.

Source: protocol spec, 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations.text import parse_present
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import ZERO, Quantity, of_milli, of_value, parse_quantity
from koordcore.values.resources import ResourceList, add, is_zero, maximum, parse_resources
from koordcore.values.topology import CpuTopology, take_packed

POLICY_DEFAULT: Final = "Default"
POLICY_RESERVED_CPUS_ONLY: Final = "ReservedCPUsOnly"
# Resources that are not reduced, because batch resources are already computed without the reservation.
_NEVER_TRIMMED: Final = frozenset({BATCH_CPU, BATCH_MEMORY})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReservation:
    """Resources and CPUs of a node that pods do not get, from the annotation `node.koordinator.sh/reservation`."""

    # Reserved quantities; negative ones count as zero.
    resources: ResourceList = field(default_factory=dict[str, Quantity])
    reserved_cpus: str = ""  # CPU list as written; "" if only quantities are given
    apply_policy: str = ""  # With "" or Default, the scheduler reduces allocatable by the reservation; else it does not


NONE_RESERVED: Final = NodeReservation()


class _Annotation(msgspec.Struct, rename={"reserved_cpus": "reservedCPUs", "apply_policy": "applyPolicy"}):
    resources: dict[str, str | int | float | None] = {}
    reserved_cpus: str = ""
    apply_policy: str = ""


def parse_node_reservation(annotations: Mapping[str, str]) -> NodeReservation:
    """Return the node reservation in a node's annotations; an empty reservation if it is absent or empty.

    Raises:
        InvalidInput: The annotation is not valid JSON, or a quantity is invalid. Callers then ignore the whole
            annotation, as `node_reservation` does.
    """
    text = annotations.get(keys.NODE_RESERVATION)
    if not text:
        return NONE_RESERVED
    try:
        written = lenient_json.decode(text, _Annotation)
        resources = parse_resources(written.resources)
    except InvalidInput as error:
        raise error.at(f"metadata.annotations[{keys.NODE_RESERVATION}]") from error
    return NodeReservation(
        resources={name: max(ZERO, quantity) for name, quantity in resources.items()},
        reserved_cpus=written.reserved_cpus,
        apply_policy=written.apply_policy,
    )


def node_reservation(annotations: Mapping[str, str]) -> NodeReservation:
    """Return the node reservation in a node's annotations; an empty reservation if it is absent or invalid."""
    try:
        return parse_node_reservation(annotations)
    except InvalidInput:
        return NONE_RESERVED


def num_reserved_cpus(reservation: NodeReservation) -> int:
    """Return the number of CPUs that the agent has to choose for a reservation. It is the reserved cpu quantity,
    rounded up; 0 if the reservation lists CPU ids.

    Source: protocol spec, 7.2 (1).
    """
    if reservation.reserved_cpus:
        return 0
    milli = reservation.resources.get(CPU, ZERO).milli()
    return max(0, -(-milli // 1000))


def reserved_resources(reservation: NodeReservation) -> ResourceList:
    """Return the reserved amounts of a node as a resource list. If CPU ids are listed, cpu is their number. An invalid
    CPU list reserves no CPUs.

    Source: protocol spec, 7.2 (2).
    """
    if not reservation.reserved_cpus:
        return dict(reservation.resources)
    try:
        count = len(parse_cpuset(reservation.reserved_cpus))
    except InvalidInput:
        return {}
    return {**reservation.resources, CPU: of_value(count)}


def kubelet_reserved(capacity: Mapping[str, Quantity], allocatable: Mapping[str, Quantity]) -> ResourceList:
    """Return the cpu and memory that the kubelet of a node reserves: max(0, capacity - allocatable).

    Source: protocol spec, 7.2 (3).
    """
    return {name: max(ZERO, capacity.get(name, ZERO) - allocatable.get(name, ZERO)) for name in (CPU, MEMORY)}


def agent_reserved(
    reservation: NodeReservation, capacity: Mapping[str, Quantity], allocatable: Mapping[str, Quantity]
) -> ResourceList:
    """Return the amounts that overcommit and CPU suppression deduct from a node. For each resource, it is the larger of
    what the kubelet reserves and what the node reservation contains. The apply policy is ignored.

    Source: protocol spec, 7.2 (4).
    """
    return maximum(kubelet_reserved(capacity, allocatable), reserved_resources(reservation))


def numa_zone_reserved(
    capacity: Mapping[str, Quantity], allocatable: Mapping[str, Quantity], zones: int
) -> ResourceList:
    """Return the cpu and memory that the kubelet reserves in each NUMA zone of a node. It is ceil(milli(capacity -
    allocatable) / zones), at least 0.

    Source: protocol spec, 7.5 (only with node label `enable-numa-reservation` = true).
    """
    reserved = kubelet_reserved(capacity, allocatable)
    return {name: of_milli(-(-quantity.milli() // zones)) for name, quantity in reserved.items()}


def trim_allocatable(allocatable: Mapping[str, Quantity], reservation: NodeReservation) -> ResourceList:
    """Return the allocatable of a node without its reservation, as the scheduler uses it. For every reserved resource
    except batch cpu and memory it is max(0, allocatable - reserved). If the apply policy is neither "" nor Default,
    allocatable is not reduced.

    Source: protocol spec, 7.4 (first row).
    """
    reserved = reserved_resources(reservation)
    if reservation.apply_policy not in ("", POLICY_DEFAULT) or is_zero(reserved):
        return dict(allocatable)
    return {
        name: quantity if name in _NEVER_TRIMMED else max(ZERO, quantity - reserved.get(name, ZERO))
        for name, quantity in allocatable.items()
    }


def reported_reserved_cpus(reservation: NodeReservation, topology: CpuTopology) -> str:
    """Return the CPUs that a node reservation keeps from pods, as the CPU list that the agent reports. If CPU ids are
    listed, they are returned in canonical form. Otherwise CPUs for the reserved quantity are chosen from all CPUs with
    `take_packed`.

    Returns:
        The CPU list. "" if nothing is reserved, the list is invalid, or the node has too few CPUs.

    Source: protocol spec, 7.3.
    """
    if reservation.reserved_cpus:
        try:
            return format_cpuset(parse_cpuset(reservation.reserved_cpus))
        except InvalidInput:
            return ""
    return format_cpuset(take_packed(topology, num_reserved_cpus(reservation)) or ())


def parse_network_bandwidth(annotations: Mapping[str, str]) -> Quantity | None:
    """Return the network bandwidth of a node in bits per second; None without its annotation `network-bandwidth`.

    Raises:
        InvalidInput: The text is not a quantity. The system section of the node is then unset.

    Source: protocol spec, 4.4.
    """
    return parse_present(annotations, keys.NETWORK_BANDWIDTH, parse_quantity)


class _Allocation(msgspec.Struct):
    name: str = ""
    priority: str = ""
    resources: dict[str, str | int | float | None] = {}


class _Allocations(msgspec.Struct):
    allocations: list[_Allocation] = []


def parse_third_party_allocated(annotations: Mapping[str, str], priority: str) -> ResourceList:
    """Return the batch or mid resources of a node that pods of other schedulers hold. The annotation
    `node.koordinator.sh/thirdPartyAllocations` of the node lists them; empty without it. `priority`: priority class,
    for example "koord-batch".

    Raises:
        InvalidInput: The annotation is not valid JSON, or a quantity in any entry is invalid.

    Source: protocol spec, 4.4.
    """

    def total(text: str) -> ResourceList:
        entries = lenient_json.decode(text, _Allocations).allocations
        parsed = [(entry.priority, parse_resources(entry.resources)) for entry in entries]
        return add(*(resources for name, resources in parsed if name == priority))

    return parse_present(annotations, keys.THIRD_PARTY_ALLOCATIONS, total) or {}
