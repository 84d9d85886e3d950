"""Convert reports and decisions to events: the usage report, and changes of the best-effort quota.

The values come from `report` and `cpu_suppress`. This module takes no decision.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from koordcore.events import observation
from koordcore.events.nodestate import BeCpuReleased, BeCpuSuppressed

from koord_agent.domain.prediction.model import Peak
from koord_agent.domain.prediction.reclaimable import Prediction
from koord_agent.domain.qos.suppress.cpu_suppress import Decision, SuppressTerms
from koord_agent.domain.reporting.report import AggregatedUsage, NodeReport, Usage

UNLIMITED = -1


def usage_reported(
    report: NodeReport,
    *,
    updated_at: str,
    be_quota_us: int,
    prediction: Prediction | None = None,
    signals: Mapping[str, float] | None = None,
    pod_extensions: Mapping[str, dict[str, Any]] | None = None,
) -> observation.NodeUsageReported:
    """Return the event with the usage report of a node.

    Args:
        report: The report.
        updated_at: RFC 3339 text of report.update_time_ms.
        be_quota_us: CPU quota of the best-effort class in microseconds per period; -1 = unlimited.
        prediction: Prediction for prod pods; None if there is none yet.
        signals: Health signal of the node -> percent.
        pod_extensions: UID -> values of extensions.
    """
    return observation.NodeUsageReported(
        updated_at=updated_at,
        report_interval_seconds=report.policy.report_interval_seconds,
        aggregate_duration_seconds=report.policy.aggregate_duration_seconds,
        node_usage=_usage(report.node_usage),
        aggregated_node_usages=_windows(report.aggregated_node_usages),
        system_usage=_usage(report.system_usage),
        aggregated_system_usages=_windows(report.aggregated_system_usages),
        pods=[
            observation.PodUsage(
                uid=metric.pod.uid,
                namespace=metric.pod.namespace,
                name=metric.pod.name,
                priority_class=metric.pod.priority,
                qos=metric.pod.qos,
                usage=_sample(metric.usage),
                containers=[
                    observation.ContainerUsage(name=name, usage=_sample(used)) for name, used in metric.containers
                ],
                extensions=(pod_extensions or {}).get(metric.pod.uid, {}),
                gpus=list(metric.gpus),
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
                numa_node=numa.numa_node, node_usage=_sample(numa.node_usage), system_usage=_usage(numa.system_usage)
            )
            for numa in report.numa_usages
        ],
        be_quota_us=be_quota_us,
        prod_reclaimable=None if prediction is None else _peak(prediction.reclaimable),
        signals=dict(signals or {}),
        gpus=list(report.gpus),
        prod_peak=None if prediction is None else _peak(prediction.peak),
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
    return observation.Usage(cpu_milli=peak.cpu_milli, memory_bytes=peak.memory_bytes)


def _sample(used: Usage) -> observation.Usage:
    return observation.Usage(cpu_milli=used.cpu_milli, memory_bytes=used.memory_bytes)


def _usage(used: Usage | None) -> observation.Usage | None:
    return None if used is None else _sample(used)


def quota_changed(decision: Decision) -> BeCpuSuppressed | BeCpuReleased | None:
    """Return the fact about a written CPU quota of the best-effort class.

    Return None if the decision did not change the quota. Call it only after the executor has reported the write.
    """
    old, new = decision.old_quota_us, decision.new_quota_us
    if old is None or new is None or old == new:
        return None
    if new == UNLIMITED:
        return BeCpuReleased(old_quota_us=old, reason=decision.reason)
    terms = _terms(decision.terms) if decision.terms is not None else {}
    return BeCpuSuppressed(old_quota_us=old, new_quota_us=new, terms=terms, reason=decision.reason)


def _terms(terms: SuppressTerms) -> dict[str, int]:
    named = {
        "capacity": terms.capacity_milli,
        "threshold_percent": terms.threshold_percent,
        "pod_non_be_used": terms.pod_non_be_milli,
        "host_non_be_used": terms.host_non_be_milli,
        "system_used": terms.system_milli,
        "reserved": terms.reserved_milli,
        "budget": terms.budget_milli,
    }
    return named if terms.min_percent is None else {**named, "min_percent": terms.min_percent}
