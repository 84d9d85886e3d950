"""The usage report of a node: the status of a NodeMetric, computed from the series once per report interval.

Source: agent spec, 7 (items 1 to 7). Vectors: node_metric_report.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koordcore.events.observation import GpuUsage
from koordcore.protocol.config.typed import MemoryCollectPolicy

from koord_agent.domain.metrics.gpu_usage import GpuReading, gpu_usages
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import Points, SeriesStore, aggregate, is_cold
from koord_agent.domain.state.collect_policy import CollectPolicy
from koord_agent.domain.state.pods import ReportedPod

AGGREGATES = ("avg", "p50", "p90", "p95", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Used amounts: cpu in milli-cores, memory in bytes; fractions are cut off."""

    cpu_milli: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatedUsage:
    """Percentiles and average of usage over one window.

    Attributes:
        duration_seconds: Length of the window.
        usage: Aggregate, such as `p95` -> usage. None if the samples cover less than half of the window.
    """

    duration_seconds: int
    usage: Mapping[str, Usage | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMetric:
    """Usage of one pod in the report. If the pod has several containers, also the usage of each container by name."""

    pod: ReportedPod
    usage: Usage
    containers: tuple[tuple[str, Usage], ...] = ()
    gpus: tuple[GpuUsage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedHostApplication:
    """Name, priority class and QoS class of a host application in the report."""

    name: str
    priority: str
    qos: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostApplicationMetric:
    """Usage of one host application in the report."""

    application: ReportedHostApplication
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaUsage:
    """Usage of one NUMA node in the report. `system_usage` is None if it is unknown."""

    numa_node: int
    node_usage: Usage
    system_usage: Usage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """The usage report of a node: the status of its NodeMetric. A usage is None if there is no sample."""

    update_time_ms: int
    policy: CollectPolicy
    node_usage: Usage | None
    aggregated_node_usages: tuple[AggregatedUsage, ...]
    system_usage: Usage | None
    aggregated_system_usages: tuple[AggregatedUsage, ...]
    numa_usages: tuple[NumaUsage, ...]
    pods: tuple[PodMetric, ...]
    host_applications: tuple[HostApplicationMetric, ...]
    gpus: tuple[GpuUsage, ...] = ()


_NODE_MEMORY = {
    MemoryCollectPolicy.WITHOUT_PAGE_CACHE: Kind.NODE_MEMORY,
    MemoryCollectPolicy.WITH_PAGE_CACHE: Kind.NODE_MEMORY_WITH_PAGE_CACHE,
    MemoryCollectPolicy.WITH_HOT_PAGE_CACHE: Kind.NODE_MEMORY_WITH_HOT_PAGE,
}
_POD_MEMORY = {
    MemoryCollectPolicy.WITHOUT_PAGE_CACHE: Kind.POD_MEMORY,
    MemoryCollectPolicy.WITH_PAGE_CACHE: Kind.POD_MEMORY_WITH_PAGE_CACHE,
    MemoryCollectPolicy.WITH_HOT_PAGE_CACHE: Kind.POD_MEMORY_WITH_HOT_PAGE,
}
_CONTAINER_MEMORY = {
    MemoryCollectPolicy.WITHOUT_PAGE_CACHE: Kind.CONTAINER_MEMORY,
    MemoryCollectPolicy.WITH_PAGE_CACHE: Kind.CONTAINER_MEMORY_WITH_PAGE_CACHE,
    MemoryCollectPolicy.WITH_HOT_PAGE_CACHE: Kind.CONTAINER_MEMORY_WITH_HOT_PAGE,
}
_HOST_APP_MEMORY = {
    MemoryCollectPolicy.WITHOUT_PAGE_CACHE: Kind.HOST_APP_MEMORY,
    MemoryCollectPolicy.WITH_PAGE_CACHE: Kind.HOST_APP_MEMORY_WITH_PAGE_CACHE,
    MemoryCollectPolicy.WITH_HOT_PAGE_CACHE: Kind.HOST_APP_MEMORY_WITH_HOT_PAGE,
}


def node_report(
    store: SeriesStore,
    *,
    now_ms: int,
    policy: CollectPolicy,
    pods: Iterable[ReportedPod] = (),
    host_applications: Iterable[ReportedHostApplication] = (),
    gpus: Sequence[GpuReading] = (),
    cold_memory_running: bool = False,
    with_aggregates: bool = True,
) -> NodeReport:
    """Compute the usage report of a node over the windows [now - duration, now].

    Args:
        store: The time series.
        now_ms: Time in milliseconds.
        policy: Collect policy in force.
        pods: The pods of the node.
        host_applications: Processes outside Kubernetes that the NodeSLO names.
        gpus: The GPUs of the machine; empty if their usage is not measured.
        cold_memory_running: Whether cold pages are measured. If not, the hot-page policy counts as the default
            policy.
        with_aggregates: Whether percentiles are computed.

    Returns:
        The report. Pods are sorted by namespace and name; pods without CPU or memory samples are left out.
    """
    policy = policy.effective()
    memory = policy.memory
    if memory is MemoryCollectPolicy.WITH_HOT_PAGE_CACHE and not cold_memory_running:
        memory = MemoryCollectPolicy.WITHOUT_PAGE_CACHE
    start_ms = now_ms - policy.aggregate_duration_seconds * 1000

    def average(cpu: Kind, of_memory: Kind, of: str = "") -> Usage | None:
        return _usage(store.between(cpu, start_ms, now_ms, of), store.between(of_memory, start_ms, now_ms, of), "avg")

    def windows(cpu: Kind, of_memory: Kind) -> tuple[AggregatedUsage, ...]:
        if not with_aggregates:
            return ()
        return tuple(_window(store, cpu, of_memory, now_ms, seconds) for seconds in policy.durations_seconds)

    pod_metrics = [
        PodMetric(
            pod=pod,
            usage=usage,
            containers=tuple(
                (name, used)
                for name, container_id in pod.containers
                if (used := average(Kind.CONTAINER_CPU, _CONTAINER_MEMORY[memory], container_id)) is not None
            ),
            gpus=gpu_usages(store, gpus, start_ms, now_ms, pod.uid),
        )
        for pod in sorted(pods, key=lambda p: (p.namespace, p.name))
        if (usage := average(Kind.POD_CPU, _POD_MEMORY[memory], pod.uid)) is not None
    ]
    application_metrics = [
        HostApplicationMetric(application=application, usage=usage)
        for application in sorted(host_applications, key=lambda a: a.name)
        if (usage := average(Kind.HOST_APP_CPU, _HOST_APP_MEMORY[memory], application.name)) is not None
    ]
    numa = [
        NumaUsage(
            numa_node=int(node),
            node_usage=usage,
            system_usage=average(Kind.SYSTEM_NUMA_CPU, Kind.SYSTEM_NUMA_MEMORY, node),
        )
        for node in sorted(store.objects(Kind.NUMA_CPU), key=int)
        if (usage := average(Kind.NUMA_CPU, Kind.NUMA_MEMORY, node)) is not None
    ]
    return NodeReport(
        update_time_ms=now_ms,
        policy=policy,
        node_usage=average(Kind.NODE_CPU, _NODE_MEMORY[memory]),
        aggregated_node_usages=windows(Kind.NODE_CPU, _NODE_MEMORY[memory]),
        system_usage=average(Kind.SYSTEM_CPU, Kind.SYSTEM_MEMORY),
        aggregated_system_usages=windows(Kind.SYSTEM_CPU, Kind.SYSTEM_MEMORY),
        numa_usages=tuple(numa),
        pods=tuple(pod_metrics),
        host_applications=tuple(application_metrics),
        gpus=gpu_usages(store, gpus, start_ms, now_ms),
    )


def _window(store: SeriesStore, cpu_kind: Kind, memory_kind: Kind, now_ms: int, seconds: int) -> AggregatedUsage:
    cpu = store.between(cpu_kind, now_ms - seconds * 1000, now_ms)
    memory = store.between(memory_kind, now_ms - seconds * 1000, now_ms)
    cold = is_cold(cpu, seconds * 1000)
    return AggregatedUsage(
        duration_seconds=seconds,
        usage={name: None if cold else _usage(cpu, memory, name) for name in AGGREGATES},
    )


def _usage(cpu: Points, memory: Points, name: str) -> Usage | None:
    """Return CPU and memory usage; None if one of them has no sample, because it would read as zero."""
    if not len(cpu.values) or not len(memory.values):
        return None
    return Usage(cpu_milli=int(aggregate(cpu, name) * 1000), memory_bytes=int(aggregate(memory, name)))
