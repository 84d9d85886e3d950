"""Raw kernel counters as values: what one reading of /proc and of one cgroup directory says.

The first stop of the measuring flow: a host (`koord_agent.shell.host`) hands over texts or ready counters, this module
parses them, `usage` turns two readings into usage, `monitor` keeps the series. Nothing here divides by time.
Counters carry the reading's own time base (`at_ns`): real for a real host, simulated for a simulated one.
"""

from dataclasses import dataclass

BUSY_FIELDS = (0, 1, 2, 5, 6)
"""Columns of a `cpu` line that count as used: user, nice, system, irq, softirq (agent spec, 6.1)."""

NANOSECONDS_PER_MICROSECOND = 1_000
KIBIBYTE = 1024
PAGE_BYTES = 4096


class MalformedCounter(ValueError):
    """A kernel text that lacks a needed field; the message names the field and what was there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemInfo:
    """The three values of /proc/meminfo that the agent reads, in bytes."""

    total_bytes: int
    free_bytes: int
    available_bytes: int

    @property
    def used_bytes(self) -> int:
        """Memory that cannot be had without swapping: total - available."""
        return self.total_bytes - self.available_bytes

    @property
    def with_page_cache_bytes(self) -> int:
        """Memory in use, page cache included: total - free."""
        return self.total_bytes - self.free_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupMemory:
    """Memory of one cgroup and its descendants, in bytes."""

    used_bytes: int
    """inactive_anon + active_anon + unevictable"""
    with_page_cache_bytes: int
    """used_bytes + inactive_file + active_file"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """CFS periods since the cgroup exists."""

    nr_periods: int
    nr_throttled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCounters:
    """One reading of a whole node."""

    at_ns: int
    busy_ticks: int
    """used jiffies since boot, summed over CPUs"""
    jiffy_ns: int
    memory: MemInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupCounters:
    """One reading of one cgroup. None = that part was unreadable this time."""

    at_ns: int
    cpu_usage_ns: int | None
    memory: CgroupMemory | None
    throttling: Throttling | None = None


def parse_busy_ticks(stat: str) -> int:
    """Used jiffies of the whole node from the text of /proc/stat.

    raises    MalformedCounter if the line `cpu` is missing, has fewer than 7 numbers or non-numbers
    source    agent spec, 6.1
    """
    for line in stat.splitlines():
        fields = line.split()
        if fields and fields[0] == "cpu":
            return _busy(fields)
    raise MalformedCounter("/proc/stat: no line 'cpu'")


def parse_busy_ticks_per_cpu(stat: str) -> dict[int, int]:
    """Used jiffies per CPU number from the lines `cpuN`; lines that do not parse are left out."""
    ticks: dict[int, int] = {}
    for line in stat.splitlines():
        fields = line.split()
        if not fields or not fields[0].startswith("cpu") or not fields[0][3:].isdecimal():
            continue
        try:
            ticks[int(fields[0][3:])] = _busy(fields)
        except MalformedCounter:
            continue
    return ticks


def _busy(fields: list[str]) -> int:
    numbers = fields[1:]
    if len(numbers) < 7 or not all(number.isdecimal() for number in numbers[:7]):
        raise MalformedCounter(f"/proc/stat: {fields[0]} needs at least 7 numbers, has {numbers}")
    return sum(int(numbers[i]) for i in BUSY_FIELDS)


def parse_meminfo(meminfo: str, prefix: str = "") -> dict[str, int]:
    """Entries `Name: N kB` in bytes; `prefix` ("Node 0 ") is cut off where a line has it. Other lines are left out."""
    entries: dict[str, int] = {}
    for line in meminfo.splitlines():
        name, colon, rest = line.removeprefix(prefix).partition(":")
        value = rest.split()
        if colon and value and value[0].isdecimal():
            scale = KIBIBYTE if value[1:] == ["kB"] else 1
            entries[name.strip()] = int(value[0]) * scale
    return entries


def parse_node_memory(meminfo: str) -> MemInfo:
    """Node memory from the text of /proc/meminfo.

    raises    MalformedCounter if MemTotal, MemFree or MemAvailable is missing
    source    agent spec, 6.1
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
    """A flat-keyed kernel file (`key value` per line: cpu.stat, memory.stat); lines of another form are left out."""
    entries: dict[str, int] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[1].isdecimal():
            entries[fields[0]] = int(fields[1])
    return entries


def parse_cgroup_memory(memory_stat: str, version: int) -> CgroupMemory:
    """Memory of a cgroup from memory.stat.

    version   1 (hierarchical keys `total_...`) or 2
    raises    MalformedCounter if one of the seven keys is missing (cache/rss on v1, file/anon on v2 belong to them)
    source    agent spec, 6.2
    """
    entries = parse_flat(memory_stat)
    prefix, kinds = ("total_", ("cache", "rss")) if version == 1 else ("", ("file", "anon"))
    for kind in kinds:
        _entry(entries, prefix + kind, "memory.stat")

    def value(name: str) -> int:
        return _entry(entries, prefix + name, "memory.stat")

    used = value("inactive_anon") + value("active_anon") + value("unevictable")
    return CgroupMemory(used_bytes=used, with_page_cache_bytes=used + value("inactive_file") + value("active_file"))


def parse_cpu_usage_ns(text: str, version: int) -> int:
    """CPU time of a cgroup: cpuacct.usage (v1, nanoseconds) or `usage_usec` of cpu.stat (v2).

    raises    MalformedCounter for anything else
    """
    if version == 1:
        if not text.strip().isdecimal():
            raise MalformedCounter(f"cpuacct.usage: not a number: {text.strip()!r}")
        return int(text)
    return _entry(parse_flat(text), "usage_usec", "cpu.stat") * NANOSECONDS_PER_MICROSECOND


def parse_throttling(cpu_stat: str, version: int) -> Throttling:
    """CFS periods from cpu.stat.

    raises    MalformedCounter if nr_periods, nr_throttled or throttled_time (v1) / throttled_usec (v2) is missing
    source    agent spec, 6.3
    """
    entries = parse_flat(cpu_stat)
    _entry(entries, "throttled_time" if version == 1 else "throttled_usec", "cpu.stat")
    return Throttling(
        nr_periods=_entry(entries, "nr_periods", "cpu.stat"),
        nr_throttled=_entry(entries, "nr_throttled", "cpu.stat"),
    )
