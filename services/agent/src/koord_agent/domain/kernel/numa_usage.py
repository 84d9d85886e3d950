"""NUMA shares of usage and the cold part of page cache, from raw kernel texts."""

from collections.abc import Mapping

from koord_agent.domain.kernel.counters import (
    PAGE_BYTES,
    MalformedCounter,
    parse_meminfo,
    plausible,
    whole_number,
)

COLD_FILE_LINES = 31
COLD_FIRST_ROW = 14
COLD_ROWS = ("cfei", "dfei", "cfui", "dfui")
COLD_BOUNDARY = 5


def numa_cores_of_ticks(
    before: Mapping[int, int],
    after: Mapping[int, int],
    cpu_to_numa: Mapping[int, int],
    *,
    interval_ns: int,
    jiffy_ns: int,
) -> dict[int, float]:
    """Return NUMA node -> cores in use between two readings of the used jiffies of each CPU.

    CPUs that are not in the map, that are new, or whose counter fell or jumped are left out. `interval_ns` is positive.
    """
    ticks = dict.fromkeys(sorted(set(cpu_to_numa.values())), 0)
    for cpu, now in after.items():
        then = before.get(cpu)
        if then is None or now < then or cpu not in cpu_to_numa:
            continue
        if plausible((now - then) * jiffy_ns / interval_ns, 1, interval_ns) is None:
            continue
        ticks[cpu_to_numa[cpu]] += now - then
    return {node: count * jiffy_ns / interval_ns for node, count in ticks.items()}


def numa_memory_used_bytes(meminfo: str, numa_node: int) -> int:
    """Return max(MemTotal - (MemFree + Active(file) + Inactive(file) + SReclaimable), 0) of a NUMA node.

    `meminfo` is the text of /sys/bus/node/devices/node<i>/meminfo, with lines prefixed `Node <i> `. Kernels leave out
    entries of what they do not count, so a missing entry of reclaimable memory counts as 0.

    Raises:
        MalformedCounter: MemTotal or MemFree is missing. The message has its name.

    Source: agent spec, 6.1.
    """
    entries = parse_meminfo(meminfo, prefix=f"Node {numa_node} ")
    for name in ("MemTotal", "MemFree"):
        if name not in entries:
            raise MalformedCounter(f"node{numa_node}/meminfo: no entry {name}")
    available = (entries.get(name, 0) for name in ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable"))
    return max(entries["MemTotal"] - sum(available), 0)


def numa_system_cpu_cores(system_cpu_cores: float, node_numa_cpu: Mapping[int, float]) -> dict[int, float]:
    """Divide the CPU usage of the system among NUMA nodes, in proportion to their usage (agent spec, 6.5).

    All are 0 if nothing is used.
    """
    total = sum(node_numa_cpu.values())
    return {node: system_cpu_cores * used / total if total else 0.0 for node, used in node_numa_cpu.items()}


def numa_system_memory_bytes(
    node_numa_memory: Mapping[int, float], pods_numa_memory: Mapping[int, float]
) -> dict[int, float]:
    """max(node - pods, 0) by NUMA node.

    A lower bound, because the part of the pods contains file pages (agent spec, 6.5).
    """
    return {node: max(used - pods_numa_memory.get(node, 0), 0) for node, used in node_numa_memory.items()}


def parse_numa_stat(text: str, version: int) -> dict[int, int]:
    """Return NUMA node -> number of memory pages (4 KiB) of a cgroup, from the text of memory.numa_stat.

    Pages of child cgroups count. On v1, these are all pages, from the line `hierarchical_total=... N0=...`. Without it,
    they are from the first line, `total=... N0=...`, which leaves out child cgroups: that of a pod has nearly no pages.
    On v2, they are anonymous and file pages: the bytes in the first two lines, `anon` and `file`, each floored to
    pages.

    Raises:
        MalformedCounter: The text has another form.

    Source: agent spec, 6.2, which names the first line only.
    """
    lines = text.splitlines()
    if version == 1:
        if not lines or not lines[0].startswith("total="):
            raise MalformedCounter("memory.numa_stat: the first line is not total=")
        return _numa_fields(next((line for line in lines if line.startswith("hierarchical_total=")), lines[0]))
    anon = _numa_line(lines, "anon", 0)
    file = _numa_line(lines, "file", 1)
    pages: dict[int, int] = {}
    for fields in (anon, file):
        for node, size in fields.items():
            pages[node] = pages.get(node, 0) + size // PAGE_BYTES
    return pages


def _numa_line(lines: list[str], kind: str, position: int) -> dict[int, int]:
    if len(lines) <= position or lines[position].split()[:1] != [kind]:
        raise MalformedCounter(f"memory.numa_stat: line {position + 1} is not {kind}")
    return _numa_fields(lines[position])


def _numa_fields(line: str) -> dict[int, int]:
    fields: dict[int, int] = {}
    for field in line.split()[1:]:
        node, equals, size = field.partition("=")
        number, amount = whole_number(node[1:]), whole_number(size)
        if not equals or node[:1] != "N" or number is None or amount is None:
            raise MalformedCounter(f"memory.numa_stat: not N<node>=<size>: {field[:40]!r}")
        fields[number] = amount
    return fields


def cold_page_bytes(idle_page_stats: str, boundary: int = COLD_BOUNDARY) -> int:
    """Return the bytes of file pages that were idle for a long time, from the text of memory.idle_page_stats.

    Its columns are buckets of growing idle time; `boundary` is the first that counts as cold.

    Raises:
        MalformedCounter: The text has not exactly 31 lines, or a counted row is not made of numbers.

    Source: agent spec, 6.10 (kidled).
    """
    lines = idle_page_stats.removesuffix("\n").split("\n")
    if len(lines) != COLD_FILE_LINES:
        raise MalformedCounter(f"memory.idle_page_stats: {len(lines)} lines, want {COLD_FILE_LINES}")
    cold = 0
    for line in lines[COLD_FIRST_ROW:]:
        name, *buckets = line.split() or [""]
        if name not in COLD_ROWS:
            continue
        numbers = [whole_number(bucket) for bucket in buckets]
        if None in numbers:
            raise MalformedCounter(f"memory.idle_page_stats: row {name} is not made of numbers")
        cold += sum(number or 0 for number in numbers[boundary:])
    return cold


def hot_page_usage_bytes(with_page_cache_bytes: int, cold_bytes: int) -> int:
    """Return the memory in use without its cold page cache, at least 0 (D-10)."""
    return max(with_page_cache_bytes - cold_bytes, 0)
