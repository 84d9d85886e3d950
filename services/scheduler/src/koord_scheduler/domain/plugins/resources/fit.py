"""NodeResourcesFit: refuses nodes without room, and scores nodes by their free resources. The number of pods is one
more resource, of which every pod takes one. Batch resources are treated like other resources.

Source: scheduler-core spec, 5.2 and 5.3
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from koordcore.events.explanations import Shortage
from koordcore.protocol.hardware.device_requests import DEVICE_NAMES
from koordcore.protocol.resource_names import CPU, GPU_SHARED, MEMORY, amount_text

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import (
    PODS_COLUMN,
    BoolArray,
    Demand,
    IntArray,
    NodeColumns,
    Rows,
    row_list,
)
from koord_scheduler.domain.columns.resource_names import can_be_ignored, is_scalar
from koord_scheduler.domain.config.kubernetes_args import NodeResourcesFitArgs, UtilizationPoint
from koord_scheduler.domain.framework.cross_node_points import MOST_DETAILS
from koord_scheduler.domain.framework.extension_points import (
    AMOUNTS_FILTER,
    FILTER,
    ROW_FILTER,
    ROW_SCORE,
    ROW_STATES,
    SCORE,
)
from koord_scheduler.domain.framework.node_points import Lack, Reads, RowFunction, RowStates
from koord_scheduler.domain.plugins.resources import scores as resource_scores
from koord_scheduler.domain.plugins.resources.single_rows import (
    SharedScores,
    allocated,
    free_amounts,
    lacking,
    lacking_of,
)

_NON_ZERO: Final = (CPU, MEMORY)
_MOST_REASONS: Final = 46
"""Codes have 48 bits. If a pod has more resources than this, the others share the last bit."""


class _Item(NamedTuple):
    column: int
    non_zero: int | None  # Row of `NodeColumns.non_zero`; None if real requests count
    amount: int  # What the pod requests of it
    weight: int  # Its weight in the score


class RestoredAmounts(Protocol):
    """A plugin that knows amounts of nodes that are free for some pods only, such as unused amounts of Reservations."""

    def restored(self, pod_class: PodClass) -> Mapping[int, Mapping[int, int]] | None:
        """Return node position -> resource column -> amount that pods of the class may use besides the free amount.
        None for classes without such amounts.
        """
        ...


class _NothingRestored:
    def restored(self, pod_class: PodClass) -> None:
        return None


class NodeResourcesFit(resource_scores.RawScores):
    """The plugin NodeResourcesFit: refuses nodes with too little of a resource, and scores by free resources. Bit j + 1
    of a filter code means that resource j of the pod's demand is short. `restored`: knows amounts that are free for
    some pods only; None: there are none.
    """

    name = "NodeResourcesFit"
    extension_points = (FILTER, ROW_FILTER, SCORE, ROW_SCORE, ROW_STATES, AMOUNTS_FILTER)
    reads = Reads.LOAD

    def __init__(self, args: NodeResourcesFitArgs, restored: RestoredAmounts | None = None) -> None:
        self.args = args
        self._restored = restored or _NothingRestored()
        self._checks: WeakKeyDictionary[PodClass, tuple[tuple[int, int, int], ...]] = WeakKeyDictionary()
        self._items: WeakKeyDictionary[PodClass, tuple[_Item, ...]] = WeakKeyDictionary()
        self._shared = SharedScores()

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Refuse nodes that have less free of a resource than the pod requests. The code tells all shortages. Amounts
        that Reservations hold for the pod count as free.
        """
        checks = self._compared(pod, nodes)
        columns = np.array([column for _, column, _ in checks], np.intp)
        amounts = np.array([amount for _, _, amount in checks], np.int64)
        free = nodes.free[columns[:, None], rows]
        restored = self._restored.restored(pod)
        if restored:
            _add(free, restored, row_list(columns), rows)
        short = amounts[:, None] > free
        if not short.any():
            return None
        codes = np.zeros(len(rows), np.int64)
        for (bit, _, _), is_short in zip(checks, short, strict=True):
            codes |= np.where(is_short, bit, 0)
        return codes

    def row_filter(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        return lacking(nodes, self._compared(pod, nodes), self._restored.restored(pod))

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        return tuple(
            f"Insufficient {resource}" if index else "Too many pods"
            for index, resource in enumerate(pod.demand.names)
            if code >> min(index + 1, _MOST_REASONS) & 1
        )

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """Return for each node whether the pod would not fit even without other pods. The number of pods is not
        compared.
        """
        too_small = np.zeros(len(rows), np.bool_)
        for _, column, amount in self._compared(pod, nodes):
            if column != PODS_COLUMN:
                too_small |= nodes.allocatable[column, rows] < amount
        return too_small

    def details(self, pod: PodClass, nodes: NodeColumns, rows: Rows, reason: str) -> list[str]:
        restored = self._restored.restored(pod) or {}
        found: list[str] = []
        for row in row_list(rows[:MOST_DETAILS]):
            short: list[str] = []
            for resource, (column, amount) in zip(pod.demand.names, pod.demand.pairs, strict=True):
                free = nodes.free.item(column, row) + restored.get(row, {}).get(column, 0)
                if amount > free and not self.ignores(resource):
                    short.append(_shortage(resource, amount, free, nodes.allocatable.item(column, row)))
            if short:
                found.append(f"{nodes.names[row]}: {'; '.join(short)}")
        return found

    def lack(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> Lack:
        restored, first = self._restored.restored(pod) or {}, rows.item(0)
        among = restored.keys() & set(row_list(rows)) if restored else ()
        found: list[Shortage] = []
        for resource, (column, amount) in zip(pod.demand.names, pod.demand.pairs, strict=True):
            # The nodes were refused with one code, so the first one lacks what all of them lack.
            free = nodes.free.item(column, first) + restored.get(first, {}).get(column, 0)
            if amount <= free or self.ignores(resource):
                continue
            most = int(nodes.free[column].take(rows).max())
            for row in among:
                most = max(most, nodes.free.item(column, row) + restored[row].get(column, 0))
            largest = int(nodes.allocatable[column].take(rows).max())
            found.append(Shortage(resource, amount, max(0, most), largest))
        return Lack(found)

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return scores within 0..100 by the configured strategy. None if no configured resource counts for the pod.
        Extended resources count only if the pod requests them, cpu and memory always (with defaults).
        """
        items = self._items_of(pod, nodes)
        if not items:
            return None
        columns = np.array([item.column for item in items], np.intp)
        requested = nodes.requested[columns[:, None], rows]
        for index, item in enumerate(items):
            if item.non_zero is not None:
                requested[index] = nodes.non_zero[item.non_zero, rows]
            requested[index] += item.amount
        capacity = nodes.allocatable[columns[:, None], rows]
        weights = np.array([item.weight for item in items], np.int64)
        match self.args.scoring_strategy.type:
            case "LeastAllocated":
                return resource_scores.least_allocated(requested, capacity, weights)
            case "MostAllocated":
                return resource_scores.most_allocated(requested, capacity, weights)
            case "RequestedToCapacityRatio":
                return resource_scores.requested_to_capacity_ratio(requested, capacity, weights, self._shape())

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        items, strategy = self._items_of(pod, nodes), self.args.scoring_strategy.type
        if strategy == "RequestedToCapacityRatio":

            def by_shape(row: int) -> int:
                scores = self.score(pod, nodes, np.array([row], np.intp))
                return 0 if scores is None else int(scores[0])

            return by_shape

        terms = _terms(items)
        is_least = strategy == "LeastAllocated"
        return self._shared.of(nodes, terms, lambda: allocated(nodes, terms, is_least=is_least))

    def row_states(self, pod: PodClass, nodes: NodeColumns) -> RowStates | None:
        """Return a state that is equal for all classes that differ only in amounts of devices. The state of a node
        consists of its free amounts of the requested device resources. None for classes that may use Reservations: they
        share nothing.
        """
        if self._restored.restored(pod) is not None:
            return None
        checks = self._compared(pod, nodes)
        of_devices = [each for each in checks if nodes.resources[each[1]] in DEVICE_NAMES]
        others = tuple(each for each in checks if each not in of_devices)
        columns = tuple(column for _, column, _ in of_devices)
        bits = tuple(bit for bit, _, _ in of_devices)
        return RowStates(
            terms=(others, columns, bits, _terms(self._items_of(pod, nodes))),
            code=lacking(nodes, others),
            score=self.row_score(pod, nodes),
            state=free_amounts(nodes, columns) if columns else None,
            code_of=lacking_of([(bit, amount) for bit, _, amount in of_devices]) if columns else None,
        )

    def checks_of(self, pod: PodClass, nodes: NodeColumns) -> tuple[tuple[int, int, int], ...]:
        """Return (bit, resource column, amount) of each comparison of the filter. Empty if free amounts do not decide
        alone.
        """
        return () if self._restored.restored(pod) is not None else self._compared(pod, nodes)

    def _compared(self, pod: PodClass, nodes: NodeColumns) -> tuple[tuple[int, int, int], ...]:
        checks = self._checks.get(pod)
        if checks is None:
            checks = self._checks[pod] = tuple(
                (1 << min(index + 1, _MOST_REASONS), column, amount)
                for index, (resource, (column, amount)) in enumerate(
                    zip(pod.demand.names, pod.demand.pairs, strict=True)
                )
                if not self.ignores(resource)
            )
        return checks

    def ignores(self, resource: str) -> bool:
        """Return whether the filter does not compare this resource. The configuration can exclude resources with a
        domain outside kubernetes.io. `koordinator.sh/gpu.shared` is always excluded: admission adds this number of
        cards to every pod with GPUs, nodes offer it only with a gate, and DeviceShare compares it with the cards
        themselves.
        """
        if not can_be_ignored(resource):
            return False
        if resource == GPU_SHARED:
            return True
        group = resource.partition("/")[0]
        return resource in self.args.ignored_resources or group in self.args.ignored_resource_groups

    def _shape(self) -> Sequence[UtilizationPoint]:
        ratio = self.args.scoring_strategy.requested_to_capacity_ratio
        assert ratio is not None, "the configuration requires a shape for this strategy"
        return ratio.shape

    def _items_of(self, pod: PodClass, nodes: NodeColumns) -> tuple[_Item, ...]:
        items = self._items.get(pod)
        if items is None:
            items = self._items[pod] = tuple(self._make_items(pod.demand, nodes))
        return items

    def _make_items(self, demand: Demand, nodes: NodeColumns) -> Iterator[_Item]:
        for resource, weight in ((each.name, each.weight) for each in self.args.scoring_strategy.resources):
            if resource in _NON_ZERO:
                row = _NON_ZERO.index(resource)
                yield _Item(nodes.column(resource), row, demand.non_zero[row], weight)
                continue
            amount = max(0, demand.requests.get(resource, 0))
            if amount or not is_scalar(resource):
                yield _Item(nodes.column(resource), None, amount, weight)


def _shortage(resource: str, amount: int, free: int, allocatable: int) -> str:
    """Return what a pod needs of a resource, and what the node has of it, for people."""
    left, total = amount_text(resource, max(0, free)), amount_text(resource, allocatable)
    return f"needs {amount_text(resource, amount)} {resource}, has {left} of {total} free"


def _terms(items: Sequence[_Item]) -> tuple[tuple[int, int, int, int], ...]:
    """Return the items in the form of the function `allocated`."""
    return tuple(
        (each.column, -1 if each.non_zero is None else each.non_zero, each.amount, each.weight) for each in items
    )


def _add(free: IntArray, restored: Mapping[int, Mapping[int, int]], columns: Sequence[int], rows: Rows) -> None:
    """Add restored amounts to free ones.

    Args:
        free: Free amounts, shape (C, K); changed in place.
        restored: Row -> column -> amount.
        columns: The columns, length C.
        rows: The rows, each once, shape (K,).
    """
    places = {row: place for place, row in enumerate(row_list(rows)) if row in restored}
    amounts = [restored[row] for row in places]
    at = np.fromiter(places.values(), np.intp, len(places))
    for index, column in enumerate(columns):
        free[index, at] += np.fromiter((each.get(column, 0) for each in amounts), np.int64, len(amounts))
