"""Node reservation: what a node keeps back from pods, as annotation, as resources and as CPU ids.

The scheduler trims allocatable with it, the manager and the agent deduct it, the agent resolves a quantity into CPUs.

Source:
    protocol spec, 7
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import ZERO, Quantity, of_milli, of_value
from koordcore.values.resources import ResourceList, is_zero, maximum, parse_resources
from koordcore.values.topology import CpuTopology, take_packed

POLICY_DEFAULT: Final = "Default"
POLICY_RESERVED_CPUS_ONLY: Final = "ReservedCPUsOnly"
_NEVER_TRIMMED: Final = frozenset({BATCH_CPU, BATCH_MEMORY})
"""Batch resources are computed net of the reservation already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReservation:
    """A node's reservation as written.

    Attributes:
        resources: Exact; negative entries are read as zero.
        reserved_cpus: The text, "" when only quantities are given.
        apply_policy: "" or Default: trim the scheduler's view; any other text: do not.
    """

    resources: ResourceList = field(default_factory=dict[str, Quantity])
    reserved_cpus: str = ""
    apply_policy: str = ""


NONE_RESERVED: Final = NodeReservation()


class _Annotation(msgspec.Struct, rename={"reserved_cpus": "reservedCPUs", "apply_policy": "applyPolicy"}):
    resources: dict[str, str | int | float | None] = {}
    reserved_cpus: str = ""
    apply_policy: str = ""


def parse_node_reservation(annotations: Mapping[str, str]) -> NodeReservation:
    """Return the reservation that the node's annotation states; an absent or empty annotation reserves nothing.

    Raises:
        InvalidInput: Malformed JSON or any bad quantity: callers then ignore the whole annotation (`node_reservation`
            does).

    Source:
        protocol spec, 7
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
    """As `parse_node_reservation`, a malformed annotation counting as none."""
    try:
        return parse_node_reservation(annotations)
    except InvalidInput:
        return NONE_RESERVED


def num_reserved_cpus(reservation: NodeReservation) -> int:
    """Return the number of CPUs the quantity asks for, rounded up to whole ones; 0 when ids are given explicitly.

    Source:
        protocol spec, 7.2 (1)
    """
    if reservation.reserved_cpus:
        return 0
    milli = reservation.resources.get(CPU, ZERO).milli()
    return max(0, -(-milli // 1000))


def reserved_resources(reservation: NodeReservation) -> ResourceList:
    """Return what is kept back, as resources.

    Explicit CPU ids win over the cpu quantity; an unreadable list reserves nothing.

    Source:
        protocol spec, 7.2 (2)
    """
    if not reservation.reserved_cpus:
        return dict(reservation.resources)
    try:
        count = len(parse_cpuset(reservation.reserved_cpus))
    except InvalidInput:
        return {}
    return {**reservation.resources, CPU: of_value(count)}


def kubelet_reserved(capacity: Mapping[str, Quantity], allocatable: Mapping[str, Quantity]) -> ResourceList:
    """max(0, capacity - allocatable) of cpu and memory.

    Source:
        protocol spec, 7.2 (3)
    """
    return {name: max(ZERO, capacity.get(name, ZERO) - allocatable.get(name, ZERO)) for name in (CPU, MEMORY)}


def agent_reserved(
    reservation: NodeReservation, capacity: Mapping[str, Quantity], allocatable: Mapping[str, Quantity]
) -> ResourceList:
    """Return what overcommit and suppression deduct.

    The larger of kubelet's and the annotation's, whatever the apply policy.

    Source:
        protocol spec, 7.2 (4)
    """
    return maximum(kubelet_reserved(capacity, allocatable), reserved_resources(reservation))


def numa_zone_reserved(
    capacity: Mapping[str, Quantity], allocatable: Mapping[str, Quantity], zones: int
) -> ResourceList:
    """Return what each of `zones` NUMA zones keeps back of cpu and memory.

    ceil(milli(capacity - allocatable) / zones), >= 0.

    Source:
        protocol spec, 7.5 (only with node label `enable-numa-reservation` = true)
    """
    reserved = kubelet_reserved(capacity, allocatable)
    return {name: of_milli(-(-quantity.milli() // zones)) for name, quantity in reserved.items()}


def trim_allocatable(allocatable: Mapping[str, Quantity], reservation: NodeReservation) -> ResourceList:
    """Return the scheduler's view.

    max(0, allocatable - reserved) for every reserved resource except batch cpu and memory.

    Another apply policy than "" or Default leaves allocatable as it is.

    Source:
        protocol spec, 7.4 (first row)
    """
    reserved = reserved_resources(reservation)
    if reservation.apply_policy not in ("", POLICY_DEFAULT) or is_zero(reserved):
        return dict(allocatable)
    return {
        name: quantity if name in _NEVER_TRIMMED else max(ZERO, quantity - reserved.get(name, ZERO))
        for name, quantity in allocatable.items()
    }


def reported_reserved_cpus(reservation: NodeReservation, topology: CpuTopology) -> str:
    """Return the CPU list that the agent reports.

    The explicit one in canonical form, else a packed choice from all CPUs.

    Returns:
        "" when nothing is reserved, the list is unreadable, or the node has too few CPUs.

    Source:
        protocol spec, 7.3
    """
    if reservation.reserved_cpus:
        try:
            return format_cpuset(parse_cpuset(reservation.reserved_cpus))
        except InvalidInput:
            return ""
    return format_cpuset(take_packed(topology, num_reserved_cpus(reservation)) or ())
