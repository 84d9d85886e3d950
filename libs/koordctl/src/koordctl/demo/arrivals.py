"""Arrival times of the trace's pods: in the trace's order, evenly over a given time. Pure.

The trace spans five months with hours of silence. The order is kept; the gaps are not.
"""

from collections.abc import Iterator
from typing import NamedTuple

TICK_SECONDS = 0.1


class Arrival(NamedTuple):
    """Pods `begin` up to `end` (exclusive), sent together `at_seconds` after the first one."""

    at_seconds: float
    begin: int
    end: int


def arrivals(count: int, seconds: float, *, tick_seconds: float = TICK_SECONDS) -> Iterator[Arrival]:
    """Yield groups that together hold every pod exactly once, in order. The last one is sent within `seconds`.

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
