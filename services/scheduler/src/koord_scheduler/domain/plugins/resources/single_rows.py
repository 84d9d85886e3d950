"""What filters and scores say of one row without arrays: what a placement changes is one node.

Made once for each kind of pod from numbers that its plugin has resolved. Each is the twin of a filter or score over
arrays, equal to it (tested).
"""

import math
from collections.abc import Sequence

from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.framework.node_points import RowFunction
from koord_scheduler.domain.plugins.resources.resource_scores import MAX_SCORE


def lacking(nodes: NodeColumns, checks: Sequence[tuple[int, int, int]]) -> RowFunction:
    """From a row to the bits of the resources that it lacks. checks: bit, column, amount."""

    def code(row: int) -> int:
        free, found = nodes.free_at, 0
        for bit, column, amount in checks:
            if amount > free[column, row]:
                found |= bit
        return found

    return code


def allocated(nodes: NodeColumns, items: Sequence[tuple[int, int, int, int]], *, is_least: bool) -> RowFunction:
    """From a row to its score by how much would be left (is_least), or taken. source    scheduler-core spec, 5.3.

    Args:
        items: Column, row of `NodeColumns.non_zero` (-1: real requests count), amount, weight.
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
    """From a row to its score by how far apart the used fractions would be. items: column, amount.

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
    """Standard deviation of the fractions, as `resource_scores.balanced_allocation` has it; 0 of less than two."""
    if len(fractions) == 2:
        return abs(fractions[0] - fractions[1]) / 2
    if len(fractions) < 2:
        return 0.0
    mean = sum(fractions) / len(fractions)
    return math.sqrt(sum([(each - mean) ** 2 for each in fractions]) / len(fractions))
