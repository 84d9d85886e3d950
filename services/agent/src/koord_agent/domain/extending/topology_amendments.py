"""Adds to the topology report of a node what hooks of installed packages return.

`node_extensions` calls the hooks.

Source: agent spec, 22.
"""

from collections.abc import Mapping

import msgspec
from koordcore.events.nodestate import NodeTopologyReported, TopologyZone

from koord_agent.domain.extending.extension_points import TopologyAdditions


def amendment(report: NodeTopologyReported, added: TopologyAdditions) -> tuple[TopologyAdditions, NodeTopologyReported]:
    """Return the additions of a hook with checked types, and the topology report with them.

    Args:
        report: The report of the agent.
        added: The additions, as the hook returned them.

    Raises:
        ValueError: They replace what the agent reports, or name a zone that does not exist.
    """
    kept = TopologyAdditions(
        annotations={str(key): str(value) for key, value in added.annotations.items()},
        zone_resources={
            zone: {str(name): int(amount) for name, amount in more.items()}
            for zone, more in added.zone_resources.items()
        },
    )
    return kept, amended(report, kept)


def amended(report: NodeTopologyReported, added: TopologyAdditions) -> NodeTopologyReported:
    """Return a topology report with additions.

    Args:
        report: The report of the agent.
        added: The additions.

    Raises:
        ValueError: They replace what the agent reports, or name a zone that does not exist.
    """
    taken = sorted(set(added.annotations) & set(report.annotations))
    if taken:
        raise ValueError(f"the agent itself reports: {', '.join(taken)}")
    unknown = sorted(set(added.zone_resources) - {zone.name for zone in report.zones})
    if unknown:
        raise ValueError(f"there is no zone {', '.join(unknown)}")
    zones = [_with_resources(zone, added.zone_resources.get(zone.name, {})) for zone in report.zones]
    return msgspec.structs.replace(report, annotations={**report.annotations, **added.annotations}, zones=zones)


def _with_resources(zone: TopologyZone, more: Mapping[str, int]) -> TopologyZone:
    taken = sorted(set(more) & set(zone.capacity))
    if taken:
        raise ValueError(f"the agent itself reports of {zone.name}: {', '.join(taken)}")
    return msgspec.structs.replace(zone, capacity={**zone.capacity, **more}, allocatable={**zone.allocatable, **more})
