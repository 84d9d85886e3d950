"""How long threads wait for a CPU: the counters of /proc/<pid>/schedstat, summed over a cgroup.

Source: agent spec, 18 (sched-delay).
"""

from dataclasses import dataclass

from koord_agent.domain.kernel.counters import MalformedCounter, whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedCounters:
    """Time that threads were ready but did not run, and how often they got a CPU."""

    wait_ns: int
    slices: int


def parse_schedstat(text: str) -> SchedCounters:
    """Return one thread's `run ns, wait ns, slices`.

    Raises:
        MalformedCounter: Anything else.
    """
    numbers = [whole_number(field) for field in text.split()]
    if len(numbers) != 3 or None in numbers:
        raise MalformedCounter(f"schedstat: not three numbers: {text[:60]!r}")
    return SchedCounters(wait_ns=numbers[1] or 0, slices=numbers[2] or 0)


def sched_delay_ms(previous: SchedCounters, current: SchedCounters) -> float | None:
    """Return the mean milliseconds of waiting per time slice: delta wait / delta slices / 10^6. None means no value.

    Threads that ended take their counters with them. Then a sum falls and there is no value.
    """
    wait, slices = current.wait_ns - previous.wait_ns, current.slices - previous.slices
    if wait < 0 or slices <= 0:
        return None
    return wait / slices / 1e6
