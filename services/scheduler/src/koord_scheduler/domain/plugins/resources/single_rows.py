"""Filters and scores of single rows without arrays, because a placement changes one node. Each function is made once
per pod class from values that its plugin has resolved. It equals a filter or score over arrays (tested).
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, cast

from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.framework.node_points import RowFunction
from koord_scheduler.domain.plugins.resources.scores import MAX_SCORE

_MOST_SHARED: Final = 1024


class SharedScores:
    """Caches scores of single nodes for all classes of pods that a score does not distinguish. Each function caches its
    result for a node until the load of the node changes. So several classes need only one evaluation of each changed
    node, if they differ only in parts that other plugins read. The first class gets a function without a cache, because
    most functions serve only one class.
    """

    def __init__(self) -> None:
        self._nodes: NodeColumns | None = None
        self._functions: dict[Hashable, RowFunction | None] = {}

    def of(self, nodes: NodeColumns, terms: Hashable, made: Callable[[], RowFunction]) -> RowFunction:
        """Return the function from a node's position to its score that belongs to `terms`. `made`: creates the function
        if these terms are new.
        """
        if nodes is not self._nodes or len(self._functions) >= _MOST_SHARED:
            self._nodes = nodes
            self._functions.clear()
        if terms not in self._functions:
            self._functions[terms] = None
            return made()
        function = self._functions[terms]
        if function is None:
            function = self._functions[terms] = _remembered(nodes, made())
        return function


def _remembered(nodes: NodeColumns, score: RowFunction) -> RowFunction:
    journal = nodes.load
    versions = journal.versions
    seen: list[int] = []
    values: list[int] = []

    def remembered(row: int) -> int:
        if row >= len(versions) or nodes.load is not journal:  # a trial does not record its changes
            return score(row)
        version = versions[row]
        if row >= len(seen):
            more = len(versions) - len(seen)
            seen.extend([-1] * more)
            values.extend([0] * more)
        if seen[row] != version:
            values[row] = score(row)
            seen[row] = version
        return values[row]

    return remembered


def lacking(
    nodes: NodeColumns, checks: Sequence[tuple[int, int, int]], restored: Mapping[int, Mapping[int, int]] | None = None
) -> RowFunction:
    """Return a function from a node's position to a filter code with one bit for each resource with too little free.
    `checks`: (bit, resource column, amount) of each resource that is compared. `restored`: node position -> resource
    column -> amount that the pod may use besides what is free; None: nothing.
    """

    def code(row: int) -> int:
        free, found = nodes.free_at, 0
        for bit, column, amount in checks:
            if amount > free[column, row]:
                found |= bit
        return found

    def code_with_restored(row: int) -> int:
        found = code(row)
        more = restored.get(row) if found and restored is not None else None
        if more is None:
            return found
        found, free = 0, nodes.free_at
        for bit, column, amount in checks:
            if amount > free[column, row] + more.get(column, 0):
                found |= bit
        return found

    return code if restored is None else code_with_restored


def free_amounts(nodes: NodeColumns, columns: Sequence[int]) -> Callable[[int], Hashable]:
    """Return a function from a node's position to the free amounts of these resource columns, as a tuple."""

    def amounts(row: int) -> Hashable:
        free = nodes.free_at
        return tuple([free[column, row] for column in columns])

    return amounts


def lacking_of(needs: Sequence[tuple[int, int]]) -> Callable[[Hashable], int]:
    """Return a function from free amounts to a filter code with a bit for each resource that is short. `needs`: (bit,
    amount) of each resource, in the order of `free_amounts`.
    """
    bits, amounts = [bit for bit, _ in needs], [amount for _, amount in needs]

    def code(state: Hashable) -> int:
        found, free = 0, cast("tuple[int, ...]", state)
        for index, bit in enumerate(bits):
            if amounts[index] > free[index]:
                found |= bit
        return found

    return code


def allocated(nodes: NodeColumns, items: Sequence[tuple[int, int, int, int]], *, is_least: bool) -> RowFunction:
    """Return a function from a node's position to its score by free (LeastAllocated) or used (MostAllocated) amounts.
    `items`: (resource column, index in `NodeColumns.non_zero`, amount, weight) of each resource; index -1: requests
    without defaults count.
    Source: scheduler-core spec, 5.3
    """

    def score(row: int) -> int:
        allocatable, total, weights = nodes.allocatable_at, 0, 0
        for column, non_zero, amount, weight in items:
            capacity = allocatable[column, row]
            if capacity <= 0:
                continue
            taken = nodes.requested_at[column, row] if non_zero < 0 else nodes.non_zero_at[non_zero, row]
            left = capacity - taken - amount
            if is_least:
                part = left * MAX_SCORE // capacity if left > 0 else 0
            else:
                part = (capacity - left) * MAX_SCORE // capacity if left > 0 else MAX_SCORE
            total += part * weight
            weights += weight
        return total // weights if weights else 0

    return score


def balanced(nodes: NodeColumns, items: Sequence[tuple[int, int]]) -> RowFunction:
    """Return a function from a node's position to its score by how evenly its resources would be used. `items`:
    (resource column, amount) of each resource.
    Source: scheduler-core spec, 5.3
    """

    def score(row: int) -> int:
        allocatable, requested = nodes.allocatable_at, nodes.requested_at
        fractions: list[float] = []
        for column, amount in items:
            capacity = allocatable[column, row]
            if capacity > 0:
                fraction = (requested[column, row] + amount) / capacity
                fractions.append(fraction if fraction < 1.0 else 1.0)
        return math.trunc((1.0 - _spread(fractions)) * MAX_SCORE)

    return score


def _spread(fractions: Sequence[float]) -> float:
    """Return the spread of the fractions as in `resource_scores.balanced_allocation`; 0 for fewer than two."""
    if len(fractions) == 2:
        return abs(fractions[0] - fractions[1]) / 2
    if len(fractions) < 2:
        return 0.0
    mean = sum(fractions) / len(fractions)
    return math.sqrt(sum([(each - mean) ** 2 for each in fractions]) / len(fractions))
