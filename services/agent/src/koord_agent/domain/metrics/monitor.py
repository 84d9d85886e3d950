"""Convert readings of the host to samples: node, NUMA nodes, pods, containers, system, best-effort class.

`HostReading` has all values of one reading (`koord_agent.shell.collect.sensing`). `NodeMonitor.observe` compares it
with the previous one and appends samples. A previous reading is kept for 20 intervals. The first reading of an object
gives no CPU sample. The slow collectors (PSI, CPI, ...) have functions of their own, because
`koord_agent.shell.collect.collectors` reads them at intervals of their own.

Source: agent spec, 5, 6, 18.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from koord_agent.domain.kernel.counters import PAGE_BYTES, CgroupCounters, NodeCounters, Pressure
from koord_agent.domain.kernel.numa_usage import (
    hot_page_usage_bytes,
    numa_cores_of_ticks,
    numa_system_cpu_cores,
    numa_system_memory_bytes,
)
from koord_agent.domain.metrics.cpi import Counted
from koord_agent.domain.metrics.metric_kinds import CYCLES, INSTRUCTIONS, PSI_PRECISION, Kind
from koord_agent.domain.metrics.series import OUT_OF_ORDER_MS, Sample, SeriesStore
from koord_agent.domain.metrics.usage import (
    Measured,
    SystemParts,
    be_real_limit_milli,
    be_request_milli,
    be_usage_milli,
    cgroup_usage,
    node_usage,
    system_usage,
    throttled_ratio,
    within_cpus,
)

KEEP_INTERVALS = 20
OUTDATED_MS = 10_000
LAST_LOOKBACK_INTERVALS = 2
_BANDWIDTH: Final = {"mbm_local_bytes": "local", "mbm_total_bytes": "total"}
_BEST_EFFORT: Final = "best-effort"
_OCCUPANCY: Final = "llc_occupancy"
_COLD_KINDS: Final = {
    "node": (Kind.NODE_MEMORY_COLD_PAGE, Kind.NODE_MEMORY_WITH_HOT_PAGE),
    "pod": (Kind.POD_MEMORY_COLD_PAGE, Kind.POD_MEMORY_WITH_HOT_PAGE),
    "container": (Kind.CONTAINER_MEMORY_COLD_PAGE, Kind.CONTAINER_MEMORY_WITH_HOT_PAGE),
    "host application": (Kind.HOST_APP_MEMORY_COLD_PAGE, Kind.HOST_APP_MEMORY_WITH_HOT_PAGE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BestEffortReading:
    counters: CgroupCounters | None  # Counters of its cgroup; None if unreadable
    quota_us: int | None  # CPU quota in microseconds per period; -1 unlimited, None if unreadable
    period_us: int = 100_000
    # Number of CPUs in the CPU lists of its root and of its containers. Pods are left out.
    cpuset_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaReading:
    cpu_to_numa: Mapping[int, int]  # Online CPU -> NUMA node
    memory_bytes: Mapping[int, int]  # NUMA node -> bytes in use; empty if unreadable this time
    pods_pages: Mapping[int, int]  # NUMA node -> number of 4 KiB memory pages of all readable pods together


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """None means that the part was unreadable this time."""

    node: NodeCounters | None
    pods: Mapping[str, CgroupCounters | None]  # UID -> counters, for all pods that the agent knows
    # Container id -> counters.
    containers: Mapping[str, CgroupCounters | None] = field(default_factory=dict[str, CgroupCounters | None])
    numa: NumaReading | None = None  # NUMA nodes; None if the machine has no NUMA information
    # Name -> counters.
    host_applications: Mapping[str, CgroupCounters | None] = field(default_factory=dict[str, CgroupCounters | None])
    best_effort: BestEffortReading | None = None  # The best-effort class; None if it is not measured
    be_requests_milli: tuple[int, ...] = ()  # Batch-cpu requests of the containers of pods labelled BE, in milli-cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The newest CPU usage of the node, of each pod by UID and of each host application by name, in cores.

    None means that no value is younger than two collect intervals.
    """

    node_cpu_cores: float | None
    pod_cpu_cores: Mapping[str, float | None]
    host_app_cpu_cores: Mapping[str, float | None]


