"""The usage report of a node and its event: the status of a NodeMetric, from the series, once per report interval.

Source: agent spec, 7 (items 1 to 7). Vectors: node_metric_report.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from koordcore.events import observation
from koordcore.events.observation import GpuUsage
from koordcore.protocol.config.sections import MemoryCollectPolicy
from koordcore.values.resources import clamped

from koord_agent.domain.metrics.gpu_usage import GpuReading, gpu_usages
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import Points, SeriesStore, aggregate, is_cold
from koord_agent.domain.node.pods import ReportedPod
from koord_agent.domain.node.policies import CollectPolicy
from koord_agent.domain.prediction.model import Peak
from koord_agent.domain.prediction.reclaimable import Prediction

AGGREGATES = ("avg", "p50", "p90", "p95", "p99")
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
UNLIMITED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Used amounts: cpu in milli-cores, memory in bytes; fractions are cut off."""

    cpu_milli: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatedUsage:
    duration_seconds: int
    # Aggregate, such as `p95` -> usage. None if the samples cover less than half of the window.
    usage: Mapping[str, Usage | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMetric:
    """With several containers, also the usage of each by name."""

    pod: ReportedPod
    usage: Usage
    containers: tuple[tuple[str, Usage], ...] = ()
    gpus: tuple[GpuUsage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedHostApplication:
    name: str
    priority: str
    qos: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostApplicationMetric:
    application: ReportedHostApplication
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaUsage:
    """`system_usage` is None if it is unknown."""

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

    Pods are sorted by namespace and name; pods without CPU or memory samples are left out. If cold pages are not
    measured, the hot-page policy counts as the default policy. `gpus` is empty if their usage is not measured.
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
    """None if one of them has no sample, because it would read as zero."""
    if not len(cpu.values) or not len(memory.values):
        return None
    return Usage(cpu_milli=int(aggregate(cpu, name) * 1000), memory_bytes=int(aggregate(memory, name)))


def usage_reported(
    report: NodeReport,
    *,
    updated_at: str,
    be_quota_us: int,
    prediction: Prediction | None = None,
    signals: Mapping[str, float] | None = None,
    pod_extensions: Mapping[str, dict[str, Any]] | None = None,
    oom_kills: Mapping[str, Mapping[str, str]] | None = None,
) -> observation.NodeUsageReported:
    """The event with a report.

    Args:
        updated_at: RFC 3339 text of report.update_time_ms.
        be_quota_us: CPU quota of the best-effort class in microseconds per period; -1 = unlimited.
        prediction: None if there is none yet.
        signals: Health signal of the node -> percent.
        pod_extensions: UID -> values of extensions.
        oom_kills: UID -> name of a container, "" if unknown -> RFC 3339 time of its last kill for lack of memory.
    """
    return observation.NodeUsageReported(
        updated_at=updated_at,
        report_interval_seconds=report.policy.report_interval_seconds,
        aggregate_duration_seconds=report.policy.aggregate_duration_seconds,
        node_usage=_sample_or_none(report.node_usage),
        aggregated_node_usages=_windows(report.aggregated_node_usages),
        system_usage=_sample_or_none(report.system_usage),
        aggregated_system_usages=_windows(report.aggregated_system_usages),
        pods=[
            _pod_usage(
                metric, (oom_kills or {}).get(metric.pod.uid, {}), (pod_extensions or {}).get(metric.pod.uid, {})
            )
            for metric in report.pods
        ],
        host_applications=[
            observation.HostApplicationUsage(
                name=metric.application.name,
                priority_class=metric.application.priority,
                qos=metric.application.qos,
                usage=_sample(metric.usage),
            )
            for metric in report.host_applications
        ],
        numa=[
            observation.NumaUsage(
                numa_node=numa.numa_node,
                node_usage=_sample(numa.node_usage),
                system_usage=_sample_or_none(numa.system_usage),
            )
            for numa in report.numa_usages
        ],
        be_quota_us=be_quota_us,
        prod_reclaimable=None if prediction is None else _peak(prediction.reclaimable),
        signals=dict(signals or {}),
        gpus=list(report.gpus),
        prod_peak=None if prediction is None else _peak(prediction.peak),
    )


def _pod_usage(metric: PodMetric, killed: Mapping[str, str], extensions: dict[str, Any]) -> observation.PodUsage:
    """`killed`: name of a container -> time of its last kill for lack of memory.

    Containers that were killed before they were measured are listed without usage. A single container is not listed.
    """
    measured = dict(metric.containers)
    has_several = bool(metric.pod.containers)
    unmeasured = (name for name in sorted(killed) if name and name not in measured) if has_several else ()
    return observation.PodUsage(
        uid=metric.pod.uid,
        namespace=metric.pod.namespace,
        name=metric.pod.name,
        priority_class=metric.pod.priority,
        qos=metric.pod.qos,
        usage=_sample(metric.usage),
        containers=[
            observation.ContainerUsage(
                name=name,
                usage=_sample(measured[name]) if name in measured else observation.Usage(),
                oom_killed_at=killed.get(name, ""),
            )
            for name in (*measured, *unmeasured)
        ],
        oom_killed_at="" if has_several else max(killed.values(), default=""),
        extensions=extensions,
        gpus=list(metric.gpus),
    )


def _windows(windows: Iterable[AggregatedUsage]) -> list[observation.AggregatedUsage]:
    return [
        observation.AggregatedUsage(
            duration_seconds=window.duration_seconds,
            usage={name: _sample(used) for name, used in window.usage.items() if used is not None},
        )
        for window in windows
    ]


def _peak(peak: Peak) -> observation.Usage:
    return observation.Usage(cpu_milli=clamped(peak.cpu_milli), memory_bytes=clamped(peak.memory_bytes))


def _sample(used: Usage) -> observation.Usage:
    return observation.Usage(cpu_milli=clamped(used.cpu_milli), memory_bytes=clamped(used.memory_bytes))


def _sample_or_none(used: Usage | None) -> observation.Usage | None:
    return None if used is None else _sample(used)
