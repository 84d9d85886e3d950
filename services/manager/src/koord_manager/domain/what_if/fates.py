"""Compare decisions about a node, and the resulting policy of the node, between a recording and a re-run.

Source:
    manager spec, 17.3
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from koordcore.events.envelope import BasedOn, Event
from koordcore.events.nodepolicy import (
    NodeDevicesComputed,
    NodeHealthAssessed,
    NodeMetricPolicyRendered,
    NodeOvercommitComputed,
    NodeRatiosComputed,
    NodeSloRendered,
)
from koordcore.state.aggregates import NodePolicyState

from koord_manager.domain.controller_names import NODE_METRIC, NODE_RESOURCE, NODE_SLO

Configured = NodeSloRendered | NodeMetricPolicyRendered | NodeRatiosComputed
Rendered = Configured | NodeDevicesComputed
Decision = NodeOvercommitComputed | NodeHealthAssessed | Rendered
REPEATED_DECISIONS: Final = (
    NodeOvercommitComputed,
    NodeHealthAssessed,
    NodeSloRendered,
    NodeMetricPolicyRendered,
    NodeRatiosComputed,
    NodeDevicesComputed,
)
CONTROLLER_OF: Final[Mapping[type[Event], str]] = {
    NodeOvercommitComputed: NODE_RESOURCE,
    NodeSloRendered: NODE_SLO,
    NodeMetricPolicyRendered: NODE_METRIC,
    NodeRatiosComputed: NODE_RESOURCE,
    NodeDevicesComputed: NODE_RESOURCE,
}
"""Event -> controller that decides it (`enabled.CONTROLLERS`); other events cannot be switched off."""


@dataclass(frozen=True, slots=True)
class NodeFate:
    """A node whose policies differ between recording and re-run at the end of the window.

    Policies are, for example, overcommitted resources, NodeSLO and health.

    Attributes:
        node: Name of the node.
        recorded: Recorded policies, or None if nothing was published.
        rerun: Policies of the re-run, or None if nothing would be published.
    """

    node: str
    recorded: NodePolicyState | None
    rerun: NodePolicyState | None


def is_alike(found: Decision, recorded: Decision) -> bool:
    """Return whether a repeated decision about a node equals the recorded one, apart from versions and positions."""
    return without_version(found) == without_version(recorded)


def without_version(event: Decision | None) -> Decision | None:
    """Return a decision without the configuration version and the positions that it was based on; None for None."""
    if isinstance(event, NodeOvercommitComputed):
        return msgspec.structs.replace(event, config_version=0, based_on=BasedOn())
    if isinstance(event, NodeDevicesComputed) or event is None:
        return event
    return msgspec.structs.replace(event, config_version=0)


def compared_fields(policy: NodePolicyState | None) -> tuple[object, ...]:
    """Return the fields of a node's policies by which recording and re-run are compared; of empty policies for None."""
    found = policy or NodePolicyState(seq=0)
    amounts = (found.batch_cpu_milli, found.batch_memory_bytes, found.mid_cpu_milli, found.mid_memory_bytes)
    return (
        *amounts,
        found.zones,
        found.slo,
        found.metric_policy,
        found.cpu_normalization,
        found.amplification,
        level_of(found),
        found.devices,
        found.device_labels,
    )


def level_of(policy: NodePolicyState) -> tuple[str, int, dict[str, int]] | None:
    """Return the level, weight and threshold offsets of a node's health, or None if health never had an effect."""
    health = policy.health
    return (health.level, health.reported_weight, health.offsets) if health is not None else None
