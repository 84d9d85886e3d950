"""Compute usage from two readings of counters: of one object, of the system, and of the best-effort class.

`monitor` calls these functions with the values of `counters`. If a counter fell or the interval is not positive, they
return None and no sample is stored (D-7). The same holds for a usage above the CPUs of the node, as after a counter
that was lost for a moment.

Source: agent spec, 6.4.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from koord_agent.domain.kernel.counters import CgroupCounters, NodeCounters, Throttling, plausible

UNLIMITED = -1
NANOSECONDS_PER_MILLISECOND = 1_000_000


def node_cpu_cores(previous_ticks: int, current_ticks: int, *, interval_ns: int, jiffy_ns: int) -> float | None:
    """Return ticks / (interval / jiffy) of the used jiffies.

    Source: agent spec, 6.1.
    """
    if interval_ns <= 0 or current_ticks < previous_ticks:
        return None
    return (current_ticks - previous_ticks) * jiffy_ns / interval_ns


def cgroup_cpu_cores(previous_ns: int, current_ns: int, *, interval_ns: int) -> float | None:
    """Source: agent spec, 6.2."""
    if interval_ns <= 0 or current_ns < previous_ns:
        return None
    return (current_ns - previous_ns) / interval_ns


def throttled_ratio(previous: Throttling, current: Throttling) -> float | None:
    """Return the share of the CFS periods in which a cgroup was throttled, from 0 to 1; 0 if no period passed.

    Source: agent spec, 6.3.
    """
    periods = current.nr_periods - previous.nr_periods
    throttled = current.nr_throttled - previous.nr_throttled
    if periods < 0 or throttled < 0 or throttled > periods:
        return None
    return throttled / periods if periods else 0.0


def node_usage(previous: NodeCounters, current: NodeCounters) -> float | None:
    """None also if the counter jumped: the node cannot use more than its CPUs."""
    interval_ns = current.at_ns - previous.at_ns
    cores = node_cpu_cores(previous.busy_ticks, current.busy_ticks, interval_ns=interval_ns, jiffy_ns=current.jiffy_ns)
    return within_cpus(cores, max(previous.cpus, current.cpus), interval_ns)


def cgroup_usage(previous: CgroupCounters, current: CgroupCounters, cpus: int = 0) -> float | None:
    """None also if a reading lacks the counter, or if it jumped. `cpus` is that of the node; 0 if unknown."""
    if previous.cpu_usage_ns is None or current.cpu_usage_ns is None:
        return None
    interval_ns = current.at_ns - previous.at_ns
    if previous.cpu_usage_ns == current.cpu_usage_ns and interval_ns > 0:
        return 0.0
    cores = cgroup_cpu_cores(previous.cpu_usage_ns, current.cpu_usage_ns, interval_ns=interval_ns)
    return within_cpus(cores, cpus, interval_ns)


def within_cpus(cores: float | None, cpus: int, interval_ns: int) -> float | None:
    """Return the usage, at most `cpus`; None if it is impossible. `cpus` 0 means that the number is unknown."""
    return cores if cores is None or not cpus else plausible(cores, cpus, interval_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A value, and the time of its reading in milliseconds."""

    at_ms: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemParts:
    """Inputs of `system_usage`: CPU in cores and memory in bytes of the node, its pods and its host applications.

    A part is None if it was never read.
    """

    node_cpu: Measured | None
    node_memory: Measured | None
    pods_cpu: Measured | None
    pods_memory: Measured | None
    host_apps_cpu: Measured | None
    host_apps_memory: Measured | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemUsage:
    """Usage of the node outside of pods and host applications, in cores and bytes."""

    cpu_cores: float
    memory_bytes: float


def system_usage(parts: SystemParts, *, now_ms: int, outdated_ms: int = 10_000) -> SystemUsage | None:
    """Return max(node - pods - host applications, 0), for CPU and memory.

    None if a part is missing or older than `outdated_ms`.

    Source: agent spec, 6.5.
    """
    readings = (
        parts.node_cpu,
        parts.node_memory,
        parts.pods_cpu,
        parts.pods_memory,
        parts.host_apps_cpu,
        parts.host_apps_memory,
    )
    values: list[float] = []
    for reading in readings:
        if reading is None or now_ms - reading.at_ms > outdated_ms:
            return None
        values.append(reading.value)
    node_cpu, node_memory, pods_cpu, pods_memory, apps_cpu, apps_memory = values
    return SystemUsage(
        cpu_cores=max(node_cpu - pods_cpu - apps_cpu, 0.0),
        memory_bytes=max(node_memory - pods_memory - apps_memory, 0.0),
    )


def be_usage_milli(previous_ns: int | None, current_ns: int, interval_ms: int) -> int | None:
    """Return the CPU usage of the best-effort class: int(float(ns div 10^6) / ms * 1000).

    0 for the first reading (`previous_ns` is None).
    """
    if previous_ns is None:
        return 0
    if interval_ms <= 0 or current_ns < previous_ns:
        return None
    return int(float((current_ns - previous_ns) // NANOSECONDS_PER_MILLISECOND) / interval_ms * 1000)


def be_real_limit_milli(cpuset_sizes: Iterable[int], quota_us: int, period_us: int) -> int | None:
    """Return the size of the narrowest CPU list, limited by the quota of the root if there is one.

    `cpuset_sizes` has the number of CPUs of the best-effort root and of every directory two levels below it. None if
    there is neither a CPU list nor a quota.
    """
    limits = [size * 1000 for size in cpuset_sizes]
    if quota_us != UNLIMITED and period_us > 0:
        limits.append(quota_us * 1000 // period_us)
    return min(limits, default=None)


def be_request_milli(batch_cpu_requests: Iterable[int]) -> int:
    """Sum of the positive batch-cpu requests (milli-cores) of the containers of pods labelled BE."""
    return sum(request for request in batch_cpu_requests if request > 0)
