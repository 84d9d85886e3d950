"""Eviction for memory: best effort first, then low priorities, then pods that opted in.

Features in their order: BEMemoryEvict, MemoryAllocatableEvict, MemoryEvict.

Source: agent spec, 12.5. Vectors: memory_evict.
"""

from collections.abc import Mapping, Sequence

from koordcore.protocol.amount_text import gibibytes
from koordcore.protocol.pod_resources import MEMORY
from koordcore.values.resources import Amounts

from koord_agent.domain.qos.evict.allocatable_evict import MEMORY_RESOURCES, judge_allocatable
from koord_agent.domain.qos.evict.eviction import EvictionTask, Target
from koord_agent.domain.qos.evict.eviction_candidates import best_effort_by_priority, by_priority
from koord_agent.domain.qos.evict.eviction_policy import EvictionPolicy, Judgement, bounds
from koord_agent.domain.state.pods import AgentPod

PLUGIN = "memoryEvict"
BE_MEMORY_EVICT = "BEMemoryEvict"
MEMORY_ALLOCATABLE_EVICT = "MemoryAllocatableEvict"
MEMORY_EVICT = "MemoryEvict"
COOL_DOWN_SECONDS = 4
DEFAULT_LOWER_GAP = 2


def judge_be_memory(
    policy: EvictionPolicy,
    node_memory_used_bytes: float | None,
    *,
    capacity_bytes: int,
    pods: Sequence[AgentPod],
    used_bytes: Mapping[str, int],
) -> Judgement:
    """Return whether memory of the node is short, and which best-effort pods are evicted.

    Args:
        policy: Settings in force.
        node_memory_used_bytes: Memory in use on the node; None = no sample.
        capacity_bytes: Memory of the node in bytes.
        pods: The pods of the node.
        used_bytes: Last memory usage by UID. A pod without usage is the last candidate.
    """
    check = _usage_release(BE_MEMORY_EVICT, policy, node_memory_used_bytes, capacity_bytes)
    if isinstance(check, Judgement):
        return check
    to_release, reason = check

    def larger_first(one: AgentPod, other: AgentPod) -> int:
        mine, theirs = used_bytes.get(one.uid, -1), used_bytes.get(other.uid, -1)
        return theirs - mine if mine != theirs else (one.name < other.name) - (one.name > other.name)

    order = best_effort_by_priority(pods, feature=BE_MEMORY_EVICT, then=larger_first)
    return _task(BE_MEMORY_EVICT, to_release, order, {pod.uid: used_bytes.get(pod.uid, 0) for pod in pods}, reason)


def judge_memory_allocatable(
    policy: EvictionPolicy, *, allocatable: Amounts, pods: Sequence[AgentPod], used_bytes: Mapping[str, int]
) -> Judgement:
    """Return whether more mid-memory or batch-memory is requested than the node offers. See `judge_allocatable`."""
    return judge_allocatable(
        MEMORY_ALLOCATABLE_EVICT,
        MEMORY_RESOURCES,
        threshold_percent=policy.memory_allocatable_evict_threshold_percent,
        lower_percent=policy.memory_allocatable_evict_lower_percent,
        priority_threshold=policy.allocatable_evict_priority_threshold,
        allocatable=allocatable,
        pods=pods,
        measured=used_bytes,
    )


def judge_memory_usage(
    policy: EvictionPolicy,
    node_memory_used_bytes: float | None,
    *,
    capacity_bytes: int,
    pods: Sequence[AgentPod],
    used_bytes: Mapping[str, int],
) -> Judgement:
    """Return whether memory of the node is short, and which pods of low priority are evicted.

    Source:
        agent spec, 12 (D-22).
    """
    priority = policy.evict_enabled_priority_threshold
    if priority is None:
        return Judgement(is_valid=False, reason=f"{MEMORY_EVICT}: no priority threshold")
    check = _usage_release(MEMORY_EVICT, policy, node_memory_used_bytes, capacity_bytes)
    if isinstance(check, Judgement):
        return check
    to_release, reason = check
    order = by_priority(pods, feature=MEMORY_EVICT, priority_threshold=priority, amount=used_bytes, known=used_bytes)
    return _task(MEMORY_EVICT, to_release, order, used_bytes, reason)


def _usage_release(
    feature: str, policy: EvictionPolicy, used_bytes: float | None, capacity_bytes: int
) -> Judgement | tuple[int, str]:
    """Return the bytes to release with the reason, or the judgement that nothing is evicted.

    usage% = int(used) * 100 div capacity;  usage% >= threshold  =>  capacity * (usage% - lower) / 100
    """
    limits = bounds(
        policy.memory_evict_threshold_percent, policy.memory_evict_lower_percent, default_gap=DEFAULT_LOWER_GAP
    )
    if limits is None:
        return Judgement(is_valid=False, reason=f"{feature}: thresholds are not usable")
    threshold, lower = limits
    if used_bytes is None or capacity_bytes <= 0:
        return Judgement(is_valid=True, reason=f"{feature}: node usage or capacity is unknown")
    percent = int(used_bytes) * 100 // capacity_bytes
    if percent < threshold:
        return Judgement(is_valid=True, reason=f"{feature}: node uses {percent}% of its memory, below {threshold}%")
    to_release = capacity_bytes * (percent - lower) // 100
    return to_release, (
        f"node uses {percent}% of its memory, threshold {threshold}%: release {gibibytes(to_release)} down to {lower}%"
    )


def _task(
    feature: str, to_release: int, order: Sequence[AgentPod], releases: Mapping[str, int], reason: str
) -> Judgement:
    task = EvictionTask(
        feature=feature,
        target=Target.USED,
        to_release={MEMORY: to_release},
        order=tuple(pod.uid for pod in order),
        releases={uid: {MEMORY: used} for uid, used in releases.items()},
        reason=reason,
    )
    return Judgement(is_valid=True, task=task, reason=reason)
