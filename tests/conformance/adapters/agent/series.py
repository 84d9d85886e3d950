"""Vectors of the node agent: series, what is aggregated from them, and the node's report."""

from __future__ import annotations

from conformance.nulls import none_if
from conformance.registry import Json, adapter
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import NoSamples, Points, SeriesStore, aggregate, is_cold
from koord_agent.domain.node.pods import agent_pod
from koord_agent.domain.node.policies import collect_policy_of
from koord_agent.domain.reporting.report import (
    AggregatedUsage,
    ReportedHostApplication,
    Usage,
    node_report,
)
from koordcore.protocol.objects import pod_from_json


@adapter("agent.metric_aggregate")
def metric_aggregate(given: dict[str, Json]) -> dict[str, Json]:
    """Aggregates, span and the cold-start rule of one list of samples (agent spec, 5, 7.3)."""
    points = Points(times_ms=[point[0] for point in given["points"]], values=[point[1] for point in given["points"]])
    unless_empty = none_if(NoSamples)
    values = {name: unless_empty(lambda name=name: aggregate(points, name)) for name in given["aggregates"]}
    answer: dict[str, Json] = {"values": values, "span_ms": points.span_ms}
    if "window_ms" in given:
        answer["cold_start"] = is_cold(points, given["window_ms"])
    return answer


SERIES = {
    "node": {
        "cpu": Kind.NODE_CPU,
        "memory": Kind.NODE_MEMORY,
        "memory_with_page_cache": Kind.NODE_MEMORY_WITH_PAGE_CACHE,
        "memory_with_hot_page": Kind.NODE_MEMORY_WITH_HOT_PAGE,
    },
    "system": {"cpu": Kind.SYSTEM_CPU, "memory": Kind.SYSTEM_MEMORY},
    "pods": {
        "cpu": Kind.POD_CPU,
        "memory": Kind.POD_MEMORY,
        "memory_with_page_cache": Kind.POD_MEMORY_WITH_PAGE_CACHE,
        "memory_with_hot_page": Kind.POD_MEMORY_WITH_HOT_PAGE,
    },
    "host_apps": {
        "cpu": Kind.HOST_APP_CPU,
        "memory": Kind.HOST_APP_MEMORY,
        "memory_with_page_cache": Kind.HOST_APP_MEMORY_WITH_PAGE_CACHE,
        "memory_with_hot_page": Kind.HOST_APP_MEMORY_WITH_HOT_PAGE,
    },
    "numa": {
        "cpu": Kind.NUMA_CPU,
        "memory": Kind.NUMA_MEMORY,
        "system_cpu": Kind.SYSTEM_NUMA_CPU,
        "system_memory": Kind.SYSTEM_NUMA_MEMORY,
    },
}


@adapter("agent.node_metric_report", whole=("nodeUsage", "systemUsage", "podUsage", "usage"))
def node_metric_report(given: dict[str, Json]) -> dict[str, Json]:
    """The effective collect policy, or the report computed from series (agent spec, 7)."""
    spec: dict[str, Json] = given.get("spec") or {}
    policy = collect_policy_of(spec.get("metricCollectPolicy"))
    if given["op"] == "policy":
        effective = policy.effective()
        return {
            "report_interval_seconds": effective.report_interval_seconds,
            "aggregate_duration_seconds": effective.aggregate_duration_seconds,
            "durations_seconds": list(effective.durations_seconds),
            "memory_policy": effective.memory.value,
        }
    report = node_report(
        _stored(given["series"]),
        now_ms=given["now_ms"],
        policy=policy,
        pods=[agent_pod(pod_from_json(pod)).reported for pod in given.get("pods", [])],
        host_applications=[
            ReportedHostApplication(name=app["name"], priority=app.get("priority", ""), qos=app.get("qos", ""))
            for app in given.get("host_applications", [])
        ],
        cold_memory_running=given.get("cold_memory_started", False),
        with_aggregates=given.get("with_aggregates", False),
    )
    return {
        "nodeUsage": _usage(report.node_usage),
        "systemUsage": _usage(report.system_usage),
        "aggregatedNodeUsages": _windows(report.aggregated_node_usages),
        "aggregatedSystemUsages": _windows(report.aggregated_system_usages),
        "numaUsages": [
            {
                "numaNodeID": numa.numa_node,
                "nodeUsage": _usage(numa.node_usage),
                "systemUsage": _usage(numa.system_usage),
            }
            for numa in report.numa_usages
        ],
        "podsMetric": [
            {
                "namespace": metric.pod.namespace,
                "name": metric.pod.name,
                "priority": metric.pod.priority,
                "qos": metric.pod.qos,
                "podUsage": _usage(metric.usage),
            }
            for metric in report.pods
        ],
        "hostApplicationMetric": [
            {
                "name": metric.application.name,
                "priority": metric.application.priority,
                "qos": metric.application.qos,
                "usage": _usage(metric.usage),
            }
            for metric in report.host_applications
        ],
    }


def _stored(series: dict[str, Json]) -> SeriesStore:
    store = SeriesStore()
    for group, kinds in SERIES.items():
        given = series.get(group, {})
        objects = {"": given} if group in ("node", "system") else given
        for name, parts in objects.items():
            for part, points in parts.items():
                for at_ms, value in points:
                    store.append(kinds[part], at_ms, value, name)
    return store


def _usage(used: Usage | None) -> dict[str, int]:
    return {} if used is None else {"cpu_milli": used.cpu_milli, "memory_bytes": used.memory_bytes}


def _windows(windows: tuple[AggregatedUsage, ...]) -> list[Json]:
    return [
        {
            "duration_seconds": window.duration_seconds,
            "usage": {name: _usage(used) for name, used in window.usage.items()},
        }
        for window in windows
    ]
