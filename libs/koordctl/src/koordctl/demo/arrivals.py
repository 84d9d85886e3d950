"""The times at which the demo submits the pods of the trace: in their order, spread evenly over a given time.

The trace spans five months with hours of silence. The demo keeps the order and drops the gaps. This module is pure.
"""

from collections.abc import Iterator
from typing import NamedTuple

TICK_SECONDS = 0.1


class Arrival(NamedTuple):
    """A group of pods that is submitted at one time.

    The group holds the pods from index `begin` up to `end` (exclusive), sent `at_seconds` after the first group.
    """

    at_seconds: float
    begin: int
    end: int


def arrivals(count: int, seconds: float, *, tick_seconds: float = TICK_SECONDS) -> Iterator[Arrival]:
    """Yield the groups in which pods are submitted, in order. Together they hold every pod exactly once.

    The last group is sent within `seconds`.

    Args:
        count: Number of pods.
        seconds: Real time from the first to the last pod; 0 sends all at once.
        tick_seconds: Time between two groups.
    """
    ticks = max(1, int(seconds / tick_seconds))
    begin = 0
    for tick in range(ticks):
        end = (tick + 1) * count // ticks
        if end > begin:
            yield Arrival(tick * tick_seconds, begin, end)
        begin = end
