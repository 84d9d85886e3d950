"""Measure one node: collectors, series, prediction, topology, usage reports, and the look: the snapshot for a cycle.

Source: agent spec, 7.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from koordcore.events.envelope import Event
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol.config.sections import MemoryCollectPolicy
from koordcore.protocol.pod_resources import MEMORY
from koordcore.protocol.resource_names import BATCH_MEMORY
from koordcore.values.cpuset import EMPTY
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.extending.extension_points import Surroundings
from koord_agent.domain.extending.node_extensions import NodeExtensions
from koord_agent.domain.kernel.cgroup_layout import kubepods_directory
from koord_agent.domain.metrics.gpu_usage import ReadGpus, gpu_samples
from koord_agent.domain.metrics.monitor import Latest, NodeMonitor
from koord_agent.domain.metrics.series import Metrics, Sample
from koord_agent.domain.node.cpu_pools import CpuPools
from koord_agent.domain.node.desired import DesiredView
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.prediction.reclaimable import ProdPrediction
from koord_agent.domain.reporting.oom_kills import OOM_CONTROL, OomKills, oom_kill_count
from koord_agent.domain.strategies.be_cpuset import CpuOwners
from koord_agent.domain.strategies.contention.contentions import interference_settings
from koord_agent.domain.strategies.cpu_suppress import NodeView
from koord_agent.settings import AgentSettings
from koord_agent.shell.collect.collectors import Collectors
from koord_agent.shell.collect.devices import DeviceReporter, owners_of
from koord_agent.shell.collect.sensing import (
    BestEffortTree,
    container_directories,
    cpu_owners,
    read_best_effort,
    suppress_view,
)
from koord_agent.shell.collect.topology import TopologyReporter
from koord_agent.shell.host.host import Host
from koord_agent.shell.node.newest_usage import NewestUsage
from koord_agent.shell.node.predicting import Predicting
from koord_agent.shell.node.usage_report import report_of
from koord_agent.shell.store.series_archive import SeriesArchive

OBJECT_MARGIN_MS = 60_000
"""Time for which samples are kept beyond the window of a report, because a report may be late."""


OOM_INTERVAL_MS = 10_000
"""Time between two looks at kills for lack of memory, so that a node reads few more files each second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    monitor: NodeMonitor  # Monitor with its time series. Their retention determines the memory usage.
    predicting: Predicting | None = None
    # Archive that keeps the time series over a restart. None means that they are lost.
    archive: SeriesArchive | None = None
    topology: TopologyReporter | None = None  # Reports the CPUs of each kind of pods. None means they are not reported.
    devices: DeviceReporter | None = None  # Reports the devices of the node. None means they are not reported.
    gpus: ReadGpus | None = None  # Returns the GPUs with their processes. None means that their usage is not measured.


class Kubelet(NamedTuple):
    """Facts about the kubelet that measuring needs besides the list of pods."""

    # UIDs of pods that must not be changed, because their newest version is invalid or unknown.
    frozen: frozenset[str] = frozenset()
    is_static: bool = False  # Whether the CPU manager policy is static
    has_listed: bool = True  # Whether it has listed its pods. True also if it is not asked.
    # `cgroupRoot` of its configuration, in which "" is the root of the hierarchy; None if unknown.
    cgroup_root: str | None = None


