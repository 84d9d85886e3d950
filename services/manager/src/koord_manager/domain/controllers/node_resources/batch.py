"""Batch resources of a node, which batch pods may request, computed from one usage report.

    cap       capacity
    margin    cap * (100 - reclaimThresholdPercent) / 100
    sys'      max(system usage, reserved)                       reserved: kubelet's or the annotation's
    used      sum over high-priority pods: usage; request when not measured; LSE pods: requested cpu
    usage      = max(cap - margin - sys'     - used,    0)      policy "usage"
    request    = max(cap - margin - reserved - request, 0)      policy "request" (memory only)
    maxUsage   = max(cap - margin - sys'     - maxUR,   0)      policy "maxUsageRequest"

All amounts are milli-cores and bytes. `zones` applies the formula to NUMA zones. `decide` decides when to publish.

`publish_batch` normalizes the computed cpu and deducts what other systems (third parties) use by an annotation.

Source:
    manager spec, 5.3, 5.5 (publishing)
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from koordcore.events.nodepolicy import OvercommitTerms
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol.amplification import parse_normalization_text, parse_raw_allocatable
from koordcore.protocol.annotations.node import agent_reserved, node_reservation, parse_third_party_allocated
from koordcore.protocol.config.sections import CalculatePolicy, ColocationStrategy
from koordcore.protocol.objects import Node
from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import clamped, parse_resources

from koord_manager.domain.cluster.amounts import Amount, PodUse, scaled, system_usage

BATCH_SYSTEM_CLASSES = (PriorityBand.PROD, PriorityBand.MID)
"""Host applications that count as system usage: those above the default value of batch (5500)."""


class HighPriorityUse(NamedTuple):
    """Sums over high-priority pods: pods whose priority class is neither batch nor free."""

    used: Amount = Amount()  # Usage; the request of pods without a sample
    request: Amount = Amount()
    max_usage_request: Amount = Amount()  # The larger of usage and request of each pod

    def plus(self, other: "HighPriorityUse") -> "HighPriorityUse":
        return HighPriorityUse(
            self.used.plus(other.used),
            self.request.plus(other.request),
            self.max_usage_request.plus(other.max_usage_request),
        )


class Batch(NamedTuple):
    cpu_milli: int
    memory_bytes: int
    # `cpu` and `memory` -> every number of the formula, for the event and `koord explain`.
    terms: dict[str, OvercommitTerms]


def use_of(request: Amount, usage: Amount | None, *, is_lse: bool) -> HighPriorityUse:
    """Return the sums for one pod alone, or for its share in one NUMA zone. Without a usage, the request counts.

    If `is_lse`, cpu counts with the request and not with the usage.
    """
    if usage is None:
        return HighPriorityUse(request, request, request)
    return HighPriorityUse(Amount(request.cpu, usage.memory) if is_lse else usage, request, request.larger(usage))


def high_priority_use(pods: Iterable[PodUse]) -> HighPriorityUse:
    """Return the sums over the high-priority pods of a node."""
    # as `use_of`, summed in plain integers: this runs for every pod of every report
    used_cpu = used_memory = request_cpu = request_memory = larger_cpu = larger_memory = 0
    for pod in pods:
        cpu, memory = pod.request
        request_cpu += cpu
        request_memory += memory
        usage_cpu, usage_memory = pod.request if pod.usage is None else pod.usage
        used_cpu += cpu if pod.is_lse else usage_cpu
        used_memory += usage_memory
        larger_cpu += max(cpu, usage_cpu)
        larger_memory += max(memory, usage_memory)
    return HighPriorityUse(
        Amount(used_cpu, used_memory), Amount(request_cpu, request_memory), Amount(larger_cpu, larger_memory)
    )


def compute_batch(
    node: Node,
    capacity: Amount,
    pods: Iterable[PodUse],
    report: NodeUsageReported,
    strategy: ColocationStrategy,
) -> Batch:
    """Return the batch resources of a node from a usage report that is not too old.

    They are neither normalized nor reduced by what other systems hold. `pods` are the `high_priority_pods` of the node.

    Source: manager spec, 5.3; vectors manager/batch_resource.
    """
    reserved = node_reserved(node)
    system = system_usage(report, BATCH_SYSTEM_CLASSES)
    cpu, memory = compute_terms(capacity, system, reserved, high_priority_use(pods), strategy)
    return Batch(cpu.result, memory.result, {"cpu": cpu, "memory": memory})


def compute_terms(
    capacity: Amount, system: Amount, reserved: Amount, use: HighPriorityUse, strategy: ColocationStrategy
) -> tuple[OvercommitTerms, OvercommitTerms]:
    """Return every number of the formula for cpu and for memory; `result` is what batch pods may request.

    For cpu, the policy "request" counts as "usage". A batch threshold of the strategy limits the result.
    """
    cpu_policy = (
        CalculatePolicy.MAX_USAGE_REQUEST
        if strategy.cpu_calculate_policy is CalculatePolicy.MAX_USAGE_REQUEST
        else CalculatePolicy.USAGE
    )
    return (
        _terms(
            capacity.cpu,
            strategy.cpu_reclaim_threshold_percent,
            system.cpu,
            reserved.cpu,
            (use.used.cpu, use.request.cpu, use.max_usage_request.cpu),
            cpu_policy,
            strategy.batch_cpu_threshold_percent,
        ),
        _terms(
            capacity.memory,
            strategy.memory_reclaim_threshold_percent,
            system.memory,
            reserved.memory,
            (use.used.memory, use.request.memory, use.max_usage_request.memory),
            strategy.memory_calculate_policy,
            strategy.batch_memory_threshold_percent,
        ),
    )


def node_reserved(node: Node) -> Amount:
    """Return the amounts that a node reserves: the larger of the kubelet's reservation and that of the annotation."""
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
    use: tuple[int, int, int],
    policy: CalculatePolicy,
    cap_percent: int | None,
) -> OvercommitTerms:
    """Return the terms of the formula for one resource, all amounts in milli-cores or bytes.

    `cap_percent` limits the result to a percentage of the capacity; None for no limit. Whatever was reported, the
    result is at least 0, at most the capacity without its margin, and each sum is one that the log and Postgres store.
    """
    used, request, max_usage_request = map(clamped, use)
    system = clamped(system)
    margin = scaled(capacity, 100 - reclaim_percent)
    match policy:
        case CalculatePolicy.REQUEST:
            result = capacity - margin - reserved - request
        case CalculatePolicy.MAX_USAGE_REQUEST:
            result = capacity - margin - max(system, reserved) - max_usage_request
        case CalculatePolicy.USAGE:
            result = capacity - margin - max(system, reserved) - used
    result = max(min(result, capacity - margin), 0)
    cap = None if cap_percent is None else scaled(capacity, cap_percent)
    return OvercommitTerms(
        capacity=capacity,
        margin=margin,
        system_used=system,
        reserved=reserved,
        high_priority_used=max_usage_request if policy is CalculatePolicy.MAX_USAGE_REQUEST else used,
        high_priority_request=request,
        result=result if cap is None else min(result, cap),
        policy=str(policy),
        cap=cap,
    )


