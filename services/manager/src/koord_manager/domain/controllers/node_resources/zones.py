"""Compute the batch resources of each NUMA zone of a node, with the formula of `batch`.

Amounts of the node are split over its zones. Shares are computed in thousandths, and each share and the result are
rounded up.

Source:
    manager spec, 5.4
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from koordcore.events.observation import NodeUsageReported
from koordcore.protocol.annotations.allocation import allocation_of
from koordcore.protocol.config.sections import CalculatePolicy, ColocationStrategy
from koordcore.protocol.hardware.node_topology import NodeResourceTopology, Zone
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_milli

from koord_manager.domain.cluster.amounts import Amount, PodUse, scaled, system_usage
from koord_manager.domain.controllers.node_resources.batch import (
    BATCH_SYSTEM_CLASSES,
    HighPriorityUse,
    node_reserved,
    use_of,
)

_MILLI = 1000


class ZoneBatch(NamedTuple):
    """Batch resources of one NUMA zone, in milli-cores and bytes."""

    cpu_milli: int
    memory_bytes: int


def compute_zones(
    node: Node,
    topology: NodeResourceTopology,
    pods: Iterable[PodUse],
    report: NodeUsageReported,
    strategy: ColocationStrategy,
) -> dict[str, ZoneBatch] | None:
    """Return zone name -> batch resources before normalization, or None if no zone reports cpu or memory.

    System usage and the reservation of the node are divided equally. A pod is divided over the zones of its
    allocation, or over all zones if it has none (manager spec, 5.4; vectors manager/batch_resource_numa).
    """
    zones = topology.zones
    capacities = [_capacity(zone) for zone in zones]
    if not any(capacity is not None for capacity in capacities):
        return None
    count = len(zones)
    ids = {zone.id for zone in zones} - {None}
    system = _split(_fine(system_usage(report, BATCH_SYSTEM_CLASSES)), count)
    reserved = _split(_fine(node_reserved(node)), count)
    uses = [HighPriorityUse()] * count
    for pod in pods:
        chosen = _zones_of(pod.pod) & ids if pod.pod else frozenset[int]()
        indices = [index for index, zone in enumerate(zones) if not chosen or zone.id in chosen]
        share = _share(pod, len(indices))
        for index in indices:
            uses[index] = uses[index].plus(share)
    return {
        zone.name: _zone_batch(capacity or Amount(), system, reserved, use, strategy)
        for zone, capacity, use in zip(zones, capacities, uses, strict=True)
    }


def _zones_of(pod: Pod) -> frozenset[int]:
    return frozenset(zone.zone for zone in allocation_of(pod.metadata.annotations).zones)


def zone_names(topology: NodeResourceTopology | None) -> Sequence[str]:
    """Return the names of all NUMA zones of a node, or nothing if no zone reports cpu or memory."""
    if topology is None or not any(_capacity(zone) is not None for zone in topology.zones):
        return ()
    return [zone.name for zone in topology.zones]


def _capacity(zone: Zone) -> Amount | None:
    """Return allocatable cpu and memory of a zone, memory in thousandths of a byte, or None if it has neither."""
    amounts: dict[str, int] = {}
    for resource in zone.resources:
        if resource.name in (CPU, MEMORY):
            try:
                amounts[resource.name] = parse_milli(resource.allocatable)
            except InvalidInput:
                continue
    return Amount(max(amounts.get(CPU, 0), 0), max(amounts.get(MEMORY, 0), 0)) if amounts else None


def _fine(amount: Amount) -> Amount:
    """Return the amount with memory in thousandths of a byte."""
    return Amount(amount.cpu, amount.memory * _MILLI)


def _split(amount: Amount, parts: int) -> Amount:
    return Amount(-(-amount.cpu // parts), -(-amount.memory // parts))


def _share(pod: PodUse, parts: int) -> HighPriorityUse:
    """Return the contribution of a pod to each of its zones.

    The larger of usage and request is taken after the split.
    """
    usage = None if pod.usage is None else _split(_fine(pod.usage), parts)
    return use_of(_split(_fine(pod.request), parts), usage, is_lse=pod.is_lse)


def _zone_batch(
    capacity: Amount, system: Amount, reserved: Amount, use: HighPriorityUse, strategy: ColocationStrategy
) -> ZoneBatch:
    """Return the batch resources of a zone, each at least 0 and at most its capacity; memory arguments are in
    thousandths of a byte.
    """
    whole_memory = -(-capacity.memory // _MILLI)
    taken = system.larger(reserved)
    cpu = capacity.cpu - scaled(capacity.cpu, 100 - strategy.cpu_reclaim_threshold_percent) - taken.cpu
    cpu -= (
        use.max_usage_request.cpu
        if strategy.cpu_calculate_policy is CalculatePolicy.MAX_USAGE_REQUEST
        else use.used.cpu
    )
    margin = scaled(whole_memory, 100 - strategy.memory_reclaim_threshold_percent) * _MILLI
    memory = capacity.memory - margin
    match strategy.memory_calculate_policy:
        case CalculatePolicy.REQUEST:
            memory -= reserved.memory + use.request.memory
        case CalculatePolicy.MAX_USAGE_REQUEST:
            memory -= taken.memory + use.max_usage_request.memory
        case CalculatePolicy.USAGE:
            memory -= taken.memory + use.used.memory
    cpu, memory = max(min(cpu, capacity.cpu), 0), max(min(-(-memory // _MILLI), whole_memory), 0)
    if strategy.batch_cpu_threshold_percent is not None:
        cpu = min(cpu, scaled(capacity.cpu, strategy.batch_cpu_threshold_percent))
    if strategy.batch_memory_threshold_percent is not None:
        memory = min(memory, scaled(whole_memory, strategy.batch_memory_threshold_percent))
    return ZoneBatch(cpu, memory)
