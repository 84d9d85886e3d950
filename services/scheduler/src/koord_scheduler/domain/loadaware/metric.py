"""What a node reports about its load, as far as the scheduler reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from koordcore.events.agents.observation import NodeUsageReported, Usage
from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values.resources import Amounts

DEFAULT_REPORT_INTERVAL_SECONDS: Final = 60

AmountsByResource = Mapping[str, int]
"""Milli-cores for cpu, bytes, whole units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """One entry of `status.podsMetric` with a usage.

    Attributes:
        uid: Of the pod that was measured, "" when the report does not say.
        is_prod: The report calls it koord-prod.
    """

    usage: AmountsByResource
    is_prod: bool = False
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetric:
    """The last report of a node.

    Attributes:
        updated_at: Unix seconds; None: the object exists, nothing was reported.
        report_interval_seconds: How often the node means to report.
        node_usage: None: there is no `status.nodeMetric`.
        aggregated: (type, period in seconds) -> usage, only what was recorded.
        pods: (namespace, name) -> usage.
    """

    updated_at: float | None
    report_interval_seconds: float = DEFAULT_REPORT_INTERVAL_SECONDS
    node_usage: AmountsByResource | None = None
    system_usage: AmountsByResource = field(default_factory=dict[str, int])
    aggregated: Mapping[tuple[str, float], AmountsByResource] = field(
        default_factory=dict[tuple[str, float], AmountsByResource]
    )
    pods: Mapping[tuple[str, str], PodUsage] = field(default_factory=dict[tuple[str, str], PodUsage])

    def usage_of(self, namespace: str, name: str, uid: str) -> PodUsage | None:
        """Return what was measured of a pod.

        None when nothing was, or for another pod of the same name (spec, 16 no. 23).
        """
        found = self.pods.get((namespace, name))
        if found is None or not found.usage or (found.uid and uid and found.uid != uid):
            return None
        return found

    def aggregated_usage(self, kind: str, seconds: float) -> AmountsByResource | None:
        """Return usage by a percentile.

        For exactly this period, or for 0 the longest recorded one, else the plain usage.

        Returns:
            None when a period was asked for and is not recorded.

        Source:
            scheduler-core spec, 7.3
        """
        if seconds:
            return self.aggregated.get((kind, seconds)) or None
        periods = [period for (type_, period), usage in self.aggregated.items() if type_ == kind and usage]
        return self.aggregated[kind, max(periods)] if periods else self.node_usage


def metric_of_report(report: NodeUsageReported) -> NodeMetric:
    """Return the metric of a report from the observation stream."""
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
    return {CPU: usage.cpu_milli, MEMORY: usage.memory_bytes}
