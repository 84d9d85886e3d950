"""Observations: samples that may be lost. Stream `obs`; subject `obs.node.<name>`. Writer: agents.

Source:
    event-bus spec, 2; agent spec, 7; protocol spec, 9.1
"""

from typing import Any

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One usage sample: cpu in milli-cores, memory in bytes."""

    cpu_milli: int = 0
    memory_bytes: int = 0


class ContainerUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Usage of one container, averaged over the report interval.

    Attributes:
        oom_killed_at: Time at which the kernel last killed it for memory (RFC 3339); "" for never.
    """

    name: str
    usage: Usage
    oom_killed_at: str = ""


class PodUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Usage of one pod, averaged over the report's window.

    Attributes:
        containers: Usage by container, only for pods that a recommendation selects (manager spec, 15.4); else empty.
        extensions: Extension name -> JSON value that an extension of the agent measured for the pod.
    """

    uid: str
    namespace: str
    name: str
    priority_class: str
    qos: str
    usage: Usage
    containers: list[ContainerUsage] = []
    extensions: dict[str, Any] = {}


class HostApplicationUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Usage of a program outside of pods that the NodeSLO names (agent spec, 3.3)."""

    name: str
    priority_class: str = ""
    qos: str = ""
    usage: Usage


class AggregatedUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Percentiles of the node's usage over one window; empty if there are too few samples.

    Attributes:
        usage: Percentile ("avg", "p50", "p90", "p95", "p99") -> usage.
    """

    duration_seconds: int
    usage: dict[str, Usage]


class NumaUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Usage of one NUMA node. `system_usage` is None if unknown."""

    numa_node: int
    node_usage: Usage
    system_usage: Usage | None = None


@CATALOGUE.register(kind="node", stream="obs")
class NodeUsageReported(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The periodic usage report of a node's agent (the status of NodeMetric).

    Attributes:
        node_usage: Average over the aggregation window; None if there is no sample yet.
        system_usage: Usage of the node minus pods and host applications, at least 0; None if there is no sample yet.
        numa: Usage by NUMA node, ascending; empty if unknown.
        be_quota_us: CFS quota of the best-effort class in force; -1: unlimited.
        prod_reclaimable: Requests of prod pods that they will not use, as predicted (agent spec, 8.4); None if not
            predicted yet.
        prod_peak: Predicted peak usage of prod pods (agent spec, 8.4); None if not predicted yet.
        signals: Health signals of the node: "cpuPressure", "memoryPressure", "cpuThrottled" in percent (manager spec,
            16.1). Signals that are not measured are absent.
    """

    updated_at: str
    report_interval_seconds: int
    aggregate_duration_seconds: int
    node_usage: Usage | None = None
    aggregated_node_usages: list[AggregatedUsage] = []
    system_usage: Usage | None = None
    aggregated_system_usages: list[AggregatedUsage] = []
    pods: list[PodUsage] = []
    host_applications: list[HostApplicationUsage] = []
    be_quota_us: int = -1
    prod_reclaimable: Usage | None = None
    prod_peak: Usage | None = None
    signals: dict[str, float] = {}
    numa: list[NumaUsage] = []
