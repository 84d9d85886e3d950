"""Raw kernel counters as values: one reading of /proc and of one cgroup directory.

This is the first step of measuring: a host (`koord_agent.shell.host`) reads texts, this module parses them,
`domain.metrics.usage` turns two readings into usage, and `domain.metrics.monitor` keeps the series.
`domain.strategies.contention.contentions` turns two readings of waiting times, disks and connections into signals. This
module computes no rates. `at_ns` is the time of a reading: real on a real host, simulated on a simulated one.

Source: agent spec, 6.8, 18.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

BUSY_FIELDS = (0, 1, 2, 5, 6)
"""Columns of a `cpu` line that count as used: user, nice, system, irq, softirq (agent spec, 6.1)."""

NANOSECONDS_PER_MICROSECOND = 1_000
KIBIBYTE = 1024
PAGE_BYTES = 4096

_U64_DIGITS: Final = 20
_MEMORY_KEYS: Final = (
    "inactive_anon",
    "active_anon",
    "unevictable",
    "inactive_file",
    "active_file",
)
_MEMORY_OF_VERSION: Final = {
    1: tuple(f"total_{key}" for key in (*_MEMORY_KEYS, "cache", "rss")),
    2: (*_MEMORY_KEYS, "file", "anon"),
}
_MEMORY_LINES: Final = {
    version: re.compile(rf"^({'|'.join(keys)}) ([0-9]{{1,20}})[ \t]*$", re.MULTILINE)
    for version, keys in _MEMORY_OF_VERSION.items()
}
_THROTTLING_LINES: Final = re.compile(
    r"^(nr_periods|nr_throttled|throttled_time|throttled_usec) ([0-9]{1,20})[ \t]*$", re.MULTILINE
)
_FIRST_COUNTER: Final = 3
_LEAST_FIELDS: Final = 11
_TCP: Final = "Tcp:"
_DEVICE: Final = re.compile(r"\d+:\d+")
RESOURCES: Final = {"cpu": "cpu.pressure", "mem": "memory.pressure", "io": "io.pressure"}
"""Name of the resource in series -> file."""
DEGREES: Final = ("some", "full")
_NUMBER: Final = r"([0-9]+(?:\.[0-9]+)?)"
_LINE: Final = re.compile(
    rf"(some|full)[ \t]+avg10={_NUMBER}[ \t]+avg60={_NUMBER}[ \t]+avg300={_NUMBER}[ \t]+total=([0-9]+)[ \t]*"
)


class MalformedCounter(ValueError):
    """Raised if a text of the kernel lacks a field. The message has the field and the text."""


def whole_number(text: str) -> int | None:
    """None for texts that are not an unsigned number of at most 64 bits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _U64_DIGITS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemInfo:
    """Bytes of /proc/meminfo."""

    total_bytes: int
    free_bytes: int
    available_bytes: int

    @property
    def used_bytes(self) -> int:
        """Memory that is not available without swapping: max(total - available, 0).

        In containers and with memory that is plugged in, the kernel may report more available memory than there is.
        """
        return max(self.total_bytes - self.available_bytes, 0)

    @property
    def with_page_cache_bytes(self) -> int:
        """Memory in use including page cache: max(total - free, 0)."""
        return max(self.total_bytes - self.free_bytes, 0)


class CgroupMemory(NamedTuple):
    """Memory in use by one cgroup and its descendants in bytes, without and with page cache."""

    used_bytes: int
    """The sum inactive_anon + active_anon + unevictable."""
    with_page_cache_bytes: int
    """The sum used_bytes + inactive_file + active_file."""


class Throttling(NamedTuple):
    """Numbers of CFS periods since the cgroup was created: all periods, and those in which it was throttled."""

    nr_periods: int
    nr_throttled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCounters:
    at_ns: int  # Time of the reading in nanoseconds
    busy_ticks: int  # Used jiffies since boot, summed over CPUs
    """Used jiffies since boot, summed over CPUs."""
    jiffy_ns: int  # Length of a jiffy in nanoseconds
    memory: MemInfo
    # CPU number -> used jiffies since boot; empty if not read.
    busy_ticks_by_cpu: Mapping[int, int] = field(default_factory=dict[int, int])
    """CPU number -> used jiffies since boot. Empty: not read."""
    cpus: int = 0  # Number of online CPUs; 0 if unknown


class CgroupCounters(NamedTuple):
    """A part that was unreadable is None."""

    at_ns: int  # Time of the reading in nanoseconds
    cpu_usage_ns: int | None  # CPU time since the cgroup was created
    memory: CgroupMemory | None  # Memory in use
    throttling: Throttling | None = None  # Throttled CFS periods


