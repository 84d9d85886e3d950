"""Filters and scores of single rows without arrays, because a placement changes one node.

Each function is made once per pod class from values that its plugin has resolved. It equals a filter or score over
arrays (tested).
"""

import math
from collections.abc import Sequence

from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.framework.node_points import RowFunction
from koord_scheduler.domain.plugins.resources.resource_scores import MAX_SCORE


def lacking(nodes: NodeColumns, checks: Sequence[tuple[int, int, int]]) -> RowFunction:
    """Return a function from a row to the bits of the resources that are short.

    Args:
        nodes: All nodes.
        checks: (bit, column, amount) of each resource.
    """

    def code(row: int) -> int:
        free, found = nodes.free_at, 0
        for bit, column, amount in checks:
            if amount > free[column, row]:
                found |= bit
        return found

    return code


def allocated(nodes: NodeColumns, items: Sequence[tuple[int, int, int, int]], *, is_least: bool) -> RowFunction:
    """Return a function from a row to its score by the free share (LeastAllocated) or the taken one (MostAllocated).

    Args:
        nodes: All nodes.
        items: (column, row of `NodeColumns.non_zero`, amount, weight) of each resource; -1: real requests count.
        is_least: Whether the free share counts.

    Source:
        scheduler-core spec, 5.3
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
    """Return a function from a row to its score by the difference between the used fractions of its resources.

    Args:
        nodes: All nodes.
        items: (column, amount) of each resource.

    Source:
        scheduler-core spec, 5.3
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
