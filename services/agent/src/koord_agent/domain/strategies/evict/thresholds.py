"""Evictions with one rule for CPU and memory: by the node's usage, and by requests of mid or batch resources.

Requests count against what the node offers; native requests never count (D-21).

Source: agent spec, 12.3 to 12.5.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from koordcore.protocol.config.node_strategies import ThresholdStrategy
from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MID_CPU, MID_MEMORY, amount_text
from koordcore.values.resources import Amounts

from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.strategies.evict.eviction import Judgement, bounds, by_priority, evicting
from koord_agent.domain.strategies.strategy import Target

DEFAULT_LOWER_GAP = 2
CPU_ALLOCATABLE_EVICT = "CPUAllocatableEvict"
MEMORY_ALLOCATABLE_EVICT = "MemoryAllocatableEvict"
CPU_RESOURCES: Mapping[str, str] = {PriorityBand.MID: MID_CPU, PriorityBand.BATCH: BATCH_CPU}
MEMORY_RESOURCES: Mapping[str, str] = {PriorityBand.MID: MID_MEMORY, PriorityBand.BATCH: BATCH_MEMORY}
"""Priority class -> resource that its pods request."""
HIGHEST_PRIORITY_THRESHOLD = 7999


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    resource: str  # `cpu` or `memory`
    used: float | None  # Milli-cores or bytes in use; None if it was not measured
    capacity: int  # Capacity of the node in the same unit
    threshold_percent: int | None  # Percentage of the capacity at which pods are evicted; None if not configured
    lower_percent: int | None  # Percentage down to which pods are evicted; None: 2 below the threshold


def judge_usage(
    feature: str, usage: NodeUsage, candidates: Callable[[], Iterable[AgentPod]], releases: Mapping[str, int]
) -> Judgement:
    """Decide whether the node uses too much of a resource, and which pods are evicted.

        usage% = int(used) * 100 div capacity;  usage% >= threshold  =>  capacity * (usage% - lower) / 100

    Args:
        candidates: Returns the pods that may be evicted, in order. It is only called if pods have to be evicted.
        releases: UID -> amount that the end of the pod would release.
    """
    limits = bounds(usage.threshold_percent, usage.lower_percent, default_gap=DEFAULT_LOWER_GAP)
    if limits is None:
        return Judgement(is_valid=False, reason=f"{feature}: thresholds are not usable")
    threshold, lower = limits
    if usage.used is None or usage.capacity <= 0:
        return Judgement(is_valid=True, reason=f"{feature}: node usage or capacity is unknown")
    percent = int(usage.used) * 100 // usage.capacity
    name = "CPU" if usage.resource == CPU else usage.resource
    if percent < threshold:
        return Judgement(is_valid=True, reason=f"{feature}: node uses {percent}% of its {name}, below {threshold}%")
    to_release = usage.capacity * (percent - lower) // 100
    amount = amount_text(usage.resource, to_release) + (" cores" if usage.resource == CPU else "")
    return evicting(
        feature,
        Target.USED,
        {usage.resource: to_release},
        candidates(),
        {uid: {usage.resource: used} for uid, used in releases.items()},
        f"node uses {percent}% of its {name}, threshold {threshold}%: release {amount} down to {lower}%",
    )


def running_request(pod: AgentPod, resource: str) -> int | None:
    """Sum over containers, sidecars and overhead: milli-cores for a kind of CPU, bytes for memory. None: no request.

    If the containers of the pod are unknown, it is the request of the pod.
    """
    if not pod.containers:
        return pod.requests.get(resource)
    running = (container.requests for container in pod.containers if container.is_sidecar or not container.is_init)
    named = [amounts[resource] for amounts in (*running, pod.overhead) if resource in amounts]
    return sum(named) if named else None


def judge_allocatable(
    feature: str,
    policy: ThresholdStrategy,
    *,
    allocatable: Amounts,
    pods: Sequence[AgentPod],
    measured: Mapping[str, int],
) -> Judgement:
    """Decide whether pods of low priority request too much of a resource, and which pods are evicted.

        requested / allocatable > threshold  =>  release (requested / allocatable - lower) * allocatable
        no allocatable (or 0)                =>  release all

    Only requests of pods whose priority value is at most the priority threshold count.

    Args:
        feature: CPUAllocatableEvict compares mid-cpu and batch-cpu, MemoryAllocatableEvict mid-memory and
            batch-memory.
        allocatable: Allocatable of the node: milli-cores for CPU, bytes for memory.
        measured: UID -> last usage. Only pods with a usage sample are candidates.
    """
    if feature == CPU_ALLOCATABLE_EVICT:
        resources = CPU_RESOURCES
        threshold_percent, lower_percent = (
            policy.cpu_allocatable_evict_threshold_percent,
            policy.cpu_allocatable_evict_lower_percent,
        )
    else:
        resources = MEMORY_RESOURCES
        threshold_percent, lower_percent = (
            policy.memory_allocatable_evict_threshold_percent,
            policy.memory_allocatable_evict_lower_percent,
        )
    priority_threshold = policy.allocatable_evict_priority_threshold
    limits = bounds(threshold_percent, lower_percent)
    if limits is None or priority_threshold is None or priority_threshold > HIGHEST_PRIORITY_THRESHOLD:
        return Judgement(is_valid=False, reason=f"{feature}: thresholds or priority threshold are not usable")
    threshold, lower = limits
    requested: dict[str, int] = {}
    requests: dict[str, Amounts] = {}
    for pod in pods:
        resource = resources.get(pod.priority)
        request = running_request(pod, resource) if resource is not None else None
        if resource is None or request is None:
            continue
        requests[pod.uid] = {resource: request}
        if pod.priority_value <= priority_threshold:
            requested[resource] = requested.get(resource, 0) + request
    to_release: Amounts = {}
    sentences: list[str] = []
    for resource, amount in requested.items():
        excess = _excess(amount, allocatable.get(resource, 0), threshold, lower, exact=resource in (MID_CPU, BATCH_CPU))
        if excess > 0:
            to_release[resource] = excess
            there = amount_text(resource, allocatable.get(resource, 0))
            sentences.append(f"{amount_text(resource, amount)} of {there} {resource} are requested")
    if not to_release:
        return Judgement(is_valid=True, reason=f"{feature}: requests are within the threshold")
    order = by_priority(
        pods,
        feature=feature,
        priority_threshold=priority_threshold,
        amount={uid: sum(request.values()) for uid, request in requests.items()},
        known=measured,
    )
    releases = {uid: given for uid, request in requests.items() if (given := _only(request, to_release))}
    reason = f"{'; '.join(sentences)}, more than {threshold}%: released down to {lower}%"
    return evicting(feature, Target.REQUESTED, to_release, order, releases, reason)


def _excess(requested: int, allocatable: int, threshold: int, lower: int, *, exact: bool) -> int:
    if allocatable <= 0:
        return requested
    ratio = requested / allocatable
    if ratio <= threshold / 100:
        return 0
    if exact:
        return int(requested - lower / 100 * allocatable)
    return int((ratio - lower / 100) * allocatable)


def _only(amounts: Amounts, names: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if name in names}
