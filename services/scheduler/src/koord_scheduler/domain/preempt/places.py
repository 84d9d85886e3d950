"""Places of a node's hardware where victims of a preemption may have to leave together: NUMA zones, PCIe switches.

Source: scheduler-fine-grained spec, 1.7, 2.6.
"""

from collections.abc import Iterator
from typing import TypeAlias

from koordcore.protocol.hardware.devices import UNKNOWN_NUMA_NODE
from koordcore.values.allocation import Allocation

from koord_scheduler.domain.facts.cluster import Cluster
from koord_scheduler.domain.numa.node_book import taken_of

Place: TypeAlias = tuple[str, str]
"""A kind of place and its id on the node."""


def places_of(cluster: Cluster, row: int, allocation: Allocation) -> frozenset[Place]:
    """Return the hardware of the node at position `row` that a pod with this allocation holds, as comparable places."""
    return frozenset(_places(cluster, row, allocation))


def weight_of(allocation: Allocation) -> int:
    """Return the number of CPUs and devices of an allocation, by which pods of equal priority are compared."""
    return taken_of(allocation).cpus.bit_count() + len(allocation.devices)


def _places(cluster: Cluster, row: int, allocation: Allocation) -> Iterator[Place]:
    for zone in allocation.zones:
        yield "zone", str(zone.zone)
    layout, cpus = cluster.numa.book(row).hardware.layout, taken_of(allocation).cpus
    for zone, unit in layout.zones.items() if layout is not None and cpus else ():
        if unit.cpus & cpus:
            yield "zone", str(zone)
    inventory = cluster.devices.by_node.get(cluster.nodes.names[row])
    for device in allocation.devices if inventory is not None else ():
        card = inventory.by_minor.get(device.type, {}).get(device.minor) if inventory is not None else None
        if card is not None and card.has_topology:
            yield "switch", card.pcie
            if card.numa != UNKNOWN_NUMA_NODE:
                yield "zone", str(card.numa)
