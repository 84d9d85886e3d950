"""Volumes and free storage by the node labels that they require.

A local volume requires one value of `kubernetes.io/hostname`, a zonal one a value of `topology.kubernetes.io/zone`. So
the volumes that a node can use are found by its labels, without examining the volumes of other nodes.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

from koordcore.protocol.objects import NodeSelector
from koordcore.protocol.placement import term_matches_one
from koordcore.protocol.selectors import Operator

from koord_scheduler.domain.volumes.objects import Capacity, Volume, Wanted

T = TypeVar("T")
Rank = tuple[int, str]
"""Sort key: size in bytes, name."""


class Required(NamedTuple):
    """A label that nodes must have to use a volume or free storage.

    Attributes:
        key: The label.
        values: Its possible values.
    """

    key: str
    values: tuple[str, ...]


class ByNodeLabel(Generic[T]):
    """Things that nodes can use, found by one label that each requires, in ascending order of their ranks.

    Attributes:
        by_label: Label key -> value -> things that require the label with this value.
        others: All other things: they require no label with given values.
        undecided: Number of things, in `by_label` or in `others`, that require more of a node than one label with given
            values. So their place in the index does not decide alone whether a node can use them.

    Args:
        required: Returns the label that a thing requires, or None, and whether it requires anything else of nodes.
        rank: Returns the sort key, which is different for all things.
    """

    def __init__(self, required: Callable[[T], tuple[Required | None, bool]], rank: Callable[[T], Rank]) -> None:
        self.by_label: dict[str, dict[str, list[T]]] = {}
        self.others: list[T] = []
        self.undecided = 0
        self._required = required
        self._rank = rank

    @property
    def is_empty(self) -> bool:
        """Return whether the index has no thing."""
        return not (self.by_label or self.others)

    def add(self, thing: T) -> None:
        """Add a thing (a volume or free storage), which must not be in the index yet."""
        required, is_more = self._required(thing)
        self.undecided += is_more
        if required is None:
            insort(self.others, thing, key=self._rank)
            return
        by_value = self.by_label.setdefault(required.key, {})
        for value in dict.fromkeys(required.values):
            insort(by_value.setdefault(value, []), thing, key=self._rank)

    def remove(self, thing: T) -> None:
        """Remove a thing (a volume or free storage), which must be in the index."""
        required, is_more = self._required(thing)
        self.undecided -= is_more
        if required is None:
            self._cut(self.others, thing)
            return
        by_value = self.by_label[required.key]
        for value in dict.fromkeys(required.values):
            self._cut(by_value[value], thing)
            if not by_value[value]:
                del by_value[value]
        if not by_value:
            del self.by_label[required.key]

    def _cut(self, things: list[T], thing: T) -> None:
        del things[bisect_left(things, self._rank(thing), key=self._rank)]

    def for_node(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield the things that a node with these labels may use, in ascending order.

        Other requirements are not checked.
        """
        found = [self.others] if self.others else []
        for key, by_value in self.by_label.items():
            things = by_value.get(labels.get(key, ""))
            if things:
                found.append(things)
        return chain.from_iterable(found) if len(found) < 2 else heapq.merge(*found, key=self._rank)

    def keys(self) -> Iterable[str]:
        """Return the keys of the labels that things require.

        If `undecided` is 0, the values of these labels alone decide what a node can use.
        """
        return self.by_label.keys()


def label_of_volume(volume: Volume) -> tuple[Required | None, bool]:
    """Return the label that a volume requires of its nodes, and whether it has further requirements.

    The label is None if there is no node affinity, or if no single label with given values is necessary, as with
    alternative terms.
    """
    if volume.affinity is None:
        return None, False
    terms = volume.affinity.node_selector_terms
    if len(terms) == 1:
        conditions = [*terms[0].match_expressions, *terms[0].match_fields]
        for each in terms[0].match_expressions:
            if each.operator == "In":
                return Required(each.key, tuple(each.values)), len(conditions) > 1
    return None, True


def _label_of_capacity(capacity: Capacity) -> tuple[Required | None, bool]:
    requirements = capacity.nodes.requirements if capacity.nodes is not None else ()
    for each in requirements:
        if each.operator is Operator.IN:
            return Required(each.key, tuple(sorted(each.values))), len(requirements) > 1
    return None, bool(requirements)


def can_reach(affinity: NodeSelector | None, labels: Mapping[str, str], name: str) -> bool:
    """Return whether a node with these labels and this name can use a volume with this node affinity."""
    return affinity is None or any(term_matches_one(term, labels, name) for term in affinity.node_selector_terms)


class AvailableVolumes(ByNodeLabel[Volume]):
    """The unbound volumes of one storage class, in order of size, then of name."""

    def __init__(self) -> None:
        super().__init__(label_of_volume, lambda volume: (volume.capacity_bytes, volume.name))

    def smallest(self, wanted: Wanted, labels: Mapping[str, str], name: str, chosen: Collection[str]) -> Volume | None:
        """Return the smallest volume that suits a claim and that a node can use, or None.

        Args:
            wanted: Requirements of the claim.
            labels: Labels of the node.
            name: Name of the node.
            chosen: Names of volumes that other claims of the pod get.
        """
        for volume in self.for_node(labels):
            if volume.name not in chosen and volume.suits(wanted) and can_reach(volume.affinity, labels, name):
                return volume
        return None


class FreeStorage(ByNodeLabel[Capacity]):
    """The free storage of one class, by the labels of the nodes that have access."""

    def __init__(self) -> None:
        super().__init__(_label_of_capacity, lambda capacity: (0, capacity.id))

    def has(self, size_bytes: int, labels: Mapping[str, str]) -> bool:
        """Return whether one entry (CSIStorageCapacity) has room for a new volume, for a node with these labels.

        Entries are not summed. An entry without a known size or without a node selector never has room.
        """
        return any(
            capacity.most_bytes is not None
            and capacity.most_bytes >= size_bytes
            and capacity.nodes is not None
            and capacity.nodes.matches(labels)
            for capacity in self.for_node(labels)
        )
