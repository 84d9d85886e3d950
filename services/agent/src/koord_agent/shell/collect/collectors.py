"""The collectors of one node, each at its own interval.

    every interval   node, NUMA nodes, pods, containers, host applications, best-effort class, rest of the system
    10 s             PSI and resctrl counters, waiting for CPU, memory, disks and the network
    60 s, for 10 s   cycles and instructions
    5 s              cold pages

A collector runs only if the machine can do it and its gate is on. `Features` tells the reasons. `sensing` reads, the
rules are in `domain.metrics.monitor`.

Source: agent spec, 6.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from koordcore.values.topology import CpuPlace

from koord_agent.domain.extending.extension_points import PodCollector
from koord_agent.domain.failure import failure
from koord_agent.domain.kernel.cgroup_layout import HostApplication
from koord_agent.domain.kernel.counters import (
    DiskCounters,
    SchedCounters,
    Stall,
    TcpCounters,
    common_disks,
    sched_delay_ms,
    stall_ratio,
)
from koord_agent.domain.kernel.features import Feature, Features
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.monitor import (
    HostReading,
    Latest,
    NodeMonitor,
    cold_page_samples,
    cpi_samples,
    pressure_samples,
    resctrl_samples,
)
from koord_agent.domain.metrics.series import Sample
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.strategies.contention.contentions import disk_await_ms, retransmit_ratio
from koord_agent.settings import AgentSettings
from koord_agent.shell.collect.sensing import (
    BestEffortTree,
    PodPlaces,
    container_directories,
    places_of,
    read_host,
)
from koord_agent.shell.host.host import CycleSource, Host, TooManyOpenFiles

Measured: TypeAlias = Callable[[PodCollector, Sequence[AgentPod]], Sequence[AgentPod]]
_Collect: TypeAlias = Callable[[Sequence[AgentPod], int], Iterable[Sample]]


_Target: TypeAlias = tuple[str, str, str]
"""UID of a pod, id of a container, its directory."""
_IN_TURNS: Final = f"{Feature.CPI} is measured"
VISITS: Final = {Feature.COLD_PAGES: PodCollector.COLD_PAGES}
"""Slow collector -> kind of its visit; the default is PRESSURE."""


class _Slow(NamedTuple):
    """A collector with an interval of its own."""

    always: bool  # Whether it runs even if interference is not detected
    feature: Feature  # Feature of the machine without which it does not run
    every_ms: int
    collect: _Collect
    visits: PodCollector  # Group of collectors by which pod filters exclude pods


@dataclass(slots=True)
class _Measuring:
    """Open hardware counters: (UID of a pod, id of a container) -> counters, and the time at which they were opened."""

    since_ms: int
    sources: dict[tuple[str, str], CycleSource] = field(default_factory=dict[tuple[str, str], CycleSource])


class Collectors:
    """Runs all collectors of one node at their intervals. Only one task uses them; it calls `close` at the end.

    Args:
        features: Features of the machine. A collector whose feature is missing does not run.
    """

    def __init__(
        self,
        host: Host,
        monitor: NodeMonitor,
        *,
        features: Features,
        settings: AgentSettings,
        topology: Sequence[CpuPlace] = (),
        measured: Measured = lambda _by, pods: pods,
    ) -> None:
        self.features = features
        self._measured = measured
        self._host = host
        self._monitor = monitor
        self.places: PodPlaces | None = None  # Of the pods that the last run read; None before the first one
        self.reading: HostReading | None = None  # Of the last run
        self._cpi_ms = _milliseconds(settings.cpi_collector_interval)
        self._cpi_window_ms = _milliseconds(settings.collect_cpi_timewindow)
        self._cpu_to_numa: Mapping[int, int] = {}
        self.cpus_changed(topology)
        self._due_ms: dict[str, int] = {}
        self._measuring: _Measuring | None = None
        self._next_target: _Target = ("", "", "")
        self._waits: dict[str, SchedCounters] = {}
        self._stalls: dict[str, tuple[int, Stall]] = {}
        self._disks: dict[str, Mapping[str, DiskCounters]] = {}
        self._segments: dict[str, TcpCounters] = {}
        self._troubles: dict[str, str] = {}
        """What is missing while a step of a slow collector fails -> why its last run failed."""
        is_on = settings.feature_gates.enabled
        psi, cold, resctrl = is_on("PSICollector"), is_on("ColdPageCollector"), is_on("ResctrlCollector")
        wait_ms = _milliseconds(settings.psi_collector_interval)
        cold_ms = _milliseconds(settings.coldpage_collector_interval)
        resctrl_ms = _milliseconds(settings.resctrl_collector_interval)
        slow: tuple[tuple[bool, bool, Feature, int, _Collect], ...] = (
            (psi, True, Feature.PSI, wait_ms, self._pressure),
            (psi, True, Feature.SCHED_DELAY, wait_ms, self._sched_delay),
            (False, True, Feature.DISK_AWAIT, wait_ms, self._disk_await),
            (False, True, Feature.TCP_RETRANSMIT, wait_ms, self._retransmissions),
            (
                resctrl and settings.enable_resctrl_collector,
                False,
                Feature.RESCTRL_MONITOR,
                resctrl_ms,
                self._resctrl,
            ),
            (cold, False, Feature.COLD_PAGES, cold_ms, self._cold_pages),
        )
        self._slow = [
            _Slow(always, feature, every_ms, collect, VISITS.get(feature, PodCollector.PRESSURE))
            for always, for_interference, feature, every_ms, collect in slow
            if (always or for_interference) and features.usable(feature)
        ]
        self._measures_cpi = is_on("CPICollector") and features.usable(Feature.CPI)

    def run(
        self,
        pods: Sequence[AgentPod],
        now_ms: int,
        *,
        host_applications: Sequence[HostApplication] = (),
        best_effort: BestEffortTree | None = None,
        apps_with_page_cache: bool = False,
        for_interference: bool = False,
    ) -> Latest:
        """Run the collectors that are due, append their samples, and return the newest CPU usages.

        If interference is detected, PSI and waiting times are collected even if their gates are off.
        """
        visited = self._measured(PodCollector.USAGE, pods)
        if self.places is None or self.places.pods is not visited:
            self.places = places_of(self._host, visited)
        reading = read_host(
            self._host, self.places, host_applications, best_effort=best_effort, cpu_to_numa=self._cpu_to_numa
        )
        if visited is not pods:  # what pods request does not depend on who is measured
            requests = tuple(request for pod in pods for request in pod.be_requests_milli)
            reading = replace(reading, be_requests_milli=requests)
        self.reading = reading
        latest = self._monitor.observe(reading, now_ms, apps_with_page_cache=apps_with_page_cache)
        for slow in self._slow:
            missing = f"{slow.feature} is not measured"
            if not (slow.always or for_interference):
                self._troubles.pop(missing, None)  # nobody wants it any more
            elif self._is_due(slow.feature, slow.every_ms, now_ms):
                with self._told(missing):
                    self._monitor.add(slow.collect(self._measured(slow.visits, pods), now_ms))
        if self._measures_cpi:
            self._measure_cycles(self._measured(PodCollector.CYCLES, pods), now_ms)
        return latest

    @property
    def problems(self) -> list[str]:
        """Why slow collectors failed in their last run, one sentence each."""
        return list(self._troubles.values())

    @contextmanager
    def _told(self, missing: str) -> Generator[None]:
        """Remember an error in one step of a slow collector, which then ends nothing else. `missing` is a sentence."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - without these samples, the agent still protects the node
            self._troubles[missing] = failure(missing, error)
        else:
            self._troubles.pop(missing, None)

    def cpus_changed(self, topology: Sequence[CpuPlace]) -> None:
        if self.features.usable(Feature.NUMA):
            self._cpu_to_numa = {place.cpu: place.node for place in topology}

    @property
    def cold_memory_running(self) -> bool:
        """Whether cold pages are measured on this machine (agent spec, 7)."""
        return any(slow.feature is Feature.COLD_PAGES for slow in self._slow)

    def forget(self, uids: Iterable[str]) -> None:
        """UIDs of pods that have ended."""
        for uid in uids:
            self._waits.pop(uid, None)
            self._stalls.pop(uid, None)
            self._disks.pop(uid, None)
            self._segments.pop(uid, None)

    def close(self) -> None:
        if self._measuring is not None:
            for source in self._measuring.sources.values():
                source.close()
            self._measuring = None

    def _is_due(self, name: str, every_ms: int, now_ms: int) -> bool:
        due = self._due_ms.get(name)
        # a clock that was set back must not silence a collector
        if due is not None and due - every_ms <= now_ms < due:
            return False
        self._due_ms[name] = now_ms + every_ms
        return True

    def _pressure(self, pods: Sequence[AgentPod], now_ms: int) -> Iterator[Sample]:
        node = self._host.node_counters()
        for pod in pods:
            found = self._host.pressure(self._host.layout.pod_directory(pod.kube_qos, pod.cgroup_uid))
            if found is None:
                continue
            yield from pressure_samples(found, now_ms, pod.uid)
            if "mem" in found and node is not None:
                yield from self._alloc_stall(pod.uid, found["mem"].some, node.at_ns, now_ms)
            for container_id, directory in container_directories(self._host, pod):
                of_container = self._host.pressure(directory)
                if of_container is not None:
                    yield from pressure_samples(of_container, now_ms, pod.uid, container_id)

    def _alloc_stall(self, uid: str, stall: Stall, at_ns: int, now_ms: int) -> Iterator[Sample]:
        before = self._stalls.get(uid)
        self._stalls[uid] = at_ns, stall
        ratio = stall_ratio(before[1], stall, at_ns - before[0]) if before is not None else None
        if ratio is not None:
            yield Sample(Kind.POD_MEMORY_ALLOC_STALL, now_ms, ratio, uid)

    def _sched_delay(self, pods: Sequence[AgentPod], now_ms: int) -> Iterator[Sample]:
        for pod in pods:
            if pod.is_best_effort:
                continue
            counters = self._host.sched_counters(self._host.layout.pod_directory(pod.kube_qos, pod.cgroup_uid))
            if counters is None:
                continue
            before = self._waits.get(pod.uid)
            self._waits[pod.uid] = counters
            delay = sched_delay_ms(before, counters) if before is not None else None
            if delay is not None:
                yield Sample(Kind.POD_SCHED_DELAY, now_ms, delay, pod.uid)

    def _disk_await(self, pods: Sequence[AgentPod], now_ms: int) -> Iterator[Sample]:
        for pod in pods:
            if pod.is_best_effort:
                continue
            disks = self._host.disk_counters(self._host.layout.pod_directory(pod.kube_qos, pod.cgroup_uid))
            if disks is None:
                continue
            before = self._disks.get(pod.uid)
            self._disks[pod.uid] = disks
            await_ms = disk_await_ms(*common_disks(before, disks)) if before is not None else None
            if await_ms is not None:
                yield Sample(Kind.POD_DISK_AWAIT, now_ms, await_ms, pod.uid)

    def _retransmissions(self, pods: Sequence[AgentPod], now_ms: int) -> Iterator[Sample]:
        for pod in pods:
            if pod.is_best_effort:
                continue
            segments = self._host.tcp_counters(self._host.layout.pod_directory(pod.kube_qos, pod.cgroup_uid))
            if segments is None:
                continue
            before = self._segments.get(pod.uid)
            self._segments[pod.uid] = segments
            ratio = retransmit_ratio(before, segments) if before is not None else None
            if ratio is not None:
                yield Sample(Kind.POD_TCP_RETRANSMIT, now_ms, ratio, pod.uid)

    def _resctrl(self, _pods: Sequence[AgentPod], now_ms: int) -> Iterator[Sample]:
        yield from resctrl_samples(self._host.resctrl_counters(), now_ms)

    def _cold_pages(self, pods: Sequence[AgentPod], now_ms: int) -> Iterator[Sample]:
        node, cold = self._host.node_counters(), self._host.cold_page_bytes("")
        if node is not None and cold is not None:
            yield from cold_page_samples("node", cold, node.memory.with_page_cache_bytes, now_ms)
        for pod in pods:
            yield from self._cold_of(
                "pod", self._host.layout.pod_directory(pod.kube_qos, pod.cgroup_uid), now_ms, pod.uid
            )
            for container_id, directory in container_directories(self._host, pod):
                yield from self._cold_of("container", directory, now_ms, container_id)

    def _cold_of(self, level: str, directory: str, now_ms: int, of: str) -> Iterator[Sample]:
        cold = self._host.cold_page_bytes(directory)
        counters = self._host.cgroup_counters(directory) if cold is not None else None
        if cold is not None and counters is not None and counters.memory is not None:
            yield from cold_page_samples(level, cold, counters.memory.with_page_cache_bytes, now_ms, of)

    def _measure_cycles(self, pods: Sequence[AgentPod], now_ms: int) -> None:
        """Count cycles and instructions during a window of each interval, and append samples at its end."""
        measuring = self._measuring
        if measuring is not None:
            if 0 <= now_ms - measuring.since_ms < self._cpi_window_ms:
                return
            with self._told(f"{Feature.CPI} is not measured"):
                self._end_window(measuring, now_ms)
        if self._is_due(Feature.CPI, self._cpi_ms, now_ms):
            with self._told(f"{Feature.CPI} is not counted"):
                self._begin_window(pods, now_ms)

    def _end_window(self, measuring: _Measuring, now_ms: int) -> None:
        try:
            samples = [
                sample
                for (uid, container_id), source in measuring.sources.items()
                for sample in cpi_samples(source.read(), now_ms, uid, container_id)
            ]
        finally:
            self.close()
        self._monitor.add(samples)

    def _begin_window(self, pods: Sequence[AgentPod], now_ms: int) -> None:
        """If not all containers can be counted at once, each window begins where the last one ended."""
        measuring = self._measuring = _Measuring(now_ms)
        targets = sorted(self._cycle_targets(pods))
        first = bisect_left(targets, self._next_target)
        for target in (*targets[first:], *targets[:first]):
            uid, container_id, directory = target
            try:
                source = self._host.open_cycle_counters(directory)
            except TooManyOpenFiles as error:
                self._next_target, count = target, len(measuring.sources)
                how = f"in turns, {count} containers in each window" if count else "for no container"
                self._troubles[_IN_TURNS] = f"{_IN_TURNS} {how}: {error}"
                return
            if source is not None:
                measuring.sources[uid, container_id] = source
        self._troubles.pop(_IN_TURNS, None)

    def _cycle_targets(self, pods: Sequence[AgentPod]) -> Iterator[_Target]:
        for pod in pods:
            created = tuple(container_directories(self._host, pod))
            # without container ids (no kubelet) the pod stands for its one container
            of_pod = ((pod.uid, self._host.layout.pod_directory(pod.kube_qos, pod.cgroup_uid)),)
            yield from ((pod.uid, container_id, directory) for container_id, directory in created or of_pod)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1_000)