_MILLI = 1000


class PublishedBatch(NamedTuple):
    batch: Amount | None  # The resources, or None to remove them from the node
    origin: Amount  # The resources before the deduction (annotation originExtendedAllocatable)
    third_party: Amount  # The deducted amounts, which other systems hold


def publish_batch(
    computed: Amount | None, normalization_text: str | None, annotations: Mapping[str, str]
) -> PublishedBatch:
    """Normalize the computed batch cpu, deduct what other systems hold, and return the batch resources to publish.

    Args:
        computed: None to withdraw the resources.
        normalization_text: If None or invalid, cpu is not changed.
        annotations: Those of the node; a malformed `thirdPartyAllocations` is ignored.

    Source: manager spec, 5.5; vectors manager/batch_publish.
    """
    if computed is None:
        return PublishedBatch(None, Amount(), Amount())
    origin = Amount(normalized(computed.cpu, normalization_text), computed.memory)
    try:
        held = parse_third_party_allocated(annotations, PriorityBand.BATCH)
    except InvalidInput:
        held = {}
    third_party = Amount(
        held[BATCH_CPU].value() if BATCH_CPU in held else 0, held[BATCH_MEMORY].value() if BATCH_MEMORY in held else 0
    )
    left = Amount(max(origin.cpu - third_party.cpu, 0), max(origin.memory - third_party.memory, 0))
    return PublishedBatch(left, origin, third_party)


def normalized(cpu_milli: int, normalization_text: str | None) -> int:
    """Return milli-cores times the cpu normalization ratio, rounded up.

    A ratio that is missing, invalid or below 1 counts as 1. The product is truncated to a millionth of a core before
    it is rounded up (manager spec, 5.5 (2), 1.1 (mulmilli on the quantity that stands for milli-cores)).
    """
    ratio = parse_normalization_text(normalization_text) if normalization_text else None
    if ratio is None or ratio <= 1:
        return cpu_milli
    return -(-int(float(cpu_milli * _MILLI) * ratio) // _MILLI)