def parse_busy_ticks(stat: str) -> int:
    """Return the used jiffies of the whole node since boot, from the text of /proc/stat (agent spec, 6.1).

    Raises:
        MalformedCounter: The line `cpu` is missing, has fewer than 7 numbers, or has other texts.
    """
    for line in stat.splitlines():
        fields = line.split()
        if fields and fields[0] == "cpu":
            return _busy(fields)
    raise MalformedCounter("/proc/stat: no line 'cpu'")


def parse_busy_ticks_per_cpu(stat: str) -> dict[int, int]:
    """CPU number -> used jiffies since boot, from the lines `cpuN` of /proc/stat.

    Lines that cannot be parsed are left out.
    """
    ticks: dict[int, int] = {}
    for line in stat.splitlines():
        fields = line.split()
        cpu = whole_number(fields[0][3:]) if fields and fields[0].startswith("cpu") else None
        if cpu is None:
            continue
        try:
            ticks[cpu] = _busy(fields)
        except MalformedCounter:
            continue
    return ticks


def _busy(fields: list[str]) -> int:
    numbers = [whole_number(text) for text in fields[1:8]]
    if len(numbers) < 7 or None in numbers:
        raise MalformedCounter(f"/proc/stat: {fields[0]} needs at least 7 numbers, has {fields[1:]}")
    return sum(numbers[i] or 0 for i in BUSY_FIELDS)


def parse_meminfo(meminfo: str, prefix: str = "") -> dict[str, int]:
    """Name -> bytes of the entries `Name: N kB`. Other lines are left out.

    `prefix`, such as "Node 0 ", is cut off each line.
    """
    entries: dict[str, int] = {}
    for line in meminfo.splitlines():
        name, colon, rest = line.removeprefix(prefix).partition(":")
        value = rest.split()
        number = whole_number(value[0]) if colon and value else None
        if number is not None:
            entries[name.strip()] = number * (KIBIBYTE if value[1:] == ["kB"] else 1)
    return entries


def parse_node_memory(meminfo: str) -> MemInfo:
    """From the text of /proc/meminfo (agent spec, 6.1).

    Raises:
        MalformedCounter: MemTotal, MemFree or MemAvailable is missing.
    """
    entries = parse_meminfo(meminfo)
    return MemInfo(
        total_bytes=_entry(entries, "MemTotal", "/proc/meminfo"),
        free_bytes=_entry(entries, "MemFree", "/proc/meminfo"),
        available_bytes=_entry(entries, "MemAvailable", "/proc/meminfo"),
    )


def _entry(entries: dict[str, int], name: str, source: str) -> int:
    if name not in entries:
        raise MalformedCounter(f"{source}: no entry {name}")
    return entries[name]


def parse_flat(text: str) -> dict[str, int]:
    """Parse a kernel file with a line `key value` for each entry, such as cpu.stat and memory.stat: key -> value.

    Other lines are left out.
    """
    entries: dict[str, int] = {}
    for line in text.splitlines():
        fields = line.split()
        number = whole_number(fields[1]) if len(fields) == 2 else None
        if number is not None:
            entries[fields[0]] = number
    return entries


def parse_cgroup_memory(memory_stat: str, version: int) -> CgroupMemory:
    """From the text of memory.stat; v1 has hierarchical keys `total_...` (agent spec, 6.2).

    Raises:
        MalformedCounter: One of the seven keys is missing (cache/rss on v1, file/anon on v2 belong to them).
    """
    entries = dict(_MEMORY_LINES[version].findall(memory_stat))
    try:
        inactive_anon, active_anon, unevictable, inactive_file, active_file, _, _ = (
            int(entries[key]) for key in _MEMORY_OF_VERSION[version]
        )
    except KeyError as error:
        raise MalformedCounter(f"memory.stat: no entry {error.args[0]}") from error
    used = inactive_anon + active_anon + unevictable
    return CgroupMemory(used_bytes=used, with_page_cache_bytes=used + inactive_file + active_file)


def parse_cpu_usage_ns(text: str, version: int) -> int:
    """Return CPU time from the text of cpuacct.usage (v1, nanoseconds), or of cpu.stat with `usage_usec` (v2).

    Raises:
        MalformedCounter: The text has another form.
    """
    if version == 1:
        usage = whole_number(text.strip())
        if usage is None:
            raise MalformedCounter(f"cpuacct.usage: not a number: {text.strip()[:40]!r}")
        return usage
    return _entry(parse_flat(text), "usage_usec", "cpu.stat") * NANOSECONDS_PER_MICROSECOND


