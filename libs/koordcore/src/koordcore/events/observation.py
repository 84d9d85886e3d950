"""Observations: samples that may be lost. Stream `obs`; subject `obs.node.<name>`. Writer: agents.

Source: event-bus spec, 2; agent spec, 7; protocol spec, 9.1.
"""

from datetime import datetime
from typing import Any

import msgspec

from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.node_messages import MachineAmount, MachineNumber
from koordcore.events.registry import CATALOGUE, UnreadableEvent


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An amount of usage: `cpu_milli` in milli-cores, `memory_bytes` in bytes."""

    cpu_milli: MachineAmount = 0
    memory_bytes: MachineAmount = 0


class GpuUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Usage of one GPU by the node or by a pod, averaged over the report interval."""

    minor: int  # Minor number of the GPU
    uuid: str  # UUID of the GPU
    core_percent: MachineAmount = 0  # Used share of the cores of the GPU in percent
    memory_bytes: MachineAmount = 0  # Used memory in bytes
    memory_percent: MachineAmount = 0  # Used share of the memory of the GPU in percent


class ContainerUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Usage of one container, averaged over the report interval."""

    name: str  # Name of the container
    usage: Usage  # No memory: it was not measured, because it was killed before
    # RFC 3339 time at which the kernel last killed the container for lack of memory; "" for never.
    oom_killed_at: str = ""


class PodUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Usage of one pod, averaged over the report interval, in a `NodeUsageReported`."""

    uid: str
    namespace: str
    name: str
    priority_class: str  # Koordinator priority class, for example "koord-prod"
    qos: str  # Koordinator QoS class, for example "LS"
    usage: Usage
    # Usage by container if a Recommendation selects the pod (manager spec, 15.4); else empty.
    containers: list[ContainerUsage] = []
    # RFC 3339 time at which the kernel last killed the pod's only container for lack of memory; "" for never, or if
    # `containers` tells it.
    oom_killed_at: str = ""
    # Name of an extension of the agent -> JSON value that the extension measured for the pod.
    extensions: dict[str, Any] = {}
    gpus: list[GpuUsage] = []  # Usage of the GPUs that the pod's processes use, ascending by minor number


class HostApplicationUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Usage of one host application: a program outside of pods that the NodeSLO lists (agent spec, 3.3).

    `priority_class` and `qos` are the Koordinator classes that the NodeSLO gives it.
    """

    name: str
    priority_class: str = ""
    qos: str = ""
    usage: Usage


class AggregatedUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Percentiles of the node's usage over one window."""

    duration_seconds: MachineAmount  # Length of the window
    # Percentile ("avg", "p50", "p90", "p95", "p99") -> usage; empty if there are too few samples.
    usage: dict[str, Usage]


class NumaUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Usage of one NUMA node."""

    numa_node: int  # Number of the NUMA node
    node_usage: Usage  # Usage by all processes
    system_usage: Usage | None = None  # Usage by processes outside of pods; None if unknown


@CATALOGUE.register(kind="node", stream="obs")
class NodeUsageReported(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The periodic usage report of a node's agent. The status of the node's NodeMetric is written from it."""

    updated_at: str  # RFC 3339 time of the report
    report_interval_seconds: MachineAmount  # Seconds between two reports
    aggregate_duration_seconds: MachineAmount  # Length of the window over which usage is averaged
    node_usage: Usage | None = None  # Average over that window; None if there is no sample yet
    aggregated_node_usages: list[AggregatedUsage] = []  # Percentiles of the node's usage, one entry per window length
    # Usage of the node minus pods and host applications, at least 0; None if there is no sample yet.
    system_usage: Usage | None = None
    aggregated_system_usages: list[AggregatedUsage] = []  # Percentiles of `system_usage`, one entry per window length
    pods: list[PodUsage] = []
    host_applications: list[HostApplicationUsage] = []
    be_quota_us: int = -1  # CFS quota of all best-effort pods together, in microseconds per 100 ms; -1: unlimited
    # Part of the requests of prod pods that the prediction expects them not to use (agent spec, 8.4); None if there is
    # no prediction yet.
    prod_reclaimable: Usage | None = None
    # Predicted peak usage of prod pods (agent spec, 8.4); None if there is no prediction yet.
    prod_peak: Usage | None = None
    # Health signals in percent (manager spec, 16.1): "cpuPressure", "memoryPressure", "cpuThrottled", "lsSlowdown".
    # Signals that are not measured are absent.
    signals: dict[str, MachineNumber] = {}
    gpus: list[GpuUsage] = []  # The GPUs of the node whose usage is measured, ascending by minor number
    numa: list[NumaUsage] = []  # Usage by NUMA node, ascending; empty if unknown


def usage_report(stored: StoredEvent) -> NodeUsageReported | None:
    """Return the usage report in an event of the observations stream; None if it is another event.

    Raises:
        UnreadableEvent: The event cannot be decoded, or its time cannot be compared: it is invalid or has no time zone.
    """
    report = CATALOGUE.decode(stored)
    if not isinstance(report, NodeUsageReported):
        return None
    try:
        has_zone = datetime.fromisoformat(report.updated_at).tzinfo is not None
    except ValueError as error:
        raise UnreadableEvent(stored.seq, stored.type, f"updatedAt: {error}") from error
    if not has_zone:
        raise UnreadableEvent(stored.seq, stored.type, f"updatedAt {report.updated_at!r} has no time zone")
    return report
