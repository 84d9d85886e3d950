"""Convert the topology that our agent reports to a typed NodeResourceTopology."""

from koordcore.events.nodestate import NodeTopologyReported
from koordcore.protocol.hardware.node_topology import NodeResourceTopology, Zone, ZoneResource
from koordcore.protocol.objects import ObjectMeta
from koordcore.values.resources import quantity_of


def topology_of_agent(report: NodeTopologyReported) -> NodeResourceTopology:
    """Convert the CPUs and NUMA zones that our agent reported to a typed NodeResourceTopology."""
    return NodeResourceTopology(
        metadata=ObjectMeta(annotations=report.annotations),
        zones=[
            Zone(
                name=zone.name,
                type="Node",
                resources=[
                    ZoneResource(
                        name=name,
                        capacity=_text(name, zone.capacity.get(name, amount)),
                        allocatable=_text(name, amount),
                        available=_text(name, amount),
                    )
                    for name, amount in sorted(zone.allocatable.items())
                ],
            )
            for zone in report.zones
        ],
    )


def _text(name: str, amount: int) -> str:
    return quantity_of(name, amount).canonical()
