"""Measured usage of a node and of its pods, as the latest report of the node says it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.values.resources import Amounts
from koordcore.values.timestamps import unix_seconds


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NodeMetric:
    """The latest usage report of a node.

    Attributes:
        updated: Unix seconds of the report; None if it has no valid time.
        system: Usage outside of pods: milli-cores for cpu, whole units for everything else.
        pods: "namespace/name" of a pod -> its usage, in the same units.
        position: Position of the report in the stream of observations; 0 if it is not from there.

    Source:
        descheduler spec, 8.2
    """

    updated: float | None
    system: Amounts = field(default_factory=dict[str, int])
    pods: Mapping[str, Amounts] = field(default_factory=dict[str, Amounts])
    position: int = 0

    def is_fresh(self, now: float, expiration: float) -> bool:
        """Return whether the report is younger than `expiration` seconds at `now`."""
        return self.updated is not None and now - self.updated < expiration


def metric_of_report(report: NodeUsageReported, position: int) -> NodeMetric | None:
    """Return the metric of a usage report at a position; None if the node has not been measured yet."""
    if report.node_usage is None:
        return None
    return NodeMetric(
        updated=unix_seconds(report.updated_at) or None,
        system=_amounts(report.system_usage) if report.system_usage is not None else {},
        pods={f"{pod.namespace}/{pod.name}": _amounts(pod.usage) for pod in report.pods},
        position=position,
    )


def _amounts(usage: Usage) -> Amounts:
    return {"cpu": usage.cpu_milli, "memory": usage.memory_bytes}
