"""Whether the load beside best effort rose between two cycles, so that best effort must be limited at once.

A cycle compares readings that are a second apart. A load that rises within this second is seen in part by the next
cycle, and in whole by the one after it. So the CPU times of the machine and of best effort are read more often, which
are two files. If the load rose, the usage since the last decision is measured and best effort limited by it
(`koord_agent.shell.node.node_agent`).
"""

from typing import Final, NamedTuple

LEAST_RISE_PERCENT: Final = 5
"""Percent of the node by which the load must rise. A cycle answers what is less."""
REST_PERCENT: Final = 1
"""The same right after a rise, which the last decision may have seen in part. A decision ignores less."""
LEAST_RISE_CORES: Final = 0.1


class CpuTimes(NamedTuple):
    """CPU time since some moment in the past, in nanoseconds."""

    at_ns: int
    machine_ns: int
    best_effort_ns: int


class RiseWatch:
    """Compares the load since the last look with the load that the last decision was based on.

    A decision is based on the load since the decision before it.
    """

    def __init__(self) -> None:
        self._decided: CpuTimes | None = None
        self._looked: CpuTimes | None = None
        self._answered_cores: float | None = None
        self._is_rising = False

    def decided(self, now: CpuTimes | None) -> None:
        """A decision was made. None: the CPU times are unreadable, so nothing is known until the next decision."""
        self._answered_cores = _beside_best_effort(self._decided, now)
        self._decided = self._looked = now

    def rose(self, now: CpuTimes | None, capacity_milli: int) -> bool:
        cores = _beside_best_effort(self._looked, now)
        self._looked = now
        percent = REST_PERCENT if self._is_rising else LEAST_RISE_PERCENT
        least = max(capacity_milli * percent / 100_000, LEAST_RISE_CORES)
        self._is_rising = (
            cores is not None and self._answered_cores is not None and cores - self._answered_cores >= least
        )
        return self._is_rising


def _beside_best_effort(before: CpuTimes | None, now: CpuTimes | None) -> float | None:
    """In cores. None if a reading is missing or a counter fell."""
    if before is None or now is None or now.at_ns <= before.at_ns:
        return None
    machine, best_effort = now.machine_ns - before.machine_ns, now.best_effort_ns - before.best_effort_ns
    return None if machine < 0 or best_effort < 0 else (machine - best_effort) / (now.at_ns - before.at_ns)
