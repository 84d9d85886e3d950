"""The largest amount of a resource with which services compute in arrays."""

from collections.abc import Mapping
from typing import Final

MAX_AMOUNT: Final = 1 << 52
"""Upper limit of amounts (4 PiB, or 4.5e12 cores), so that sums over a node and products with 1000 fit into int64."""


def clamped(amount: int) -> int:
    """Return an amount within 0..`MAX_AMOUNT`."""
    return max(0, min(amount, MAX_AMOUNT))


def at_most_max(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return amounts of resources, each at most `MAX_AMOUNT`; a pod may request more than an array can hold."""
    return {name: min(amount, MAX_AMOUNT) for name, amount in amounts.items()}
