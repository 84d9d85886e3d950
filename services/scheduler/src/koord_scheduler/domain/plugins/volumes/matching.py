"""Which volumes suit the unbound claims of a pod on a node, as kube-scheduler's volume binder decides.

Claims are matched from the smallest to the largest, each with the smallest available volume. A claim without a
volume is provisioned if its storage class can make one for the node. `Matching` keeps the results of all nodes for
claims that want the same, so a placement costs the evaluation of the nodes whose volumes it changed.

A local volume requires one value of `kubernetes.io/hostname`, a zonal one a value of `topology.kubernetes.io/zone`.
So the volumes that a node can use are found by its labels, without examining the volumes of other nodes.

Source: scheduler-core spec, 5.9
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np
from koordcore.protocol.objects import NodeSelector
from koordcore.protocol.placement import term_matches_one
from koordcore.protocol.selectors import Operator

from koord_scheduler.domain.columns.journal import Journal
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.plugins.volumes.objects import Capacity, Class, Volume, Wanted, Wants

T = TypeVar("T")
Rank = tuple[int, str]
"""Sort key: size in bytes, name."""


class Required(NamedTuple):
    """A label that nodes must have to use a volume or free storage."""

    key: str  # The label
    values: tuple[str, ...]  # Its possible values


class ByNodeLabel(Generic[T]):
    """Things that nodes can use, found by one label that each requires, in ascending order of their ranks. `required`:
    returns the label that a thing requires, or None, and whether it requires anything else of nodes. `rank`: returns
    the sort key, which is different for all things.
    """

    def __init__(self, required: Callable[[T], tuple[Required | None, bool]], rank: Callable[[T], Rank]) -> None:
        # Label key -> value -> things that require the label with this value.
        self.by_label: dict[str, dict[str, list[T]]] = {}
        self.others: list[T] = []  # All other things: they require no label with given values
        # Number of things, in `by_label` or in `others`, that require more of a node than one label with given values.
        # So their place in the index does not decide alone whether a node can use them.
        self.undecided = 0
        self._required = required
        self._rank = rank

    @property
    def is_empty(self) -> bool:
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
        """Yield the things that a node with these labels may use, in ascending order. Other requirements are not
        checked.
        """
        found = [self.others] if self.others else []
        for key, by_value in self.by_label.items():
            things = by_value.get(labels.get(key, ""))
            if things:
                found.append(things)
        return chain.from_iterable(found) if len(found) < 2 else heapq.merge(*found, key=self._rank)

    def keys(self) -> Iterable[str]:
        """Return the keys of the labels that things require. If `undecided` is 0, the values of these labels alone
        decide what a node can use.
        """
        return self.by_label.keys()


def label_of_volume(volume: Volume) -> tuple[Required | None, bool]:
    """Return the label that a volume requires of its nodes, and whether it has further requirements. The label is None
    if there is no node affinity, or if no single label with given values is necessary, as with alternative terms.
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
        """Return the smallest volume that suits a claim and that a node can use, or None. `chosen`: names of volumes
        that other claims of the pod get.
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


NO_VOLUME: Final = 1
"""Code of a node that has no volume for a claim, and for which none can be made."""
NO_SPACE: Final = 2
"""Code of a node with too little free storage to make a volume."""
_KEPT: Final = 256
"""Maximum number of different wants whose results are kept."""


@dataclass(slots=True)
class _Kept:
    """Results for all nodes, and what they were computed from."""

    codes: IntArray  # Code of each node, shape (N,)
    stamp: tuple[int, int]  # Versions of what all nodes depend on
    shape: int  # Position of the journal of node shapes
    touched: int  # Position of the journal of available volumes


class Matching:
    """Unbound volumes, storage classes, free storage; for unbound claims the code of each node, and their volumes."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self.classes: dict[str, Class] = {}  # Name -> storage class. Change it with `put_class` and `drop_class`.
        self._available: dict[str, AvailableVolumes] = {}
        self._free: dict[str, FreeStorage] = {}
        self._counted_drivers: set[str] = set()
        self._touched = Journal()
        self._changes = 0
        self._kept: dict[Wants, _Kept] = {}

    # --- what is available -------------------------------------------------------------------------------------------

    def add_volume(self, volume: Volume) -> None:
        """Add a volume to the unbound volumes that claims may get."""
        self._available.setdefault(volume.storage_class, AvailableVolumes()).add(volume)
        self._touch(volume)

    def remove_volume(self, volume: Volume) -> None:
        available = self._available[volume.storage_class]
        available.remove(volume)
        if available.is_empty:
            del self._available[volume.storage_class]
        self._touch(volume)

    def put_class(self, known: Class) -> None:
        """Add or change a storage class."""
        self.classes[known.name] = known
        self._changes += 1

    def drop_class(self, name: str) -> None:
        """Forget a storage class. No-op if it is unknown."""
        self.classes.pop(name, None)
        self._changes += 1

    def add_capacity(self, capacity: Capacity) -> None:
        """Add free storage of a CSIStorageCapacity, which must not be known yet."""
        self._free.setdefault(capacity.storage_class, FreeStorage()).add(capacity)
        self._changes += 1

    def remove_capacity(self, capacity: Capacity) -> None:
        """Remove free storage that was added."""
        free = self._free[capacity.storage_class]
        free.remove(capacity)
        if free.is_empty:
            del self._free[capacity.storage_class]
        self._changes += 1

    def count_driver(self, name: str, *, is_counted: bool) -> None:
        """Set whether the free storage of a CSI driver is known and limits its volumes."""
        (self._counted_drivers.add if is_counted else self._counted_drivers.discard)(name)
        self._changes += 1

    def _touch(self, volume: Volume) -> None:
        """Record the nodes whose results depend on the volume."""
        required, _ = label_of_volume(volume)
        most = len(self._nodes)
        rows = None if required is None else self._nodes.label_index.rows(required.key, required.values, most)
        if rows is None:
            self._changes += 1
        else:
            for row in rows:
                self._touched.record(row)

    # --- results -----------------------------------------------------------------------------------------------------

    def codes(self, wants: Wants) -> IntArray:
        """Return a filter code for each node, int64 (N,): 0 if all the wanted claims can have volumes there. Otherwise
        `NO_VOLUME` or `NO_SPACE`. The caller must not change the array, which is kept for the next call.
        """
        nodes = self._nodes
        stamp = (self._changes, nodes.capacity)
        kept = self._kept.pop(wants, None)
        if kept is None or kept.stamp != stamp:
            rows: set[int] | None = None
            kept = _Kept(np.zeros(nodes.capacity, np.int64), stamp, 0, 0)
        else:
            reshaped, touched = nodes.shape.since(kept.shape), self._touched.since(kept.touched)
            rows = None if reshaped is None or touched is None else reshaped | touched
        kept.shape, kept.touched = nodes.shape.position, self._touched.position
        changed = np.flatnonzero(nodes.alive) if rows is None else np.array(sorted(rows), np.intp)
        if len(changed):
            kept.codes[changed] = self._computed(wants, changed)
        self._kept[wants] = kept
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return kept.codes

    def plan(self, wants: Wants, row: int) -> tuple[str, ...] | int:
        """Return for one node the volume of each claim, "" for a new volume; or a filter code if a claim gets none.
        Claims choose from the smallest to the largest, each the smallest volume that suits it and is not chosen yet.
        """
        labels, name = self._nodes.shape_of(row).labels, self._nodes.names[row]
        chosen: dict[int, str] = {}
        smallest_first = sorted(range(len(wants)), key=lambda index: wants[index].size_bytes)
        for index in smallest_first:
            available = self._available.get(wants[index].storage_class)
            found = available.smallest(wants[index], labels, name, chosen.values()) if available is not None else None
            if found is not None:
                chosen[index] = found.name
        for index in smallest_first:
            code = 0 if index in chosen else self.provisioning_code(wants[index], labels)
            if code:
                return code
        return tuple(chosen.get(index, "") for index in range(len(wants)))

    def provisioning_code(self, wanted: Wanted, labels: Mapping[str, str]) -> int:
        """Return 0 if a new volume can be made for a node with these labels, otherwise a filter code. `NO_VOLUME`: the
        storage class is unknown, makes no volumes or none for such nodes. `NO_SPACE`: the free storage of its driver is
        known, and too little.
        """
        known = self.classes.get(wanted.storage_class)
        if known is None or not known.can_provision or not known.allows(labels):
            return NO_VOLUME
        if not wanted.size_bytes or known.provisioner not in self._counted_drivers:
            return 0
        free = self._free.get(known.name)
        return 0 if free is not None and free.has(wanted.size_bytes, labels) else NO_SPACE

    def _computed(self, wants: Wants, rows: Rows) -> IntArray:
        """Return the codes of some nodes, shape (K,). Nodes with equal values of the deciding labels share one."""
        keys = self._deciding_labels(wants)
        memo: dict[tuple[str | None, ...], int] = {}
        codes = np.zeros(len(rows), np.int64)
        alive = self._nodes.alive
        for index, row in enumerate(row_list(rows)):
            if not alive[row]:
                continue
            if keys is None:
                codes[index] = self._code(wants, row)
                continue
            values = tuple(map(self._nodes.shape_of(row).labels.get, keys))
            code = memo.get(values)
            if code is None:
                code = memo[values] = self._code(wants, row)
            codes[index] = code
        return codes

    def _code(self, wants: Wants, row: int) -> int:
        plan = self.plan(wants, row)
        return plan if isinstance(plan, int) else 0

    def _deciding_labels(self, wants: Wants) -> list[str] | None:
        """Return the labels of a node on which the codes depend; None if they depend on more of the node."""
        keys: set[str] = set()
        for name in {wanted.storage_class for wanted in wants}:
            known = self.classes.get(name)
            if known is not None:
                keys.update(each.key for term in known.topologies for each in term.match_label_expressions)
            for found in (self._available.get(name), self._free.get(name)):
                if found is not None and found.undecided:
                    return None
                if found is not None:
                    keys.update(found.keys())
        return sorted(keys)
