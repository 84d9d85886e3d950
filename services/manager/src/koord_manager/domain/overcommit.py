"""What low-priority pods may request on a node: the batch resources of one node from one report.

    cap       capacity
    margin    cap * (100 - reclaimThresholdPercent) / 100
    sys'      max(system usage, reserved)                       reserved: kubelet's or the annotation's
    used      sum over high-priority pods: usage; request when not measured; LSE pods: requested cpu
    usage      = max(cap - margin - sys'     - used,    0)      policy "usage"
    request    = max(cap - margin - reserved - request, 0)      policy "request" (memory only)
    maxUsage   = max(cap - margin - sys'     - maxUR,   0)      policy "maxUsageRequest"

Pure arithmetic on milli-cores and bytes; when to publish is `publish`.
source    manager spec, 5.2, 5.3
"""

from collections.abc import Iterable
from typing import NamedTuple

from koordcore.events.nodepolicy import OvercommitTerms
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.protocol.amplification import parse_raw_allocatable
from koordcore.protocol.config.typed import ColocationStrategy
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.priority import PriorityBand, priority_class
from koordcore.protocol.qos import QosClass, qos
from koordcore.protocol.reservation import agent_reserved, node_reservation
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import parse_resources

_LOW_PRIORITY = (PriorityBand.BATCH, PriorityBand.FREE)


class Amount(NamedTuple):
    """cpu in milli-cores, memory in bytes."""

    cpu: int = 0
    memory: int = 0

    def plus(self, other: "Amount") -> "Amount":
        """Sum, per resource."""
        return Amount(self.cpu + other.cpu, self.memory + other.memory)

    def larger(self, other: "Amount") -> "Amount":
        """Maximum, per resource."""
        return Amount(max(self.cpu, other.cpu), max(self.memory, other.memory))


class HighPriorityUse(NamedTuple):
    """Sums over the pods that batch work must not disturb."""

    used: Amount
    request: Amount
    max_usage_request: Amount


class Batch(NamedTuple):
    """Batch resources with the terms they came from (resource name -> terms)."""

    cpu_milli: int
    memory_bytes: int
    terms: dict[str, OvercommitTerms]


def scaled(amount: int, percent: int) -> int:
    """amount * percent / 100, truncated, the factor an IEEE double computed as percent / 100.

    source    manager spec, 1.1
    """
    return int(float(amount) * (float(percent) / 100.0))


def high_priority_use(pods: Iterable[tuple[str, Pod]], report: NodeUsageReported) -> HighPriorityUse:
    """What prod, mid and unclassed pods use and request.

    pods      (uid, pod) of the node's pods in phase Running or Pending
    report    usage by namespace and name; an entry without a pod counts unless its class is batch or free

    source    manager spec, 5.3
    """
    measured = {(sample.namespace, sample.name): sample for sample in report.pods}
    seen: set[tuple[str, str]] = set()
    used = request = max_usage_request = Amount()
    for _, pod in pods:
        key = (pod.metadata.namespace, pod.metadata.name)
        sample = measured.get(key)
        if sample is not None:
            seen.add(key)
        if pod.status.phase not in ("", "Running", "Pending") or priority_class(pod) in _LOW_PRIORITY:
            continue
        asked = pod_requests(pod)
        wanted = Amount(asked.get("cpu", 0), asked.get("memory", 0))
        request = request.plus(wanted)
        if sample is None:
            used = used.plus(wanted)
            max_usage_request = max_usage_request.plus(wanted)
            continue
        usage = _amount(sample.usage)
        used = used.plus(Amount(wanted.cpu, usage.memory) if qos(pod) is QosClass.LSE else usage)
        max_usage_request = max_usage_request.plus(wanted.larger(usage))
    for key, sample in measured.items():
        if key not in seen and sample.priority_class not in _LOW_PRIORITY:
            usage = _amount(sample.usage)
            used = used.plus(usage)
            max_usage_request = max_usage_request.plus(usage)
    return HighPriorityUse(used, request, max_usage_request)


def _amount(usage: Usage) -> Amount:
    return Amount(usage.cpu_milli, usage.memory_bytes)


def compute_batch(
    node: Node,
    capacity: Amount,
    pods: Iterable[tuple[str, Pod]],
    report: NodeUsageReported,
    strategy: ColocationStrategy,
) -> Batch:
    """Batch resources of a node whose report is fresh, before third parties are deducted.

    capacity  of the whole node
    report    must have a node usage (else the node is degraded: `publish.degradation`)

    source    manager spec, 5.3; vectors manager/batch_resource
    """
    reserved = _reserved(node)
    system = _system_usage(report)
    use = high_priority_use(pods, report)
    cpu = _terms(
        capacity.cpu,
        strategy.cpu_reclaim_threshold_percent,
        system.cpu,
        reserved.cpu,
        use.used.cpu,
        use.request.cpu,
        use.max_usage_request.cpu,
        "usage" if strategy.cpu_calculate_policy != "maxUsageRequest" else "maxUsageRequest",
        strategy.batch_cpu_threshold_percent,
    )
    memory = _terms(
        capacity.memory,
        strategy.memory_reclaim_threshold_percent,
        system.memory,
        reserved.memory,
        use.used.memory,
        use.request.memory,
        use.max_usage_request.memory,
        strategy.memory_calculate_policy,
        strategy.batch_memory_threshold_percent,
    )
    return Batch(cpu.result, memory.result, {"cpu": cpu, "memory": memory})


def _system_usage(report: NodeUsageReported) -> Amount:
    """What runs outside of pods, the host applications of prod and mid class included."""
    total = _amount(report.system_usage) if report.system_usage else Amount()
    for application in report.host_applications:
        if application.priority_class in (PriorityBand.PROD, PriorityBand.MID):
            total = total.plus(_amount(application.usage))
    return total


def _reserved(node: Node) -> Amount:
    """The larger of what the kubelet and the node's annotation keep back; a raw allocatable (amplified node) wins."""
    capacity, allocatable = parse_resources(node.status.capacity), parse_resources(node.status.allocatable)
    try:
        raw = parse_raw_allocatable(node.metadata.annotations) or {}
    except InvalidInput:
        raw = {}  # a malformed annotation is as good as none: the node's own allocatable counts
    reserved = agent_reserved(node_reservation(node.metadata.annotations), capacity, {**allocatable, **raw})
    return Amount(
        reserved["cpu"].milli() if "cpu" in reserved else 0, reserved["memory"].value() if "memory" in reserved else 0
    )


def _terms(
    capacity: int,
    reclaim_percent: int,
    system: int,
    reserved: int,
    used: int,
    request: int,
    max_usage_request: int,
    policy: str,
    cap_percent: int | None,
) -> OvercommitTerms:
    margin = scaled(capacity, 100 - reclaim_percent)
    match policy:
        case "request":
            result = capacity - margin - reserved - request
        case "maxUsageRequest":
            result = capacity - margin - max(system, reserved) - max_usage_request
        case _:
            policy = "usage"
            result = capacity - margin - max(system, reserved) - used
    result = max(result, 0)
    if cap_percent is not None:
        result = min(result, scaled(capacity, cap_percent))
    return OvercommitTerms(
        capacity=capacity,
        margin=margin,
        system_used=system,
        reserved=reserved,
        high_priority_used=used if policy != "maxUsageRequest" else max_usage_request,
        high_priority_request=request,
        result=result,
        policy=policy,
    )
