"""Time that threads wait for a CPU: counters of /proc/<pid>/schedstat, summed over a cgroup.

Source: agent spec, 18 (sched-delay).
"""

from dataclasses import dataclass

from koord_agent.domain.kernel.counters import MalformedCounter, whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedCounters:
    """Time for which threads waited for a CPU, and the number of their time slices, since they started.

    Attributes:
        wait_ns: Nanoseconds in which they were ready and did not run.
        slices: Number of their time slices.
    """

    wait_ns: int
    slices: int


def parse_schedstat(text: str) -> SchedCounters:
    """Parse the text of /proc/<pid>/schedstat of one thread: `run ns, wait ns, slices`.

    Raises:
        MalformedCounter: The text has another form.
    """
    numbers = [whole_number(field) for field in text.split()]
    if len(numbers) != 3 or None in numbers:
        raise MalformedCounter(f"schedstat: not three numbers: {text[:60]!r}")
    return SchedCounters(wait_ns=numbers[1] or 0, slices=numbers[2] or 0)


def sched_delay_ms(previous: SchedCounters, current: SchedCounters) -> float | None:
    """Return the mean milliseconds of waiting per time slice: delta wait / delta slices / 10^6.

    Returns:
        The delay. None if no time slice passed or a sum fell: threads that ended take their counters with them.
    """
    wait, slices = current.wait_ns - previous.wait_ns, current.slices - previous.slices
    if wait < 0 or slices <= 0:
        return None
    return wait / slices / 1e6
