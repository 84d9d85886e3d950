"""Read a host once per cycle: counters for `domain.metrics.monitor`, and the inputs of CPU suppression."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from koordcore.protocol.qos import KubeQos
from koordcore.values.cpuset import EMPTY, CpuSet, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.topology import CpuPlace

from koord_agent.domain.kernel.cgroup_files import Unsupported, from_file_text
from koord_agent.domain.kernel.cgroup_layout import HostApplication, UnknownContainerId
from koord_agent.domain.kernel.counters import CgroupCounters
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.monitor import BestEffortReading, HostReading, Latest, NumaReading
from koord_agent.domain.metrics.series import Metrics
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.strategies.be_cpuset import CpuOwners
from koord_agent.domain.strategies.cpu_suppress import BeCgroup, HostAppCpu, NodeView, PodCpu
from koord_agent.shell.host.host import Host

CFS_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BestEffortTree:
    """CPU quota of the best-effort class (None if unreadable), and CPU lists of its directories, parents first."""

    quota_us: int | None
    cgroups: tuple[BeCgroup, ...]


def read_best_effort(host: Host) -> BestEffortTree:
    """Unreadable directories are left out."""
    root = host.layout.qos_directory(KubeQos.BEST_EFFORT)
    found = (_be_cgroup(root, directory, text) for directory, text in host.cpu_lists(root).items())
    cgroups = tuple(cgroup for cgroup in found if cgroup is not None)
    return BestEffortTree(quota_us=_number(host, CgroupFile(root, "cpu.cfs_quota_us")), cgroups=cgroups)


@lru_cache(maxsize=4096)
def _be_cgroup(root: str, directory: str, text: str) -> BeCgroup | None:
    """None if the CPU list is invalid."""
    cpus = _cpuset(text)
    is_container = directory.count("/") == root.count("/") + 2
    return None if cpus is None else BeCgroup(directory=directory, cpuset=cpus, is_container=is_container)


@lru_cache(maxsize=4096)
def _cpuset(text: str) -> CpuSet | None:
    try:
        return parse_cpuset(text.strip())
    except InvalidInput:
        return None


def _number(host: Host, file: CgroupFile) -> int | None:
    text = host.read(file)
    try:
        return int(from_file_text(file.resource, text, host.cgroup_version)) if text is not None else None
    except (InvalidInput, Unsupported):
        return None


def container_directories(host: Host, pod: AgentPod) -> Iterator[tuple[str, str]]:
    """Id and directory of each created container. Containers of unknown runtimes are left out.

    None if they run in a virtual machine: the node has no cgroups of them.
    """
    for container in () if pod.is_in_vm else pod.created:
        identity = container.container_id
        try:
            yield identity, host.layout.container_directory(pod.kube_qos, pod.cgroup_uid, identity)
        except UnknownContainerId:
            continue


class PodPlace(NamedTuple):
    """The directories of a pod and of its containers by id."""

    uid: str
    directory: str
    containers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PodPlaces:
    """What reading the pods of a node needs. It is made anew when they change."""

    pods: Sequence[AgentPod]
    each: tuple[PodPlace, ...]
    be_requests_milli: tuple[int, ...]


def places_of(host: Host, pods: Sequence[AgentPod]) -> PodPlaces:
    layout = host.layout
    return PodPlaces(
        pods,
        tuple(
            PodPlace(
                pod.uid, layout.pod_directory(pod.kube_qos, pod.cgroup_uid), tuple(container_directories(host, pod))
            )
            for pod in pods
        ),
        tuple(request for pod in pods for request in pod.be_requests_milli),
    )


def read_host(
    host: Host,
    places: PodPlaces,
    host_applications: Iterable[HostApplication] = (),
    best_effort: BestEffortTree | None = None,
    cpu_to_numa: Mapping[int, int] | None = None,
) -> HostReading:
    """Read all counters of a machine: of the node, and of known pods, containers, host applications and best effort.

    Without `best_effort`, the result of `read_best_effort` in this cycle, the class is not measured; without
    `cpu_to_numa`, NUMA nodes are not.
    """
    root, counters = host.layout.qos_directory(KubeQos.BEST_EFFORT), host.cgroup_counters
    best_effort_reading = None
    if best_effort is not None:
        sizes = tuple(len(c.cpuset) for c in best_effort.cgroups if c.is_container or c.directory == root)
        best_effort_reading = BestEffortReading(
            counters=counters(root), quota_us=best_effort.quota_us, cpuset_sizes=sizes
        )
    return HostReading(
        node=host.node_counters(),
        pods={uid: counters(directory) for uid, directory, _ in places.each},
        containers={
            container_id: counters(directory, of_pod)
            for _, of_pod, containers in places.each
            for container_id, directory in containers
        },
        numa=_numa(host, places, cpu_to_numa) if cpu_to_numa else None,
        host_applications={app.name: _application_counters(host, app) for app in host_applications},
        best_effort=best_effort_reading,
        be_requests_milli=places.be_requests_milli,
    )


def read_cpu_counters(host: Host, places: PodPlaces, host_applications: Iterable[HostApplication]) -> HostReading:
    """Read the CPU times of the node, its pods and its host applications, and nothing else."""
    of_applications: dict[str, CgroupCounters | None] = {}
    for app in host_applications:
        with suppress(ValueError):
            of_applications[app.name] = host.cpu_counters(host.layout.host_application_directory(app))
    return HostReading(
        node=host.node_counters(),
        pods={uid: host.cpu_counters(directory) for uid, directory, _ in places.each},
        host_applications=of_applications,
    )


def _numa(host: Host, places: PodPlaces, cpu_to_numa: Mapping[int, int]) -> NumaReading:
    pages: dict[int, int] = {}
    for _, directory, _ in places.each:
        for node, count in (host.numa_pages(directory) or {}).items():
            pages[node] = pages.get(node, 0) + count
    return NumaReading(cpu_to_numa=cpu_to_numa, memory_bytes=host.numa_memory(), pods_pages=pages)


def _application_counters(host: Host, application: HostApplication) -> CgroupCounters | None:
    """Memory with page cache is memory.usage_in_bytes (agent spec, 6.6)."""
    try:
        directory = host.layout.host_application_directory(application)
    except ValueError:
        return None
    counters = host.cgroup_counters(directory)
    usage = _number(host, CgroupFile(directory, "memory.usage_in_bytes"))
    if counters is None or counters.memory is None or usage is None:
        return counters
    return counters._replace(memory=counters.memory._replace(with_page_cache_bytes=usage))


def node_signals(host: Host, metrics: Metrics, pods: Iterable[AgentPod], window_ms: int) -> dict[str, float]:
    """Return name -> percent of the node's health signals. Signals that are not measured are left out.

        cpuPressure      largest PSI cpu some avg60 of the burstable class and of each guaranteed pod
        memoryPressure   largest PSI memory full avg60 of them (the pods' root would count best effort, too)
        cpuThrottled     highest mean throttled ratio of a latency-sensitive pod over the window
        lsSlowdown       simulated machines only: time of a request compared with an idle node, 100 = equal

    Source:
        manager spec, 16.1.
    """
    known, layout = tuple(pods), host.layout
    guaranteed = (pod.cgroup_uid for pod in known if pod.kube_qos is KubeQos.GUARANTEED)
    directories = (
        layout.qos_directory(KubeQos.BURSTABLE),
        *(layout.pod_directory(KubeQos.GUARANTEED, uid) for uid in guaranteed),
    )
    found = [pressure for directory in directories if (pressure := host.pressure(directory)) is not None]
    ratios = [
        ratio
        for pod in known
        if not pod.is_best_effort and (ratio := metrics.average(Kind.POD_CPU_THROTTLED, window_ms, pod.uid)) is not None
    ]
    signals: dict[str, float] = {}
    if found:
        signals["cpuPressure"] = max(pressure["cpu"].some.avg60 for pressure in found)
        signals["memoryPressure"] = max(pressure["mem"].full.avg60 for pressure in found)
    if ratios:
        signals["cpuThrottled"] = round(100 * max(ratios), 2)
    # only simulated machines know; asked for by name, since this is done for thousands of them
    slowdown: float | None = getattr(host, "slowdown", None)
    if slowdown is not None:
        signals["lsSlowdown"] = round(100 * slowdown, 1)
    return signals


def cpu_owners(
    topology: Sequence[CpuPlace],
    pods: Iterable[AgentPod],
    *,
    reserved: CpuSet = EMPTY,
    system_exclusive: CpuSet = EMPTY,
) -> CpuOwners | None:
    """Which pods own which CPUs; None if the topology is unknown."""
    if not topology:
        return None
    return CpuOwners(
        cpus=tuple(topology),
        by_qos_label={cpu: pod.qos_label for pod in pods for cpu in pod.cpuset},
        reserved=reserved,
        system_exclusive=system_exclusive,
    )


def suppress_view(
    host: Host,
    *,
    now_ms: int,
    capacity_milli: int,
    reserved_milli: int,
    pods: Iterable[AgentPod],
    latest: Latest,
    best_effort: BestEffortTree,
    host_applications: Mapping[str, HostApplication] | None = None,
    owners: CpuOwners | None = None,
    kubelet_static: bool = False,
) -> NodeView:
    """Gather last usage by class, and present quota and CPU lists of best effort."""
    known = tuple(pods)
    apps = host_applications or {}
    uids = {pod.uid for pod in known}
    orphans = (used for uid, used in latest.pod_cpu_cores.items() if uid not in uids and used is not None)
    return NodeView(
        now_ms=now_ms,
        capacity_milli=capacity_milli,
        reserved_milli=reserved_milli,
        node_cpu_used_cores=latest.node_cpu_cores,
        pods=tuple(
            PodCpu(is_best_effort=pod.is_best_effort, cpu_used_cores=latest.pod_cpu_cores.get(pod.uid)) for pod in known
        ),
        orphan_cpu_used_cores=sum(orphans),
        host_applications=tuple(
            HostAppCpu(is_best_effort=apps[name].is_best_effort, cpu_used_cores=used)
            for name, used in latest.host_app_cpu_cores.items()
            if name in apps
        ),
        be_root=host.layout.qos_directory(KubeQos.BEST_EFFORT),
        be_quota_us=best_effort.quota_us,
        be_cgroups=best_effort.cgroups,
        owners=owners,
        kubelet_static=kubelet_static,
    )
