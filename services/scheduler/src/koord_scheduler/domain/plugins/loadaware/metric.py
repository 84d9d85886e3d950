"""The report of a node about its load, as far as the scheduler reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values.resources import Amounts, clamped

DEFAULT_REPORT_INTERVAL_SECONDS: Final = 60

AmountsByResource = Mapping[str, int]
"""Resource -> amount: milli-cores for cpu, bytes, whole units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """The measured usage of one pod: an entry of `status.podsMetric`."""

    usage: AmountsByResource  # Its usage; milli-cores for cpu, bytes for memory
    is_prod: bool = False  # Whether the report calls the pod koord-prod
    uid: str = ""  # Uid of the measured pod; "" if the report does not contain it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetric:
    """The last usage report of a node, from its agent or from its NodeMetric object."""

    updated_at: float | None  # Unix seconds of the report; None if the object exists without a report
    report_interval_seconds: float = DEFAULT_REPORT_INTERVAL_SECONDS  # Intended interval between reports
    node_usage: AmountsByResource | None = None  # Usage of the whole node; None if there is no `status.nodeMetric`
    system_usage: AmountsByResource = field(default_factory=dict[str, int])  # Usage of processes that belong to no pod
    # (type, period in seconds) -> usage by this percentile; only periods that the node recorded.
    aggregated: Mapping[tuple[str, float], AmountsByResource] = field(
        default_factory=dict[tuple[str, float], AmountsByResource]
    )
    # (namespace, name) -> usage of the pod.
    pods: Mapping[tuple[str, str], PodUsage] = field(default_factory=dict[tuple[str, str], PodUsage])

    def usage_of(self, namespace: str, name: str, uid: str) -> PodUsage | None:
        """Return the measured usage of a pod. Result: None if the report has no usage of this pod, or if the usage is
        of another pod with the same name but another uid (spec, 16 no. 23).
        """
        found = self.pods.get((namespace, name))
        if found is None or not found.usage or (found.uid and uid and found.uid != uid):
            return None
        return found

    def aggregated_usage(self, kind: str, seconds: float) -> AmountsByResource | None:
        """Return a percentile of the usage of the whole node. `kind`: the type, such as p95. `seconds`: the period. 0
        means the longest recorded period, or the average usage if none was recorded. Result: None if the given period
        was not recorded.
        Source: scheduler-core spec, 7.3
        """
        if seconds:
            return self.aggregated.get((kind, seconds)) or None
        periods = [period for (type_, period), usage in self.aggregated.items() if type_ == kind and usage]
        return self.aggregated[kind, max(periods)] if periods else self.node_usage


def metric_of_report(report: NodeUsageReported) -> NodeMetric:
    """Convert an agent's usage report from the stream of observations into a `NodeMetric`."""
    return NodeMetric(
        updated_at=datetime.fromisoformat(report.updated_at).timestamp() if report.updated_at else None,
        report_interval_seconds=report.report_interval_seconds or DEFAULT_REPORT_INTERVAL_SECONDS,
        node_usage=None if report.node_usage is None else _amounts(report.node_usage),
        system_usage={} if report.system_usage is None else _amounts(report.system_usage),
        aggregated={
            (kind, float(window.duration_seconds)): _amounts(usage)
            for window in report.aggregated_node_usages
            for kind, usage in window.usage.items()
        },
        pods={
            (pod.namespace, pod.name): PodUsage(
                usage=_amounts(pod.usage), is_prod=pod.priority_class == PriorityBand.PROD, uid=pod.uid
            )
            for pod in report.pods
        },
    )


def _amounts(usage: Usage) -> Amounts:
    return {CPU: clamped(usage.cpu_milli), MEMORY: clamped(usage.memory_bytes)}
