"""Node columns: one row per node and one array per property, so that a plugin evaluates all nodes at once.

A column is created when its label key or set of taints is first used. A resource gets its column when a node first
offers it, because a pod may request any name and a column costs memory for all nodes (`UnofferedAmounts` has the
others). A change is recorded in two journals (`shape`: properties of the node itself, `load`: any change), from which
views update cached answers. Amounts are int64: milli-cores, bytes, whole units.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, TypeAlias

import numpy as np
from koordcore.protocol.objects import Taint
from koordcore.protocol.resource_names import (
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    GPU_SHARED,
    MEMORY,
    MID_CPU,
    MID_MEMORY,
    PODS,
)
from koordcore.values.resources import at_most_max, clamped
from numpy.typing import NDArray

from koord_scheduler.domain.columns.journal import Journal
from koord_scheduler.domain.columns.label_column import LabelColumn, grown_to
from koord_scheduler.domain.columns.label_index import LabelIndex
from koord_scheduler.domain.columns.node_shape import NodeShape, TaintSets

_NOTHING: Final[Mapping[str, int]] = {}


class UnofferedAmounts:
    """Position of a node -> resource -> requested amount, without amounts of 0. What is known of one node is found
    without a look at other nodes and their resources, of which there may be many.
    """

    def __init__(self) -> None:
        self._amounts: dict[int, dict[str, int]] = {}

    def add(self, resource: str, row: int, amount: int) -> None:
        """The amount may be negative."""
        amounts = self._amounts.setdefault(row, {})
        amounts[resource] = amounts.get(resource, 0) + amount
        if not amounts[resource]:
            del amounts[resource]
        if not amounts:
            del self._amounts[row]

    def of(self, resource: str, row: int) -> int:
        return self.on(row).get(resource, 0)

    def on(self, row: int) -> Mapping[str, int]:
        """Resource -> amount."""
        return self._amounts.get(row, _NOTHING)

    def removed(self, resource: str) -> Mapping[int, int]:
        """Remove a resource, because it gets a column. Return position of a node -> amount."""
        found = {row: amounts[resource] for row, amounts in self._amounts.items() if resource in amounts}
        for row, amount in found.items():
            self.add(resource, row, -amount)
        return found

    def leave(self, row: int) -> None:
        self._amounts.pop(row, None)


IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = NDArray[np.intp]
"""Row numbers, shape (K,)."""

PODS_COLUMN: Final = 0
"""Column of the number of pods, a resource of which every pod takes one."""
_ALWAYS: Final = (CPU, MEMORY, BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)
"""Resources with a column from the beginning. The manager offers batch and mid resources when many pods may wait."""
NOT_OFFERED: Final = 1 + len(_ALWAYS)
"""Column of every resource without a column of its own. All its amounts are always 0, so a request fits on no node."""
_NO_COLUMNS: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """The amounts that one pod takes from its node, by resource column of `NodeColumns`."""

    columns: Rows  # Resource columns, shape (J,): the number of pods first, then each resource with a request above 0
    amounts: IntArray  # The amount for each of these columns, shape (J,): milli-cores, bytes, whole units
    # `columns` and `amounts` as pairs (column, amount). Filters compare them with the free amounts.
    pairs: tuple[tuple[int, int], ...]
    names: tuple[str, ...]  # The resource of each pair
    non_zero: tuple[int, int]  # CPU in milli-cores and memory in bytes, with defaults for containers that request none
    requests: Mapping[str, int]  # The requests from which the demand was made, each at most `MAX_AMOUNT`
    # The pairs without the column `NOT_OFFERED`: what changes on a node if the pod comes or leaves.
    taken: tuple[tuple[int, int], ...]
    unoffered: tuple[tuple[str, int], ...]  # (resource, amount) of each pair with the column `NOT_OFFERED`


class NodeColumns:
    """All nodes of the cluster as arrays: a row is the position of a node, a column the index of a resource.

    `allocatable`, `requested` and `free` are int64 (R, N), resource x node; `free` may be negative. `non_zero` int64
    (2, N) is requested cpu and memory with defaults. `free_at[column, row]` and the like are single elements, which
    is faster. `taint_set` int32 (N,) indexes `taint_sets`. `name_hash` uint64 (N,) orders nodes of equal totals (see
    `ranking`), `row_at` is its inverse. `weight` int64 (N,) is the factor of the total score in percent. `unhealthy`
    counts nodes whose weight is not 100. `alive` is False for a row that is no node. `first_offered` are the resources
    that a node has offered for the first time, until the pods that request them are read again.
    """

    def __init__(self, capacity: int = 64) -> None:
        self.names: list[str] = []
        self.shape = Journal()
        self.load = Journal()
        self.resources: list[str] = [PODS]
        self.first_offered: set[str] = set()
        self.taint_sets = TaintSets()
        self.allocatable = np.zeros((8, capacity), np.int64)
        self.requested = np.zeros((8, capacity), np.int64)
        self.free = np.zeros((8, capacity), np.int64)
        self.non_zero = np.zeros((2, capacity), np.int64)
        self.alive = np.zeros(capacity, np.bool_)
        self.unschedulable = np.zeros(capacity, np.bool_)
        self.taint_set = np.zeros(capacity, np.int32)
        self.name_hash = np.zeros(capacity, np.uint64)
        self.row_at: dict[int, int] = {}
        self.weight = np.full(capacity, 100, np.int64)
        self.unhealthy = 0
        self._look_at_single()
        self._capacity = capacity
        self._rows: dict[str, int] = {}
        self._free_rows: list[int] = []
        self._shapes: dict[int, NodeShape] = {}
        self.label_index = LabelIndex(self._shapes)
        self._column_of: dict[str, int] = {PODS: PODS_COLUMN}
        self._offered: set[str] = set()
        self._unoffered = UnofferedAmounts()
        self._label_columns: dict[str, LabelColumn] = {}
        for resource in _ALWAYS:
            self.column(resource)
        self.resources.append("")  # NOT_OFFERED

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def capacity(self) -> int:
        """The length of every array, which grows by doubling."""
        return self._capacity

    def row(self, name: str) -> int | None:
        return self._rows.get(name)

    def shape_of(self, row: int) -> NodeShape:
        return self._shapes[row]

    def labels_of(self, name: str) -> Mapping[str, str]:
        return self._shapes[self._rows[name]].labels

    def node_names(self) -> Iterable[str]:
        return self._rows.keys()

    def column(self, resource: str) -> int:
        """Return the index of a resource in the first dimension of `free` and the like. Create it if the resource is
        new. The column stays for ever, so never call this for a name from a pod.
        """
        column = self._column_of.get(resource)
        if column is None:
            column = self._column_of[resource] = len(self.resources)
            self.resources.append(resource)
            if column >= len(self.allocatable):
                shape = (2 * len(self.allocatable), self._capacity)
                self.allocatable = grown_to(self.allocatable, shape)
                self.requested = grown_to(self.requested, shape)
                self.free = grown_to(self.free, shape)
                self._look_at_single()
            for row, amount in self._unoffered.removed(resource).items():
                self.requested[column, row], self.free[column, row] = amount, -amount
        return column

    def column_of(self, resource: str) -> int:
        """Return the column of a resource; `NOT_OFFERED` if no node has offered it and no plugin has asked for it."""
        return self._column_of.get(resource, NOT_OFFERED)

    def free_of(self, resource: str, row: int) -> int:
        """Return the free amount of a resource on a node, also of a resource that no node offers."""
        column = self._column_of.get(resource)
        if column is None:
            return -self._unoffered.of(resource, row)
        return self.free.item(column, row)

    def amounts_on(self, row: int) -> dict[str, tuple[int, int]]:
        """Return resource -> (allocatable, requested) on a node, if one of both is not 0."""
        found = {
            resource: (self.allocatable.item(column, row), self.requested.item(column, row))
            for column, resource in enumerate(self.resources)
        }
        found |= {resource: (0, amount) for resource, amount in self._unoffered.on(row).items()}
        return {resource: both for resource, both in found.items() if any(both)}

    def is_overfull(self, row: int) -> bool:
        """Return whether the pods of a node take more of a resource than it has, also of one that no node offers."""
        return bool((self.free[:, row] < 0).any()) or any(amount > 0 for amount in self._unoffered.on(row).values())

    def demand(self, requests: Mapping[str, int], non_zero: Mapping[str, int]) -> Demand:
        """Return the amounts that a pod takes: one pod, and all requests above 0 except `gpu.shared` (see DeviceShare).
        Every amount is at most `MAX_AMOUNT`. `non_zero` are the requests with defaults for cpu and memory
        (`pod_requests_non_zero`).
        """
        requests = at_most_max(requests)
        counted = [(name, amount) for name, amount in requests.items() if amount > 0 and name != GPU_SHARED]
        pairs = ((PODS_COLUMN, 1), *[(self.column_of(name), amount) for name, amount in counted])
        unoffered = tuple([each for each in counted if each[0] not in self._column_of])
        return Demand(
            columns=np.array([column for column, _ in pairs], np.intp),
            amounts=np.array([amount for _, amount in pairs], np.int64),
            pairs=pairs,
            names=(PODS, *[name for name, _ in counted]),
            non_zero=(clamped(non_zero.get(CPU, 0)), clamped(non_zero.get(MEMORY, 0))),
            requests=requests,
            taken=tuple([each for each in pairs if each[0] != NOT_OFFERED]) if unoffered else pairs,
            unoffered=unoffered,
        )

    def change(self, amounts: Mapping[str, int], non_zero: tuple[int, int]) -> Demand:
        """Return amounts that may be negative and that are counted without a pod, only for `take` and `give`."""
        taken = tuple([(self._column_of[name], more) for name, more in amounts.items() if name in self._column_of])
        unoffered = tuple([each for each in amounts.items() if each[0] not in self._column_of])
        return Demand(_NO_COLUMNS, _NO_COLUMNS, (), (), non_zero, amounts, taken, unoffered)

    def is_outdated(self, demand: Demand) -> bool:
        """Return whether a resource of the demand has a column now that it did not have when the demand was made. Until
        the pod is read again, filters refuse it everywhere. `take` and `give` are right nevertheless.
        """
        return any(name in self._column_of for name, _ in demand.unoffered)

    def renewed(self, demand: Demand) -> Demand:
        """Return the demand with the present columns of its resources: the same object unless it is outdated."""
        if not self.is_outdated(demand):
            return demand
        cpu, memory = demand.non_zero
        return self.demand(demand.requests, {CPU: cpu, MEMORY: memory})

    def put(self, name: str, shape: NodeShape) -> tuple[int, bool]:
        """Add or change a node. Return its position, and whether the change may make a waiting pod schedulable."""
        row = self._rows.get(name)
        is_new = row is None
        if row is None:
            row = self._new_row(name)
        before = self._shapes.get(row)
        if before == shape:
            return row, False
        self._shapes[row] = shape
        self._weigh(row, shape.weight)
        for resource in shape.allocatable:
            if resource not in self._offered:
                self._offered.add(resource)
                self.first_offered.add(resource)
                self.column(resource)
        before_free = self.free[:, row].copy()
        amounts = np.zeros(len(self.allocatable), np.int64)
        for resource, amount in shape.allocatable.items():
            amounts[self._column_of[resource]] = clamped(amount)
        self.allocatable[:, row] = amounts
        np.subtract(amounts, self.requested[:, row], out=self.free[:, row])
        may_help = is_new or bool((self.free[:, row] > before_free).any())
        if before is None or (before.labels, before.taints, before.unschedulable) != (
            shape.labels,
            shape.taints,
            shape.unschedulable,
        ):
            self.unschedulable[row] = shape.unschedulable
            self._taint(row, shape.taints)
            for key, column in self._label_columns.items():
                column.put(row, shape.labels.get(key))
            self.label_index.changed(row, before.labels if before is not None else {}, shape.labels)
            self.shape.record(row)
            may_help = True
        self.load.record(row)
        return row, may_help

    def remove(self, name: str) -> None:
        """Remove a node and set its amounts to 0. Its position is reused by a later node."""
        row = self._rows.pop(name)
        self.alive[row] = False
        self._weigh(row, 100)
        for array in (self.allocatable, self.requested, self.free, self.non_zero):
            array[:, row] = 0
        self._unoffered.leave(row)
        self.label_index.changed(row, self._shapes.pop(row).labels, {})
        for column in self._label_columns.values():
            column.put(row, None)
        self._taint(row, ())
        self.names[row] = ""
        self.row_at.pop(self.name_hash.item(row), None)
        self._free_rows.append(row)
        self.shape.record(row)
        self.load.record(row)

    def _weigh(self, row: int, weight: int) -> None:
        self.unhealthy += int(weight != 100) - int(self.weight[row] != 100)
        self.weight[row] = weight

    def take(self, row: int, demand: Demand) -> None:
        """Add the amounts of a pod to the requested ones."""
        requested, free, non_zero = self.requested_at, self.free_at, self.non_zero_at
        for column, amount in demand.taken:
            requested[column, row] += amount
            free[column, row] -= amount
        for name, amount in demand.unoffered:
            self._count(row, name, amount)
        non_zero[0, row] += demand.non_zero[0]
        non_zero[1, row] += demand.non_zero[1]
        self.load.record(row)

    def give(self, row: int, demand: Demand) -> None:
        """The exact inverse of `take`."""
        requested, free, non_zero = self.requested_at, self.free_at, self.non_zero_at
        for column, amount in demand.taken:
            requested[column, row] -= amount
            free[column, row] += amount
        for name, amount in demand.unoffered:
            self._count(row, name, -amount)
        non_zero[0, row] -= demand.non_zero[0]
        non_zero[1, row] -= demand.non_zero[1]
        self.load.record(row)

    def _count(self, row: int, resource: str, amount: int) -> None:
        """Add to the requested amount of a resource that had no column when the demand was made."""
        column = self._column_of.get(resource)
        if column is None:
            self._unoffered.add(resource, row, amount)
        else:
            self.requested_at[column, row] += amount
            self.free_at[column, row] -= amount

    def judge_anew(self) -> None:
        """Make cached filter and score results of all nodes invalid, because data outside the columns has changed."""
        for row in row_list(np.flatnonzero(self.alive)):
            self.shape.record(row)
            self.load.record(row)

    @contextmanager
    def unrecorded(self) -> Generator[None]:
        """Do not mark nodes as changed by `take` and `give` inside this context. The caller must undo its changes."""
        journal, self.load = self.load, Journal()
        try:
            yield
        finally:
            self.load = journal

    def label(self, key: str) -> LabelColumn:
        """The column is created on first use and kept up to date from then on."""
        column = self._label_columns.get(key)
        if column is None:
            column = self._label_columns[key] = LabelColumn(self._capacity)
            for row, shape in self._shapes.items():
                column.put(row, shape.labels.get(key))
        return column

    def _look_at_single(self) -> None:
        self.allocatable_at = self.allocatable.data
        self.requested_at = self.requested.data
        self.free_at = self.free.data
        self.non_zero_at = self.non_zero.data

    def _new_row(self, name: str) -> int:
        if self._free_rows:
            row = self._free_rows.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
            if row >= self._capacity:
                self._grow(2 * self._capacity)
        self._rows[name] = row
        self.alive[row] = True
        place = self.name_hash[row] = text_hash(name)
        self.row_at[place] = row
        return row

    def _grow(self, capacity: int) -> None:
        wide = (len(self.allocatable), capacity)
        self.allocatable = grown_to(self.allocatable, wide)
        self.requested = grown_to(self.requested, wide)
        self.free = grown_to(self.free, wide)
        self.non_zero = grown_to(self.non_zero, (2, capacity))
        self._look_at_single()
        self.alive = grown_to(self.alive, capacity)
        self.unschedulable = grown_to(self.unschedulable, capacity)
        self.taint_set = grown_to(self.taint_set, capacity)
        self.name_hash = grown_to(self.name_hash, capacity)
        grown = np.full(capacity, 100, np.int64)
        grown[: len(self.weight)] = self.weight
        self.weight = grown
        for column in self._label_columns.values():
            column.grow(capacity)
        self._capacity = capacity

    def _taint(self, row: int, taints: tuple[Taint, ...]) -> None:
        before: int = self.taint_set.item(row)
        self.taint_set[row] = self.taint_sets.take(taints)
        self.taint_sets.give(before)


def row_list(rows: Rows | IntArray) -> list[int]:
    return rows.tolist()


def text_hash(text: str) -> int:
    """Return a 64-bit hash of a name, which is the same in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
