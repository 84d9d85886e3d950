"""Scores of devices and nodes by their free amounts.

Source: scheduler-fine-grained spec, 2.11.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

MAX_SCORE: Final = 100


class DeviceScoring(NamedTuple):
    """The scoring strategy for devices: least or most allocated first, and the weight of each resource.

    Attributes:
        weights: (Resource name, weight), each weight above 0.
        is_least: True for LeastAllocated, False for MostAllocated.
    """

    weights: tuple[tuple[str, int], ...] = ()
    is_least: bool = True


NO_SCORING: Final = DeviceScoring()
"""All scores are 0."""


def device_score(
    request: Mapping[str, int], total: Mapping[str, int], free: Mapping[str, int], scoring: DeviceScoring
) -> int:
    """Return the score within 0..100 of one device, or of sums over devices, for a request.

    Args:
        request: Amounts by resource name; a missing name counts as 0.
        total: Capacity; resources without capacity do not count.
        free: Free part of the capacity.
        scoring: The strategy.
    """
    sum_, weights = 0, 0
    for name, weight in scoring.weights:
        capacity = total.get(name, 0)
        if capacity <= 0:
            continue
        left = free.get(name, 0)
        requested = capacity if left > capacity else capacity - left + request.get(name, 0)
        if not scoring.is_least:
            part = min(requested, capacity) * MAX_SCORE // capacity
        else:
            part = (capacity - requested) * MAX_SCORE // capacity if requested <= capacity else 0
        sum_ += weight * part
        weights += weight
    return sum_ // weights if weights else 0
