"""Pressure stall information (PSI) of one cgroup: cpu.pressure, memory.pressure and io.pressure.

`avg10` of each becomes a series; `total` is used for the signal of allocation latency.

Source: agent spec, 6.8, 18.
"""

import re
from dataclasses import dataclass
from typing import Final

from koord_agent.domain.kernel.counters import MalformedCounter

RESOURCES: Final = {"cpu": "cpu.pressure", "mem": "memory.pressure", "io": "io.pressure"}
"""Name of the resource in series -> file."""
DEGREES: Final = ("some", "full")

_NUMBER: Final = r"([0-9]+(?:\.[0-9]+)?)"
_LINE: Final = re.compile(
    rf"(some|full)[ \t]+avg10={_NUMBER}[ \t]+avg60={_NUMBER}[ \t]+avg300={_NUMBER}[ \t]+total=([0-9]+)[ \t]*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """One line of a kernel pressure (PSI) file: the share of time in which tasks waited.

    Attributes:
        avg10: Percent of the last 10 seconds.
        avg60: Percent of the last 60 seconds.
        avg300: Percent of the last 300 seconds.
        total_us: Microseconds of waiting since the cgroup was created.
    """

    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0
    total_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """The content of one pressure file.

    Attributes:
        some: Time in which at least one task waited.
        full: Time in which all tasks waited at once.
        full_supported: Whether the kernel reports `full`; otherwise it is zeros.
    """

    some: Stall
    full: Stall
    full_supported: bool


def parse_pressure(text: str) -> Pressure:
    """Parse the two lines of a pressure file. A missing line `full` gives zeros and is marked as unsupported.

    Raises:
        MalformedCounter: The line `some` is missing, or there is any other line (D-8).
    """
    found: dict[str, Stall] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise MalformedCounter(f"pressure: not 'some|full avg10= avg60= avg300= total=': {line!r}")
        degree, avg10, avg60, avg300, total = match.groups()
        found[degree] = Stall(avg10=float(avg10), avg60=float(avg60), avg300=float(avg300), total_us=int(total))
    if "some" not in found:
        raise MalformedCounter("pressure: no line 'some'")
    return Pressure(some=found["some"], full=found.get("full", Stall()), full_supported="full" in found)


def stall_ratio(previous: Stall, current: Stall, interval_ns: int) -> float | None:
    """Return the share of an interval in which a task waited, from 0 to 1.

    Return None if the counter fell or the interval is not positive.

    Source:
        agent spec, 18 (mem-alloc).
    """
    if interval_ns <= 0 or current.total_us < previous.total_us:
        return None
    return (current.total_us - previous.total_us) * 1000 / interval_ns