class NodeMeasuring:
    """Measures one node and makes its reports. Only its agent uses it."""

    def __init__(
        self,
        node: str,
        host: Host,
        measurement: Measurement,
        extensions: NodeExtensions,
        *,
        settings: AgentSettings,
        interval_ms: int,
    ) -> None:
        # Reports the CPUs of each kind of pods. None means they are not reported.
        self.topology: TopologyReporter | None = measurement.topology
        self._devices = measurement.devices
        self._read_gpus = measurement.gpus
        self.last_report: NodeUsageReported | None = None  # The last usage report; None before the first one
        self._node = node
        self._host = host
        self._monitor = measurement.monitor
        self.store = measurement.monitor.store
        self.features = host.features()
        self._predicting = measurement.predicting
        self._archive = measurement.archive
        self._archive_trouble: str | None = None
        self._oom_kills = OomKills()
        self._oom_looked_ms: int | None = None
        self._extensions = extensions
        self._interval_ms = interval_ms
        self._places = host.cpu_topology()
        self._known: tuple[AgentPod, ...] = ()
        self._known_of: Mapping[str, AgentPod] | None = None
        self._owners: CpuOwners | None = None
        self._owners_of: Mapping[str, AgentPod] | None = None
        self._collectors = Collectors(
            host,
            measurement.monitor,
            features=self.features,
            settings=settings,
            topology=self._places,
            measured=extensions.measured,
        )
        self._newest = NewestUsage(host, self._collectors)
        if self.topology is not None and extensions.amends_topology:
            self.topology.amend = extensions.topology

    @property
    def pools(self) -> CpuPools | None:
        return None if self.topology is None else self.topology.pools

    @property
    def last_prediction(self) -> ProdPrediction | None:
        """None before the first report."""
        return None if self._predicting is None else self._predicting.last

    def report_devices(self, now_ms: int, problems: list[str]) -> tuple[Event, ...]:
        """Empty unless the fact is due and differs from the last one."""
        if self._devices is None:
            return ()
        report = self._devices.report(now_ms)
        if self._devices.problem:
            problems.append(f"devices are not reported: {self._devices.problem}")
        return () if report is None else (report,)

    def report_oom_kills(self, pods: Iterable[AgentPod], now_ms: int) -> tuple[Event, ...]:
        """Empty unless containers were killed for lack of memory since the last look, ten seconds before."""
        looked_ms = self._oom_looked_ms
        if looked_ms is not None and 0 <= now_ms - looked_ms < OOM_INTERVAL_MS:
            return ()
        self._oom_looked_ms = now_ms
        known, counts = tuple(pods), dict[str, int]()
        for pod in known:
            places: Iterable[tuple[str, str]] = ()
            if pod.containers:
                places = container_directories(self._host, pod)
            elif MEMORY in pod.limits or BATCH_MEMORY in pod.limits:
                places = ((pod.uid, self._host.layout.pod_directory(pod.kube_qos, pod.cgroup_uid)),)
            for identity, directory in places:
                count = oom_kill_count(self._host.read(CgroupFile(directory, OOM_CONTROL)))
                if count is not None:
                    counts[identity] = count
        return self._oom_kills.look(known, counts, now_ms)

    def report_topology(
        self, desired: DesiredView, pods: Iterable[AgentPod], now_ms: int, problems: list[str]
    ) -> tuple[Event, ...]:
        """Empty unless the fact is due and differs from the last one."""
        if self.topology is None:
            return ()
        before = self.topology.pools
        report = self.topology.report(desired, tuple(pods), now_ms)
        problems.extend(self.topology.problems)
        if self.topology.pools != before:
            self._owners_of = None
        if self.topology.places != self._places and self.topology.places:
            self._places, self._owners_of = self.topology.places, None
            self._collectors.cpus_changed(self._places)
        return () if report is None else (report,)

    def measure(
        self, desired: DesiredView, pods: Mapping[str, AgentPod], kubelet: Kubelet, now_ms: int, problems: list[str]
    ) -> tuple[NodeLook, NodeView]:
        """Run the collectors, and return the snapshot of the node for this cycle and the inputs of CPU suppression."""
        self._monitor.store.keep_objects_for(desired.collect.aggregate_duration_seconds * 1000 + OBJECT_MARGIN_MS)
        if self._known_of is not pods:
            self._known, self._known_of = tuple(pods.values()), pods
        known = self._known
        best_effort = read_best_effort(self._host)
        if problem := self._root_problem(kubelet.cgroup_root, is_there=bool(best_effort.cgroups or not known)):
            problems.append(problem)
        latest = self._collectors.run(
            known,
            now_ms,
            host_applications=desired.host_applications,
            best_effort=best_effort,
            apps_with_page_cache=desired.collect.memory is MemoryCollectPolicy.WITH_PAGE_CACHE,
            for_interference=_looks_for_interference(desired.slo),
        )
        problems.extend(self._collectors.problems)
        self._monitor.add(self._extensions.collect(self._surroundings(desired, known, now_ms)))
        self._monitor.add(self._gpu_samples(known, now_ms))
        latest = self._newest.of_cycle(latest)
        view = self._suppress_view(desired, pods, latest, best_effort, now_ms, is_static=kubelet.is_static)
        look = self._look(desired, known, kubelet, now_ms)
        problems.extend(self._keep(look, now_ms))
        return look, view

    def measure_rise(self, desired: DesiredView, look: NodeLook, now_ms: int) -> NodeView | None:
        """Return the inputs of CPU suppression from the usage since the last decision. None before the first cycle."""
        latest, pods = self._newest.between_cycles(desired.host_applications), self._known_of
        if latest is None or pods is None:
            return None
        best_effort = read_best_effort(self._host)
        return self._suppress_view(desired, pods, latest, best_effort, now_ms, is_static=look.kubelet_static)

    def _suppress_view(
        self,
        desired: DesiredView,
        pods: Mapping[str, AgentPod],
        latest: Latest,
        best_effort: BestEffortTree,
        now_ms: int,
        *,
        is_static: bool,
    ) -> NodeView:
        return suppress_view(
            self._host,
            now_ms=now_ms,
            capacity_milli=desired.capacity_milli,
            reserved_milli=desired.reserved_milli,
            pods=self._known,
            latest=latest,
            best_effort=best_effort,
            host_applications={app.name: app for app in desired.host_applications},
            owners=self._cpu_owners(pods),
            kubelet_static=is_static,
        )

    def report(
        self,
        desired: DesiredView,
        pods: Mapping[str, AgentPod],
        *,
        be_quota_us: int,
        now_ms: int,
        rfc3339_of: Callable[[int], str],
    ) -> NodeUsageReported:
        """The arguments are those of `report_of`."""
        prediction = None
        if self._predicting is not None:
            prediction = self._predicting.predict(
                tuple(pods.values()), desired.allocatable, desired.annotations, now_ms / 1000
            )
        self.last_report = report_of(
            self._host,
            self._metrics(now_ms),
            desired,
            pods,
            self._extensions,
            prediction=prediction,
            be_quota_us=be_quota_us,
            cold_memory_running=self._collectors.cold_memory_running,
            gpus=() if self._read_gpus is None else self._read_gpus(),
            rfc3339_of=rfc3339_of,
            oom_kills=self._oom_kills.last(),
        )
        return self.last_report

    def _root_problem(self, cgroup_root: str | None, *, is_there: bool) -> str:
        """Why the pods of this node are not found, as a sentence; "" if they are. `is_there` saves a look."""
        layout = self._host.layout
        give = "give the kubelet's cgroupRoot by --kubelet-cgroup-root, or start the agent again"
        if cgroup_root is not None and (wanted := kubepods_directory(cgroup_root, layout.driver)) != layout.root:
            return f"cgroup of the pods: must be {wanted!r} by the kubelet's cgroupRoot, is {layout.root!r}: {give}"
        if is_there or self._host.tree(layout.root):
            return ""
        return f"cgroup of the pods: {layout.root!r} does not exist, so no pod is measured or protected: {give}"

    def _gpu_samples(self, pods: Sequence[AgentPod], now_ms: int) -> Iterable[Sample]:
        """Empty if their usage is not measured."""
        roots = self._host.roots
        if self._read_gpus is None or roots is None:
            return ()
        gpus = self._read_gpus()
        pids = {process.pid for gpu in gpus for process in gpu.processes}
        return gpu_samples(gpus, owners_of(pids, pods, roots.proc), now_ms)

    def forget(self, uids: Iterable[str]) -> None:
        gone = set(uids)
        self._collectors.forget(gone)
        self._oom_kills.forget(gone)
        self._monitor.forget(gone)

    def collect_garbage(self, now_ms: int) -> None:
        """Delete samples older than their retention. If the series still need too much memory, halve the longest."""
        self._monitor.store.collect_garbage(now_ms)

    def close(self, now_ms: int) -> str | None:
        """Close the hardware counters (perf events), and store the series.

        Return a sentence if the disk failed, otherwise None.
        """
        try:
            return None if self._archive is None else self._archive.save(self._monitor.store, now_ms)
        finally:
            self._collectors.close()

    def _metrics(self, now_ms: int) -> Metrics:
        return Metrics(store=self._monitor.store, now_ms=now_ms, interval_ms=self._interval_ms)

    def _look(self, desired: DesiredView, pods: tuple[AgentPod, ...], kubelet: Kubelet, now_ms: int) -> NodeLook:
        pools = self.pools
        return NodeLook(
            now_ms=now_ms,
            node=self._node,
            layout=self._host.layout,
            cgroup_version=self._host.cgroup_version,
            metrics=self._metrics(now_ms),
            pods=pods,
            slo=self._extensions.slo(desired.slo),
            slo_problem=desired.policy_problem,
            capacity=desired.capacity,
            allocatable=desired.allocatable,
            reserved_milli=desired.reserved_milli,
            labels=desired.labels,
            annotations=desired.annotations,
            host_applications=desired.host_applications,
            reserved_cpus=EMPTY if pools is None else pools.kept_free,
            system_cpus=EMPTY if pools is None else pools.system_exclusive,
            pools=pools,
            has_all_pods=kubelet.has_listed,
            frozen=kubelet.frozen,
            kubelet_static=kubelet.is_static,
            states=self._extensions.states,
            topology=self._places,
        )

    def _keep(self, look: NodeLook, now_ms: int) -> list[str]:
        """Train the usage models, and store models and samples on disk, if it is due. Return the errors that last."""
        trouble = None if self._predicting is None else self._predicting.learn(look)
        if self._archive is not None and self._archive.is_due(now_ms):
            self._archive_trouble = self._archive.save(self._monitor.store, now_ms)
        return [each for each in (trouble, self._archive_trouble) if each is not None]

    def _surroundings(self, desired: DesiredView, pods: tuple[AgentPod, ...], now_ms: int) -> Surroundings:
        return Surroundings(
            now_ms=now_ms,
            node=self._node,
            layout=self._host.layout,
            cgroup_version=self._host.cgroup_version,
            pods=pods,
            host_applications=desired.host_applications,
            read=self._host.read,
        )

    def _cpu_owners(self, pods: Mapping[str, AgentPod]) -> CpuOwners | None:
        if self._owners_of is not pods:
            pools = self.pools
            self._owners = cpu_owners(
                self._places,
                pods.values(),
                reserved=EMPTY if pools is None else pools.kept_free,
                system_exclusive=EMPTY if pools is None else pools.system_exclusive,
            )
            self._owners_of = pods
        return self._owners


def _looks_for_interference(slo: Mapping[str, Any] | None) -> bool:
    try:
        return slo is not None and interference_settings(slo).enable
    except InvalidInput:
        return False
