"""When the pods of the trace are sent: in its order, evenly over a given time. Pure.

The trace spans five months with hours of silence; its order is kept, its gaps are not.
"""

from collections.abc import Iterator
from typing import NamedTuple

TICK_SECONDS = 0.1


class Arrival(NamedTuple):
    """Pods `begin` up to `end` (exclusive) are sent together, `at_seconds` after the first one."""

    at_seconds: float
    begin: int
    end: int


def arrivals(count: int, seconds: float, *, tick_seconds: float = TICK_SECONDS) -> Iterator[Arrival]:
    """Groups that together hold every pod exactly once, in order; the last one is sent within `seconds`.

    count     pods in all
    seconds   from the first to the last, real time; 0 sends everything at once
    """
    ticks = max(1, int(seconds / tick_seconds))
    begin = 0
    for tick in range(ticks):
        end = (tick + 1) * count // ticks
        if end > begin:
            yield Arrival(tick * tick_seconds, begin, end)
        begin = end
