"""HTTP page of NodeNUMAResource about one node.

Source: scheduler-fine-grained spec, 1.11.
"""

from collections.abc import Mapping

from koordcore.values.resources import format_resources, quantity_of

from koord_scheduler.domain.plugins.numa.cpu_layout import mask_text
from koord_scheduler.domain.plugins.numa.node_book import NodeBook


def describe_node(book: NodeBook) -> dict[str, object]:
    """Return the debug page of a node as a JSON value: pods with their CPUs and zones, and the hardware of the node."""
    hardware, layout = book.hardware, book.hardware.layout
    counts = book.counts()
    exclusive: dict[int, str] = {}
    for taken in book.pods.values():
        for cpu in counts:
            if taken.cpus >> cpu & 1:
                exclusive[cpu] = str(taken.exclusive)
    return {
        "pods": {
            uid: {
                "cpuset": mask_text(taken.cpus),
                "cpuExclusivePolicy": str(taken.exclusive),
                "numaNodeResources": {str(zone): _quantities(amounts) for zone, amounts in taken.zones.items()},
            }
            for uid, taken in sorted(book.pods.items())
        },
        "allocatedCPUs": {
            str(cpu): {"refCount": count, "exclusivePolicy": exclusive.get(cpu, "None")}
            for cpu, count in counts.items()
        },
        "availableCPUs": mask_text(book.free),
        "topology": {
            "cpus": 0 if layout is None else len(layout.places),
            "cpusPerCore": 0 if layout is None else layout.cpus_per_core,
            "numaNodes": [] if layout is None else list(layout.zones),
            "sockets": [] if layout is None else list(layout.sockets),
            "reservedCPUs": mask_text(hardware.reserved),
            "cpuBindPolicy": str(hardware.bind_policy),
            "numaTopologyPolicy": hardware.policy.value,
            "numaAllocateStrategy": hardware.strategy,
            "amplificationRatio": hardware.ratio,
            "zones": {str(zone): _quantities(amounts) for zone, amounts in hardware.zones.items()},
        },
    }


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return format_resources({name: quantity_of(name, amount) for name, amount in amounts.items()})
