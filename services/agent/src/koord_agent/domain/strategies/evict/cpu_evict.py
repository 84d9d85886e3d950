"""Eviction for CPU: best-effort pods that get too little of their request, and nodes that use too much CPU.

Features in their order: BECPUEvict, CPUAllocatableEvict, CPUEvict.
Source: agent spec, 12.2-12.4. Vectors: cpu_evict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from koordcore.protocol.config.node_strategies import ThresholdStrategy
from koordcore.protocol.resource_names import BATCH_CPU, CPU, cores
from koordcore.values.resources import Amounts

from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.strategies.evict.eviction import (
    Judgement,
    best_effort_by_priority,
    by_priority,
    evicting,
)
from koord_agent.domain.strategies.evict.thresholds import NodeUsage, judge_usage, running_request
from koord_agent.domain.strategies.strategy import Target

PLUGIN = "CPUEvict"
BE_CPU_EVICT = "BECPUEvict"
CPU_EVICT = "CPUEvict"
BY_ALLOCATABLE = "evictByAllocatable"
"""Value of `cpuEvictPolicy` for measuring best-effort satisfaction against the allocatable batch cpu."""
HIGHEST_SATISFACTION_LOWER = 60
DEFAULT_USAGE_THRESHOLD = 90
ONE_CORE_MILLI = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BeCpu:
    """In milli-cores."""

    usage_milli: float
    request_milli: float
    real_limit_milli: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BeCpuHistory:
    """CPU of the best-effort class over a window."""

    average: BeCpu  # Averages over the window
    last: BeCpu
    count: int  # Smallest number of samples in the window of any of the three values


def satisfaction_window_seconds(policy: ThresholdStrategy, collect_interval_seconds: float) -> float:
    """As configured, but at least one collect interval."""
    return max(collect_interval_seconds, policy.cpu_evict_time_window_seconds or 0)


def judge_be_satisfaction(
    policy: ThresholdStrategy,
    history: BeCpuHistory | None,
    *,
    collect_interval_seconds: float,
    allocatable: Amounts,
    pods: Sequence[AgentPod],
    used_milli: Mapping[str, int],
) -> Judgement:
    """Decide whether best-effort pods get too little CPU and use nearly all of it, and which of them are evicted.

    They get too little if their limit is at most the lower satisfaction bound of their requests. They use nearly all if
    their usage is at least the usage threshold (default 90 %) of the limit, or if the limit is below one core. With too
    few samples in the window (None: not measured), no pod is evicted. `allocatable` has batch-cpu in milli-cores.
    """
    lower, upper = policy.cpu_evict_be_satisfaction_lower_percent, policy.cpu_evict_be_satisfaction_upper_percent
    if lower is None or upper is None or not 0 < lower <= HIGHEST_SATISFACTION_LOWER or not lower <= upper < 100:
        return Judgement(is_valid=False, reason=f"{BE_CPU_EVICT}: satisfaction bounds are not usable")
    window = satisfaction_window_seconds(policy, collect_interval_seconds)
    if history is None or history.count * collect_interval_seconds < window // 3:
        return Judgement(is_valid=True, reason=f"{BE_CPU_EVICT}: too few samples")
    to_release = _be_release(policy, history.average, allocatable, lower, upper)
    last = history.last
    same = last.request_milli == history.average.request_milli and _limit(policy, last, allocatable) == _limit(
        policy, history.average, allocatable
    )
    if to_release > 0 and (not same or not _is_usage_high(policy, last, allocatable)):
        to_release = min(to_release, _be_release(policy, last, allocatable, lower, upper))
    if to_release <= 0:
        return Judgement(is_valid=True, reason=f"{BE_CPU_EVICT}: best effort is satisfied, or does not use its limit")

    requests = {pod.uid: running_request(pod, BATCH_CPU) or 0 for pod in pods}

    def usage_ratio(pod: AgentPod) -> float:
        request = requests[pod.uid]
        return used_milli.get(pod.uid, 0) / request if request > 0 else 0.0

    def hungrier_first(one: AgentPod, other: AgentPod) -> int:
        mine, theirs = usage_ratio(one), usage_ratio(other)
        return (mine < theirs) - (mine > theirs)

    order = best_effort_by_priority(pods, feature=BE_CPU_EVICT, then=hungrier_first)
    limit, requested, used = (
        cores(round(milli))
        for milli in (
            _limit(policy, history.average, allocatable),
            history.average.request_milli,
            history.average.usage_milli,
        )
    )
    reason = (
        f"best effort has {limit} of {requested} cores requested (lower bound {lower}%) and uses {used}:"
        f" release {cores(to_release)} cores"
    )
    return evicting(
        BE_CPU_EVICT,
        Target.REQUESTED,
        {BATCH_CPU: to_release},
        order,
        {uid: {BATCH_CPU: request} for uid, request in requests.items()},
        reason,
    )


def _limit(policy: ThresholdStrategy, be: BeCpu, allocatable: Amounts) -> float:
    """The CPU that best-effort pods can get: the real limit, or the node's allocatable. -1 if unknown.

    An allocatable of 0 counts as 1.
    """
    if policy.cpu_evict_policy != BY_ALLOCATABLE:
        return be.real_limit_milli
    offered = allocatable.get(BATCH_CPU, -1)
    return 1.0 if offered == 0 else float(max(offered, -1))


def _is_usage_high(policy: ThresholdStrategy, be: BeCpu, allocatable: Amounts) -> bool:
    limit = _limit(policy, be, allocatable)
    if limit <= 0:
        return False
    if limit < ONE_CORE_MILLI:
        return True
    configured = policy.cpu_evict_be_usage_threshold_percent
    threshold = DEFAULT_USAGE_THRESHOLD if configured is None else configured
    return be.usage_milli / limit >= threshold / 100


def _be_release(policy: ThresholdStrategy, be: BeCpu, allocatable: Amounts, lower: int, upper: int) -> int:
    """Return the batch-cpu requests to release in milli-cores: int(request * (upper - limit / request)).

    Return 0 if the limit covers more than `lower` percent of the requests, or if best-effort pods use little of it.
    """
    if be.request_milli <= 0 or not _is_usage_high(policy, be, allocatable):
        return 0
    satisfaction = _limit(policy, be, allocatable) / be.request_milli
    if satisfaction > lower / 100:
        return 0
    return int(be.request_milli * (upper / 100 - satisfaction))


def judge_cpu_usage(
    policy: ThresholdStrategy,
    node_cpu_used_cores: float | None,
    *,
    capacity_milli: int,
    pods: Sequence[AgentPod],
    used_milli: Mapping[str, int],
) -> Judgement:
    """Decide whether the node uses too much CPU, and which pods are evicted to bring the usage below the lower bound.

    `node_cpu_used_cores` is the average over the window; None if it was not measured.
    """
    priority = policy.evict_enabled_priority_threshold
    if priority is None:
        return Judgement(is_valid=False, reason=f"{CPU_EVICT}: no priority threshold")
    return judge_usage(
        CPU_EVICT,
        NodeUsage(
            resource=CPU,
            used=None if node_cpu_used_cores is None else node_cpu_used_cores * 1000,
            capacity=capacity_milli,
            threshold_percent=policy.cpu_evict_threshold_percent,
            lower_percent=policy.cpu_evict_lower_percent,
        ),
        lambda: by_priority(pods, feature=CPU_EVICT, priority_threshold=priority, amount=used_milli, known=used_milli),
        used_milli,
    )