def latest_between(before: HostReading, now: HostReading) -> Latest:
    """The usage between any two readings. None for what one of them lacks."""
    old, new = before.node, now.node
    cpus = 0 if old is None or new is None else max(old.cpus, new.cpus)

    def usage(
        first: Mapping[str, CgroupCounters | None], second: Mapping[str, CgroupCounters | None]
    ) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for name, counters in second.items():
            previous = first.get(name)
            found[name] = None if previous is None or counters is None else cgroup_usage(previous, counters, cpus)
        return found

    return Latest(
        node_cpu_cores=None if old is None or new is None else node_usage(old, new),
        pod_cpu_cores=usage(before.pods, now.pods),
        host_app_cpu_cores=usage(before.host_applications, now.host_applications),
    )


class _Totals(NamedTuple):
    """Sums over a group of objects, cores and bytes."""

    cpu_cores: float
    memory_bytes: float
    with_page_cache_bytes: float


class _Kinds(NamedTuple):
    """Metric kinds of one group of objects, such as pods; `throttled` is None if throttling is not measured."""

    cpu: Kind
    memory: Kind
    with_page_cache: Kind
    throttled: Kind | None


_PODS = _Kinds(Kind.POD_CPU, Kind.POD_MEMORY, Kind.POD_MEMORY_WITH_PAGE_CACHE, Kind.POD_CPU_THROTTLED)
_CONTAINERS = _Kinds(
    Kind.CONTAINER_CPU, Kind.CONTAINER_MEMORY, Kind.CONTAINER_MEMORY_WITH_PAGE_CACHE, Kind.CONTAINER_CPU_THROTTLED
)
_HOST_APPS = _Kinds(Kind.HOST_APP_CPU, Kind.HOST_APP_MEMORY, Kind.HOST_APP_MEMORY_WITH_PAGE_CACHE, None)