def parse_throttling(cpu_stat: str, version: int) -> Throttling:
    """From the text of cpu.stat.

    Raises:
        MalformedCounter: nr_periods, nr_throttled or throttled_time (v1) / throttled_usec (v2) is missing.
    """
    entries = dict(_THROTTLING_LINES.findall(cpu_stat))
    for name in ("throttled_time" if version == 1 else "throttled_usec", "nr_periods", "nr_throttled"):
        if name not in entries:
            raise MalformedCounter(f"cpu.stat: no entry {name}")
    return Throttling(nr_periods=int(entries["nr_periods"]), nr_throttled=int(entries["nr_throttled"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedCounters:
    """Time for which threads waited for a CPU, and the number of their time slices, since they started."""

    wait_ns: int  # Nanoseconds in which they were ready and did not run
    slices: int  # Number of their time slices


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

    None if no time slice passed or a sum fell: threads that ended take their counters with them.
    """
    wait, slices = current.wait_ns - previous.wait_ns, current.slices - previous.slices
    if wait < 0 or slices <= 0:
        return None
    return wait / slices / 1e6


class DiskCounters(NamedTuple):
    """Counters of a disk: finished reads and writes, and the milliseconds that they took together.

    The order of the fields is that of `interference.disk_await_ms`.
    """

    reads: int
    read_ms: int
    writes: int
    write_ms: int


class TcpCounters(NamedTuple):
    """Numbers of TCP segments that were sent and retransmitted, in the order of `interference.retransmit_ratio`."""

    out: int
    retransmitted: int


def parse_devices(text: str) -> frozenset[str]:
    """Return MAJ:MIN of every device in the text of `io.stat` (v2) or `blkio.throttle.io_serviced_recursive` (v1)."""
    firsts = (line.split(" ", 1)[0] for line in text.splitlines())
    return frozenset(first for first in firsts if _DEVICE.fullmatch(first))


def parse_diskstats(text: str) -> Mapping[str, DiskCounters]:
    """Return MAJ:MIN -> counters from the text of /proc/diskstats. Invalid lines are left out."""
    found: dict[str, DiskCounters] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < _LEAST_FIELDS:
            continue
        numbers = [whole_number(field) for field in fields[_FIRST_COUNTER:_LEAST_FIELDS]]
        reads, _, _, read_ms, writes, _, _, write_ms = numbers
        if reads is not None and read_ms is not None and writes is not None and write_ms is not None:
            found[f"{fields[0]}:{fields[1]}"] = DiskCounters(reads, read_ms, writes, write_ms)
    return found


def parse_tcp(text: str) -> TcpCounters:
    """From the protocol `Tcp:` in the text of /proc/<pid>/net/snmp.

    Raises:
        MalformedCounter: The text has another form.
    """
    lines = [line.split() for line in text.splitlines() if line.startswith(_TCP)]
    if len(lines) != 2:
        raise MalformedCounter(f"snmp: no names and values of Tcp: {text[:60]!r}")
    values = dict(zip(*lines, strict=False))
    out, again = whole_number(values.get("OutSegs", "")), whole_number(values.get("RetransSegs", ""))
    if out is None or again is None:
        raise MalformedCounter("snmp: OutSegs or RetransSegs is no number")
    return TcpCounters(out, again)


def common_disks(
    previous: Mapping[str, DiskCounters], current: Mapping[str, DiskCounters]
) -> tuple[DiskCounters, DiskCounters]:
    """The sums of both readings, earlier and later, over the devices that both have."""
    devices = previous.keys() & current.keys()
    before, after = ([reading[device] for device in sorted(devices)] for reading in (previous, current))
    return _sum(before), _sum(after)


def _sum(counters: list[DiskCounters]) -> DiskCounters:
    return DiskCounters(*(sum(column) for column in zip(DiskCounters(0, 0, 0, 0), *counters, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """One line of a kernel pressure (PSI) file: the share of time in which tasks waited."""

    avg10: float = 0.0  # Percent of the last 10 seconds
    avg60: float = 0.0  # Percent of the last 60 seconds
    avg300: float = 0.0  # Percent of the last 300 seconds
    total_us: int = 0  # Microseconds of waiting since the cgroup was created


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    some: Stall  # Time in which at least one task waited
    full: Stall  # Time in which all tasks waited at once
    full_supported: bool  # Whether the kernel reports `full`; otherwise it is zeros


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
    """Return the share of an interval in which a task waited, from 0 to 1 (agent spec, 18: mem-alloc).

    None if the counter fell, the interval is not positive, or the counter rose faster than time.
    """
    if interval_ns <= 0 or current.total_us < previous.total_us:
        return None
    return plausible((current.total_us - previous.total_us) * 1000 / interval_ns, 1, interval_ns)


LATE_NS: Final = 100_000_000
"""Time that may pass between the time of a reading and its counter, because the agent's thread waits for a CPU."""
INACCURACY: Final = 0.1


def plausible(rate: float, most: float, interval_ns: int) -> float | None:
    """Return min(rate, most); None if the rate is impossible, because its counter jumped.

    The time of a counter is not exact: rates of up to 10 %, or 100 ms of the interval, above `most` are possible.

    Source: reality, 4.13.
    """
    return min(rate, most) if rate <= most * (1 + max(INACCURACY, LATE_NS / interval_ns)) else None
