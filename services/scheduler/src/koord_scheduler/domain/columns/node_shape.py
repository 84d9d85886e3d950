"""The properties of a node that do not depend on the pods on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from koordcore.protocol.annotations.node import node_reservation, trim_allocatable
from koordcore.protocol.objects import Node, Taint
from koordcore.protocol.resource_names import DEPRECATED, rename_resources
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import amount_of, parse_resources


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """The properties of a node that do not depend on the pods on it.

    Attributes:
        allocatable: Resource -> amount, after node reservation and renaming of deprecated names.
        weight: Factor of its total score in percent, below 100 for an unhealthy node (manager spec, 16.4).
    """

    allocatable: Mapping[str, int] = field(default_factory=dict[str, int])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    weight: int = 100


def node_shape(node: Node) -> NodeShape:
    """Return allocatable, labels, taints and flags of a node object. A malformed resource list counts as empty.

    Source: scheduler-core spec, 3 (node transformers); protocol spec, 7.4.
    """
    try:
        quantities = parse_resources(rename_resources(node.status.allocatable, DEPRECATED))
    except InvalidInput:
        quantities = {}
    trimmed = trim_allocatable(quantities, node_reservation(node.metadata.annotations))
    return NodeShape(
        allocatable={name: amount_of(name, quantity) for name, quantity in trimmed.items()},
        labels=node.metadata.labels,
        taints=tuple(node.spec.taints),
        unschedulable=node.spec.unschedulable,
    )
