"""Which volumes suit the unbound claims of a pod on a node, as kube-scheduler's volume binder decides.

Claims are matched from the smallest to the largest, each with the smallest available volume. A claim without a volume
is provisioned if its storage class can make one for the node. `Matching` keeps the results of all nodes for claims
that want the same, so a placement costs the evaluation of the nodes whose volumes it changed.

Source:
    scheduler-core spec, 5.9
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from koord_scheduler.domain.columns.journal import Journal
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.volumes.available import AvailableVolumes, FreeStorage, label_of_volume
from koord_scheduler.domain.volumes.objects import Capacity, Class, Volume, Wanted, Wants

NO_VOLUME: Final = 1
"""Code of a node that has no volume for a claim, and for which none can be made."""
NO_SPACE: Final = 2
"""Code of a node with too little free storage to make a volume."""
_KEPT: Final = 256
"""Maximum number of different wants whose results are kept."""


@dataclass(slots=True)
class _Kept:
    """Results for all nodes, and what they were computed from.

    Attributes:
        codes: Code of each node, shape (N,).
        stamp: Versions of what all nodes depend on.
        shape: Position of the journal of node shapes.
        touched: Position of the journal of available volumes.
    """

    codes: IntArray
    stamp: tuple[int, int]
    shape: int
    touched: int


class Matching:
    """Unbound volumes, storage classes and free storage; for unbound claims the code of each node, and their volumes.

    Attributes:
        classes: Name -> storage class. Change it with `put_class` and `drop_class`.
    """

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self.classes: dict[str, Class] = {}
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
        """Remove a volume that was added."""
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
        """Return a filter code for each node, int64 (N,): 0 if all the wanted claims can have volumes there.

        Otherwise `NO_VOLUME` or `NO_SPACE`. The caller must not change the array, which is kept for the next call.
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

        Args:
            wants: Requirements of each claim.
            row: Position of the node.
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
        """Return 0 if a new volume can be made for a node with these labels, otherwise a filter code.

        `NO_VOLUME`: the storage class is unknown, makes no volumes or none for such nodes. `NO_SPACE`: the free storage
        of its driver is known, and too little.
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
