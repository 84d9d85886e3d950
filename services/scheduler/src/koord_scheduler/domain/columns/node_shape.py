"""The properties of a node that do not depend on the pods on it.

Sets of taints are numbers, because nodes share few distinct sets.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from koordcore.protocol.annotations.node import node_reservation, trim_allocatable
from koordcore.protocol.objects import Node, Taint
from koordcore.protocol.resource_names import DEPRECATED, rename_resources
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import amount_of, parse_resources


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """The properties of a node that do not depend on the pods on it."""

    # Resource -> amount, after node reservation and renaming of deprecated names.
    allocatable: Mapping[str, int] = field(default_factory=dict[str, int])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    weight: int = 100  # Factor of its total score in percent, below 100 for an unhealthy node (manager spec, 16.4)


def node_shape(node: Node) -> NodeShape:
    """A malformed resource list counts as empty. Source: scheduler-core spec, 3 (node transformers); protocol spec,
    7.4.
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


NO_TAINTS: Final = 0
"""Id of the empty set of taints."""


class TaintSets:
    """The distinct sets of taints by id, each with its number of nodes. The id of a set that no node has any more is
    used again for the next new set. Some taints have a time as their value, so a set may occur only once. The number of
    ids is bounded by the number of sets at one time.
    """

    __slots__ = ("_free", "_ids", "_nodes", "sets")

    def __init__(self) -> None:
        # Id -> taints, in the order of the node object; () for an id that no node has.
        self.sets: list[tuple[Taint, ...]] = [()]
        self._ids: dict[tuple[tuple[str, str, str], ...], int] = {}
        self._nodes: list[int] = [0]
        self._free: list[int] = []

    def take(self, taints: tuple[Taint, ...]) -> int:
        if not taints:
            return NO_TAINTS
        key = _key(taints)
        known = self._ids.get(key)
        if known is None:
            if self._free:
                known = self._free.pop()
                self.sets[known] = taints
            else:
                known = len(self.sets)
                self.sets.append(taints)
                self._nodes.append(0)
            self._ids[key] = known
        self._nodes[known] += 1
        return known

    def give(self, id_: int) -> None:
        """Count one node fewer with the set of this id, because its taints changed or it was deleted."""
        if id_ == NO_TAINTS:
            return
        self._nodes[id_] -= 1
        if not self._nodes[id_]:
            del self._ids[_key(self.sets[id_])]
            self.sets[id_] = ()
            self._free.append(id_)


def _key(taints: tuple[Taint, ...]) -> tuple[tuple[str, str, str], ...]:
    return tuple((taint.key, taint.value, taint.effect) for taint in taints)
