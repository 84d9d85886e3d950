"""Turn a NodeMetric object of Koordinator's node agent into the report that our own agent would send.

If a quantity is not valid, or no machine can have it, the whole sample is left out. It must not count as zero, because
a node with zero usage would lend everything.

Source:
    protocol spec, 9.1; manager spec, 4.3
"""

from collections.abc import Callable
from typing import Any

import msgspec
from koordcore.events import observation
from koordcore.protocol.objects import KubeStruct, Quantities, object_from_json
from koordcore.values import codec
from koordcore.values.duration import parse_seconds
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_milli, parse_value
from koordcore.values.resources import clamped


class _ResourceMap(KubeStruct):
    resources: Quantities = {}


class _Aggregated(KubeStruct):
    usage: dict[str, _ResourceMap] = {}
    duration: str = ""


class _NumaUsage(KubeStruct):
    numa_node_id: int = msgspec.field(default=0, name="numaNodeID")
    node_usage: _ResourceMap = msgspec.field(default_factory=_ResourceMap)
    system_usage: _ResourceMap = msgspec.field(default_factory=_ResourceMap)


class _NodeUsage(KubeStruct):
    node_usage: _ResourceMap = msgspec.field(default_factory=_ResourceMap)
    system_usage: _ResourceMap = msgspec.field(default_factory=_ResourceMap)
    aggregated_node_usages: list[_Aggregated] = []
    aggregated_system_usages: list[_Aggregated] = []
    numa_usages: list[_NumaUsage] = []


class _PodMetric(KubeStruct):
    namespace: str = ""
    name: str = ""
    pod_usage: _ResourceMap = msgspec.field(default_factory=_ResourceMap)
    priority: str = ""
    qos: str = ""
    extensions: dict[str, Any] = {}


class _HostMetric(KubeStruct):
    name: str = ""
    usage: _ResourceMap = msgspec.field(default_factory=_ResourceMap)
    priority: str = ""
    qos: str = ""


class _Predicted(KubeStruct):
    resource: _ResourceMap = msgspec.field(default_factory=_ResourceMap)


class _Status(KubeStruct):
    update_time: str = ""
    node_metric: _NodeUsage = msgspec.field(default_factory=_NodeUsage)
    pods_metric: list[_PodMetric] = []
    host_application_metric: list[_HostMetric] = []
    prod_reclaimable_metric: _Predicted = msgspec.field(default_factory=_Predicted)
    prod_peak_metric: _Predicted = msgspec.field(default_factory=_Predicted)


class _CollectPolicy(KubeStruct):
    report_interval_seconds: int = 60
    aggregate_duration_seconds: int = 300


class _Spec(KubeStruct):
    metric_collect_policy: _CollectPolicy = msgspec.field(default_factory=_CollectPolicy)


class _NodeMetric(KubeStruct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def report_of(node_metric: dict[str, Any], uid_of: Callable[[str, str], str]) -> observation.NodeUsageReported | None:
    """Return the usage report in the status of a NodeMetric object.

    Return None if the status has no `updateTime` yet, or if the object cannot be decoded. A usage without valid cpu and
    memory is left out.

    Args:
        uid_of: Function that returns the uid of a pod by namespace and name, or "" if the pod is unknown.
    """
    try:
        found = object_from_json(node_metric, _NodeMetric)
    except codec.DecodeError:
        return None
    status, policy = found.status, found.spec.metric_collect_policy
    if not status.update_time:
        return None
    return observation.NodeUsageReported(
        updated_at=status.update_time,
        report_interval_seconds=policy.report_interval_seconds,
        aggregate_duration_seconds=policy.aggregate_duration_seconds,
        node_usage=_usage(status.node_metric.node_usage),
        system_usage=_usage(status.node_metric.system_usage),
        aggregated_node_usages=_aggregated(status.node_metric.aggregated_node_usages),
        aggregated_system_usages=_aggregated(status.node_metric.aggregated_system_usages),
        pods=[
            observation.PodUsage(
                uid=uid_of(item.namespace, item.name),
                namespace=item.namespace,
                name=item.name,
                priority_class=item.priority,
                qos=item.qos,
                usage=usage,
                extensions=item.extensions,
            )
            for item in status.pods_metric
            if (usage := _usage(item.pod_usage)) is not None
        ],
        host_applications=[
            observation.HostApplicationUsage(name=item.name, priority_class=item.priority, qos=item.qos, usage=usage)
            for item in status.host_application_metric
            if (usage := _usage(item.usage)) is not None
        ],
        prod_reclaimable=_usage(status.prod_reclaimable_metric.resource),
        prod_peak=_usage(status.prod_peak_metric.resource),
        numa=[
            observation.NumaUsage(numa_node=item.numa_node_id, node_usage=usage, system_usage=_usage(item.system_usage))
            for item in status.node_metric.numa_usages
            if (usage := _usage(item.node_usage)) is not None
        ],
    )


def _usage(found: _ResourceMap) -> observation.Usage | None:
    amounts = found.resources
    if "cpu" not in amounts or "memory" not in amounts:
        return None
    try:
        cpu, memory = parse_milli(amounts["cpu"]), parse_value(amounts["memory"])
    except InvalidInput:
        return None
    return observation.Usage(cpu, memory) if (cpu, memory) == (clamped(cpu), clamped(memory)) else None


def _aggregated(items: list[_Aggregated]) -> list[observation.AggregatedUsage]:
    found: list[observation.AggregatedUsage] = []
    for item in items:
        try:
            seconds = round(parse_seconds(item.duration))
        except InvalidInput:
            continue
        read = {kind: usage for kind, amounts in item.usage.items() if (usage := _usage(amounts)) is not None}
        found.append(observation.AggregatedUsage(duration_seconds=seconds, usage=read))
    return found