class NodeMonitor:
    """Turns readings of one node into time series, by comparing each with the previous one.

    Only one task may use it.

    Args:
        collect_interval_ms: Milliseconds between two readings.
        store: Gets the samples; None: a new store.
        with_page_cache: Whether memory with page cache has series of its own.
        outdated_ms: Age in milliseconds above which a value does not count for the usage of the system.
    """

    def __init__(
        self,
        *,
        collect_interval_ms: int,
        store: SeriesStore | None = None,
        with_page_cache: bool = True,
        outdated_ms: int = OUTDATED_MS,
    ) -> None:
        self.store = store if store is not None else SeriesStore()
        self._interval_ms = collect_interval_ms
        self._with_page_cache = with_page_cache
        self._outdated_ms = outdated_ms
        self._previous_node: tuple[int, NodeCounters] | None = None
        self._previous: dict[str, dict[str, tuple[int, CgroupCounters]]] = {}
        self._last: dict[Kind, dict[str, tuple[int, float]]] = {kind: {} for kind in Kind}
        self._newest_ms = 0
        self._cpus = 0
        self.observations = 0

    def observe(self, reading: HostReading, now_ms: int, *, apps_with_page_cache: bool = False) -> Latest:
        """Compute the samples of a reading, append them to the series, and return the newest CPU usages.

        Args:
            now_ms: Time of the samples on the service's clock. The counters have their own times.
            apps_with_page_cache: Whether memory of host applications counts with page cache when the system's usage
                is computed (6.6).
        """
        if now_ms < self._newest_ms - OUT_OF_ORDER_MS:
            self.store.clock_set_back(now_ms)
        self._newest_ms = now_ms
        ticks = self._observe_node(reading.node, now_ms)
        # a CPU that went offline may have worked in a part of the interval
        cpus = [each.cpus for each in ticks or (reading.node,) if each is not None]
        self._cpus = max(cpus, default=self._cpus)
        pods = self._observe_group(reading.pods, now_ms, _PODS)
        self._observe_group(reading.containers, now_ms, _CONTAINERS)
        apps = self._observe_group(reading.host_applications, now_ms, _HOST_APPS)
        system_cpu = self._observe_system(now_ms, pods, apps, apps_with_page_cache=apps_with_page_cache)
        if reading.numa is not None:
            self._observe_numa(reading.numa, ticks, system_cpu, now_ms)
        if reading.best_effort is not None:
            self._observe_best_effort(reading.best_effort, reading.be_requests_milli, now_ms)
        self.observations += 1
        if self.observations % KEEP_INTERVALS == 0:
            self._purge(now_ms)
        return Latest(
            node_cpu_cores=self.last(Kind.NODE_CPU, now_ms),
            pod_cpu_cores={uid: self.last(Kind.POD_CPU, now_ms, uid) for uid in reading.pods},
            host_app_cpu_cores={name: self.last(Kind.HOST_APP_CPU, now_ms, name) for name in reading.host_applications},
        )

    def add(self, samples: Iterable[Sample]) -> None:
        self.store.append_all(tuple(samples))

    def last(self, kind: Kind, now_ms: int, of: str = "") -> float | None:
        """Return the newest value of a series that is at most two collect intervals old (agent spec, 10.1)."""
        entry = self._last[kind].get(of)
        if entry is None or now_ms - entry[0] > LAST_LOOKBACK_INTERVALS * self._interval_ms:
            return None
        return entry[1]

    def forget(self, uids: set[str]) -> None:
        self.store.forget(uids)
        for held in (*self._previous.values(), *self._last.values()):
            for uid in uids & held.keys():
                del held[uid]

    def _append(self, kind: Kind, now_ms: int, value: float, of: str = "") -> None:
        self.store.append(kind, now_ms, value, of)
        self._last[kind][of] = (now_ms, value)

    def _observe_node(self, node: NodeCounters | None, now_ms: int) -> tuple[NodeCounters, NodeCounters] | None:
        """The previous and the current reading; None unless both exist."""
        if node is None:
            return None
        before, self._previous_node = self._previous_node, (now_ms, node)
        self._append(Kind.NODE_MEMORY, now_ms, node.memory.used_bytes)
        if self._with_page_cache:
            self._append(Kind.NODE_MEMORY_WITH_PAGE_CACHE, now_ms, node.memory.with_page_cache_bytes)
        if before is None or now_ms - before[0] > self._keep_ms:
            return None
        cores = node_usage(before[1], node)
        if cores is not None:
            self._append(Kind.NODE_CPU, now_ms, cores)
        return before[1], node

    def _observe_group(
        self, readings: Mapping[str, CgroupCounters | None], now_ms: int, kinds: _Kinds
    ) -> _Totals | None:
        """Append samples of pods, containers or host applications and return their sums.

        An object in its first interval counts as 0 cores, so the usage of the system is overstated then (6.5, pitfall).
        If all objects are in their first interval, there is no sum.
        """
        readable = 0
        of_cpu, of_throttling, of_memory = list[str](), list[str](), list[str]()
        usages, throttled = list[float](), list[float]()
        used_bytes, with_cache_bytes = list[int](), list[int]()
        held, last = self._previous.setdefault(kinds.cpu, {}), self._last[kinds.cpu]
        oldest_ms, cpus = now_ms - self._keep_ms, self._cpus
        for name, counters in readings.items():
            if counters is None:
                continue
            readable += 1
            entry = held.get(name)
            held[name] = (now_ms, counters)
            if entry is not None and entry[0] >= oldest_ms:
                previous = entry[1]
                cores = cgroup_usage(previous, counters, cpus)
                if cores is not None:
                    of_cpu.append(name)
                    usages.append(cores)
                    last[name] = (now_ms, cores)
                before, now = previous.throttling, counters.throttling
                if before is not None and now is not None:
                    ratio = 0.0 if before is now else throttled_ratio(before, now)
                    if ratio is not None:
                        of_throttling.append(name)
                        throttled.append(ratio)
            memory = counters.memory
            if memory is not None:
                of_memory.append(name)
                used_bytes.append(memory.used_bytes)
                with_cache_bytes.append(memory.with_page_cache_bytes)
        append = self.store.append_each
        append(kinds.cpu, now_ms, zip(of_cpu, usages, strict=True))
        if kinds.throttled is not None:
            append(kinds.throttled, now_ms, zip(of_throttling, throttled, strict=True))
        append(kinds.memory, now_ms, zip(of_memory, used_bytes, strict=True))
        if self._with_page_cache:
            append(kinds.with_page_cache, now_ms, zip(of_memory, with_cache_bytes, strict=True))
        if not usages and readable:
            return None
        return _Totals(sum(usages, 0.0), sum(used_bytes), sum(with_cache_bytes))

    def _observe_system(
        self, now_ms: int, pods: _Totals | None, apps: _Totals | None, *, apps_with_page_cache: bool
    ) -> float | None:
        """Append samples of the usage outside of pods and host applications, and return its CPU part in cores."""

        def measured(value: float | None) -> Measured | None:
            return None if value is None else Measured(at_ms=now_ms, value=value)

        cpu, memory = self._last[Kind.NODE_CPU].get(""), self._last[Kind.NODE_MEMORY].get("")
        apps_bytes = apps and (apps.with_page_cache_bytes if apps_with_page_cache else apps.memory_bytes)
        usage = system_usage(
            SystemParts(
                node_cpu=Measured(at_ms=cpu[0], value=cpu[1]) if cpu else None,
                node_memory=Measured(at_ms=memory[0], value=memory[1]) if memory else None,
                pods_cpu=measured(pods and pods.cpu_cores),
                pods_memory=measured(pods and pods.memory_bytes),
                host_apps_cpu=measured(apps and apps.cpu_cores),
                host_apps_memory=measured(apps_bytes),
            ),
            now_ms=now_ms,
            outdated_ms=max(self._outdated_ms, LAST_LOOKBACK_INTERVALS * self._interval_ms),
        )
        if usage is None:
            return None
        self._append(Kind.SYSTEM_CPU, now_ms, usage.cpu_cores)
        self._append(Kind.SYSTEM_MEMORY, now_ms, usage.memory_bytes)
        return usage.cpu_cores

    def _observe_numa(
        self,
        reading: NumaReading,
        counters: tuple[NodeCounters, NodeCounters] | None,
        system_cpu: float | None,
        now_ms: int,
    ) -> None:
        """Append samples of each NUMA node, and of the system on it. Samples of the node itself do not depend on these.

        Args:
            counters: Previous and current counters of the node; None without both.
            system_cpu: CPU usage of the system in cores; None if unknown.
        """
        cores: dict[int, float] = {}
        if counters is not None and counters[1].at_ns > counters[0].at_ns:
            cores = numa_cores_of_ticks(
                counters[0].busy_ticks_by_cpu,
                counters[1].busy_ticks_by_cpu,
                reading.cpu_to_numa,
                interval_ns=counters[1].at_ns - counters[0].at_ns,
                jiffy_ns=counters[1].jiffy_ns,
            )
        self._append_by_node(Kind.NUMA_CPU, now_ms, cores)
        self._append_by_node(Kind.NUMA_MEMORY, now_ms, reading.memory_bytes)
        if system_cpu is not None:
            self._append_by_node(Kind.SYSTEM_NUMA_CPU, now_ms, numa_system_cpu_cores(system_cpu, cores))
        pods = {node: pages * PAGE_BYTES for node, pages in reading.pods_pages.items()}
        rest = numa_system_memory_bytes(reading.memory_bytes, pods)
        self._append_by_node(Kind.SYSTEM_NUMA_MEMORY, now_ms, rest)

    def _append_by_node(self, kind: Kind, now_ms: int, values: Mapping[int, float]) -> None:
        for node, value in values.items():
            self._append(kind, now_ms, value, str(node))

    def _observe_best_effort(self, reading: BestEffortReading, requests: tuple[int, ...], now_ms: int) -> None:
        if reading.counters is not None and reading.counters.cpu_usage_ns is not None:
            held = self._previous.setdefault(_BEST_EFFORT, {})
            entry = held.get("")
            held[""] = (now_ms, reading.counters)
            previous = None if entry is None or now_ms - entry[0] > self._keep_ms else entry[1]
            before = None if previous is None else previous.cpu_usage_ns
            interval_ns = reading.counters.at_ns - previous.at_ns if previous is not None else 0
            used = be_usage_milli(before, reading.counters.cpu_usage_ns, interval_ns // 1_000_000)
            if used is not None and within_cpus(used / 1_000, self._cpus if used else 0, interval_ns) is not None:
                self._append(Kind.BE_CPU_USAGE, now_ms, used)
        if reading.quota_us is not None:
            limit = be_real_limit_milli(reading.cpuset_sizes, reading.quota_us, reading.period_us)
            if limit is not None:
                self._append(Kind.BE_CPU_REAL_LIMIT, now_ms, limit)
        self._append(Kind.BE_CPU_REQUEST, now_ms, be_request_milli(requests))

    @property
    def _keep_ms(self) -> int:
        """Age up to which a previous reading counts: 20 intervals."""
        return KEEP_INTERVALS * self._interval_ms

    def _purge(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._keep_ms
        for held in (*self._previous.values(), *self._last.values()):
            for name in [name for name, entry in held.items() if entry[0] < oldest_ms]:
                del held[name]


def pressure_samples(
    found: Mapping[str, Pressure], at_ms: int, uid: str, container_id: str | None = None
) -> Iterator[Sample]:
    """Yield samples of PSI avg10 for a pod or, with an id, one of its containers (agent spec, 6.8).

    The last sample tells whether the kernel measures the CPU pressure `full`: 1 or 0. `found` is by resource: cpu, mem,
    io.
    """
    object_ = (uid,) if container_id is None else (uid, container_id)
    kind = Kind.POD_PSI if container_id is None else Kind.CONTAINER_PSI
    for resource, pressure in found.items():
        for degree, stall in (("some", pressure.some), ("full", pressure.full)):
            yield Sample(kind, at_ms, stall.avg10, (*object_, resource, PSI_PRECISION, degree))
    supported = 1.0 if "cpu" in found and found["cpu"].full_supported else 0.0
    if container_id is None:
        yield Sample(Kind.POD_PSI_CPU_FULL_SUPPORTED, at_ms, supported, uid)
    else:
        yield Sample(Kind.CONTAINER_PSI_CPU_FULL_SUPPORTED, at_ms, supported, (uid, container_id))


def cpi_samples(counted: Counted, at_ms: int, uid: str, container_id: str) -> Iterator[Sample]:
    """Samples of one container in one measuring window (agent spec, 6.7)."""
    yield Sample(Kind.CONTAINER_CPI, at_ms, counted.cycles, (uid, container_id, CYCLES))
    yield Sample(Kind.CONTAINER_CPI, at_ms, counted.instructions, (uid, container_id, INSTRUCTIONS))


def resctrl_samples(groups: Mapping[str, Mapping[int, Mapping[str, int]]], at_ms: int) -> Iterator[Sample]:
    """Samples of group -> cache id -> file name -> counter: cache occupancy and bandwidth (agent spec, 6.9)."""
    for group, caches in groups.items():
        for cache, counters in caches.items():
            if _OCCUPANCY in counters:
                yield Sample(Kind.RESCTRL_LLC, at_ms, counters[_OCCUPANCY], (group, str(cache)))
            for file, name in _BANDWIDTH.items():
                if file in counters:
                    yield Sample(Kind.RESCTRL_MB, at_ms, counters[file], (group, str(cache), name))


def cold_page_samples(
    level: str, cold_bytes: int, with_page_cache_bytes: float, at_ms: int, of: str = ""
) -> Iterator[Sample]:
    """Samples of cold page cache, and of memory usage without it (agent spec, 6.10). `of` is "" for the node."""
    cold, hot = _COLD_KINDS[level]
    yield Sample(cold, at_ms, cold_bytes, of)
    yield Sample(hot, at_ms, hot_page_usage_bytes(int(with_page_cache_bytes), cold_bytes), of)
