"""The largest amount of a resource with which the scheduler computes."""

from collections.abc import Mapping
from typing import Final

MAX_AMOUNT: Final = 1 << 52
"""Upper limit of amounts (4 PiB, or 4.5e12 cores), so that sums over a node and products with 100 fit into int64."""


def capped(amount: int) -> int:
    """Return an amount within 0..`MAX_AMOUNT`."""
    return max(0, min(amount, MAX_AMOUNT))


def capped_amounts(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return amounts of resources, each at most `MAX_AMOUNT`; a pod may request more than an array can hold."""
    return {name: min(amount, MAX_AMOUNT) for name, amount in amounts.items()}
