"""From one look at the host to samples in the series: the collectors of node, pods, system and best-effort class.

`HostReading` is what the shell read in one go (`koord_agent.shell.sensing`); `NodeMonitor.observe` compares it with the
last one and appends what it yields. Counter-based collectors keep the previous reading for 20 intervals; the first
reading of an object gives no cpu sample. Source: agent spec, 6.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from koord_agent.domain.best_effort import be_real_limit_milli, be_request_milli, be_usage_milli
from koord_agent.domain.counters import CgroupCounters, NodeCounters
from koord_agent.domain.metric_kinds import Kind
from koord_agent.domain.series import SeriesStore
from koord_agent.domain.usage import Measured, SystemParts, cgroup_usage, node_usage, system_usage, throttled_ratio

KEEP_INTERVALS = 20
OUTDATED_MS = 10_000
LAST_LOOKBACK_INTERVALS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BestEffortReading:
    """The best-effort root; quota None = unreadable, cpuset_sizes of the root and two levels below it."""

    counters: CgroupCounters | None
    quota_us: int | None
    period_us: int = 100_000
    cpuset_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """One look at the host. None = that object was unreadable this time.

    pods                by uid, all pods that the agent knows of
    host_applications   by name
    be_requests_milli   batch-cpu requests of the containers of pods labelled BE
    """

    node: NodeCounters | None
    pods: Mapping[str, CgroupCounters | None]
    host_applications: Mapping[str, CgroupCounters | None] = field(default_factory=dict[str, CgroupCounters | None])
    best_effort: BestEffortReading | None = None
    be_requests_milli: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """Last values after an observation; None = no value within two collect intervals."""

    node_cpu_cores: float | None
    pod_cpu_cores: Mapping[str, float | None]
    host_app_cpu_cores: Mapping[str, float | None]


class NodeMonitor:
    """The collectors of one node. Not shared: one task owns it."""

    def __init__(
        self, *, collect_interval_ms: int, store: SeriesStore | None = None, with_page_cache: bool = True
    ) -> None:
        self.store = store if store is not None else SeriesStore()
        self._interval_ms = collect_interval_ms
        self._with_page_cache = with_page_cache
        self._previous: dict[tuple[str, str], tuple[int, NodeCounters | CgroupCounters]] = {}
        self._last: dict[tuple[str, str], tuple[int, float]] = {}
        self.observations = 0

    def observe(self, reading: HostReading, now_ms: int) -> Latest:
        """Append the samples that this reading yields, and say the last values.

        now_ms    time of the samples on the service's clock; the counters carry their own time base
        """
        self._observe_node(reading.node, now_ms)
        pods = self._observe_group(
            reading.pods, now_ms, Kind.POD_CPU, Kind.POD_MEMORY, Kind.POD_MEMORY_WITH_PAGE_CACHE, Kind.POD_CPU_THROTTLED
        )
        apps = self._observe_group(
            reading.host_applications,
            now_ms,
            Kind.HOST_APP_CPU,
            Kind.HOST_APP_MEMORY,
            Kind.HOST_APP_MEMORY_WITH_PAGE_CACHE,
            None,
        )
        self._observe_system(now_ms, pods, apps)
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

    def last(self, kind: Kind, now_ms: int, of: str = "") -> float | None:
        """Newest value of a series if it is at most two collect intervals old (agent spec, 10.1)."""
        entry = self._last.get((kind, of))
        if entry is None or now_ms - entry[0] > LAST_LOOKBACK_INTERVALS * self._interval_ms:
            return None
        return entry[1]

    def forget(self, uids: set[str]) -> None:
        """Drop everything about pods that are gone."""
        self.store.forget(uids)
        self._previous = {key: value for key, value in self._previous.items() if key[1] not in uids}
        self._last = {key: value for key, value in self._last.items() if key[1] not in uids}

    def _append(self, kind: Kind, now_ms: int, value: float, of: str = "") -> None:
        self.store.append(kind, now_ms, value, of)
        self._last[kind, of] = (now_ms, value)

    def _observe_node(self, node: NodeCounters | None, now_ms: int) -> None:
        if node is None:
            return
        previous = self._swap(("node", ""), node, now_ms)
        if isinstance(previous, NodeCounters):
            cores = node_usage(previous, node)
            if cores is not None:
                self._append(Kind.NODE_CPU, now_ms, cores)
        self._append(Kind.NODE_MEMORY, now_ms, node.memory.used_bytes)
        if self._with_page_cache:
            self._append(Kind.NODE_MEMORY_WITH_PAGE_CACHE, now_ms, node.memory.with_page_cache_bytes)

    def _observe_group(
        self,
        readings: Mapping[str, CgroupCounters | None],
        now_ms: int,
        cpu: Kind,
        memory: Kind,
        memory_with_cache: Kind,
        throttled: Kind | None,
    ) -> tuple[float, float]:
        """Samples of pods or host applications; returns their summed cores and bytes.

        An object in its first interval counts as 0 cores, so the system part is overstated then (6.5, pitfall).
        """
        sum_cores, sum_bytes = 0.0, 0.0
        for name, counters in readings.items():
            if counters is None:
                continue
            previous = self._swap((cpu, name), counters, now_ms)
            if isinstance(previous, CgroupCounters):
                cores = cgroup_usage(previous, counters)
                if cores is not None:
                    self._append(cpu, now_ms, cores, name)
                    sum_cores += cores
                if throttled is not None and previous.throttling is not None and counters.throttling is not None:
                    ratio = throttled_ratio(previous.throttling, counters.throttling)
                    if ratio is not None:
                        self._append(throttled, now_ms, ratio, name)
            if counters.memory is not None:
                self._append(memory, now_ms, counters.memory.used_bytes, name)
                sum_bytes += counters.memory.used_bytes
                if self._with_page_cache:
                    self._append(memory_with_cache, now_ms, counters.memory.with_page_cache_bytes, name)
        return sum_cores, sum_bytes

    def _observe_system(self, now_ms: int, pods: tuple[float, float], apps: tuple[float, float]) -> None:
        cpu, memory = self._last.get((Kind.NODE_CPU, "")), self._last.get((Kind.NODE_MEMORY, ""))
        usage = system_usage(
            SystemParts(
                node_cpu=Measured(at_ms=cpu[0], value=cpu[1]) if cpu else None,
                node_memory=Measured(at_ms=memory[0], value=memory[1]) if memory else None,
                pods_cpu=Measured(at_ms=now_ms, value=pods[0]),
                pods_memory=Measured(at_ms=now_ms, value=pods[1]),
                host_apps_cpu=Measured(at_ms=now_ms, value=apps[0]),
                host_apps_memory=Measured(at_ms=now_ms, value=apps[1]),
            ),
            now_ms=now_ms,
            outdated_ms=max(OUTDATED_MS, LAST_LOOKBACK_INTERVALS * self._interval_ms),
        )
        if usage is not None:
            self._append(Kind.SYSTEM_CPU, now_ms, usage.cpu_cores)
            self._append(Kind.SYSTEM_MEMORY, now_ms, usage.memory_bytes)

    def _observe_best_effort(self, reading: BestEffortReading, requests: tuple[int, ...], now_ms: int) -> None:
        if reading.counters is not None and reading.counters.cpu_usage_ns is not None:
            previous = self._swap(("best-effort", ""), reading.counters, now_ms)
            before = previous.cpu_usage_ns if isinstance(previous, CgroupCounters) else None
            interval_ms = (reading.counters.at_ns - previous.at_ns) // 1_000_000 if previous is not None else 0
            used = be_usage_milli(before, reading.counters.cpu_usage_ns, interval_ms)
            if used is not None:
                self._append(Kind.BE_CPU_USAGE, now_ms, used)
        if reading.quota_us is not None:
            limit = be_real_limit_milli(reading.cpuset_sizes, reading.quota_us, reading.period_us)
            if limit is not None:
                self._append(Kind.BE_CPU_REAL_LIMIT, now_ms, limit)
        self._append(Kind.BE_CPU_REQUEST, now_ms, be_request_milli(requests))

    def _swap(
        self, key: tuple[str, str], counters: NodeCounters | CgroupCounters, now_ms: int
    ) -> NodeCounters | CgroupCounters | None:
        """The previous reading if it is at most 20 intervals old; the new one takes its place."""
        entry = self._previous.get(key)
        self._previous[key] = (now_ms, counters)
        if entry is None or now_ms - entry[0] > KEEP_INTERVALS * self._interval_ms:
            return None
        return entry[1]

    def _purge(self, now_ms: int) -> None:
        oldest = now_ms - KEEP_INTERVALS * self._interval_ms
        self._previous = {key: entry for key, entry in self._previous.items() if entry[0] >= oldest}
        self._last = {key: entry for key, entry in self._last.items() if entry[0] >= oldest}
