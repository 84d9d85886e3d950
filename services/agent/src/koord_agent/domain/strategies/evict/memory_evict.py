"""Eviction for memory: best effort first, then low priorities, then pods that opted in.

Features in their order: BEMemoryEvict, MemoryAllocatableEvict, MemoryEvict.

Source: agent spec, 12.5. Vectors: memory_evict.
"""

from collections.abc import Mapping, Sequence

from koordcore.protocol.config.node_strategies import ThresholdStrategy
from koordcore.protocol.pod_resources import MEMORY

from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.strategies.evict.eviction import Judgement, best_effort_by_priority, by_priority
from koord_agent.domain.strategies.evict.thresholds import NodeUsage, judge_usage

PLUGIN = "memoryEvict"
BE_MEMORY_EVICT = "BEMemoryEvict"
MEMORY_EVICT = "MemoryEvict"


def judge_memory_usage(
    feature: str,
    policy: ThresholdStrategy,
    node_memory_used_bytes: float | None,
    *,
    capacity_bytes: int,
    pods: Sequence[AgentPod],
    used_bytes: Mapping[str, int],
) -> Judgement:
    """Decide whether the node uses too much memory (None: not measured), and which pods are evicted.

    BEMemoryEvict evicts best-effort pods, MemoryEvict pods of low priority (D-22). For BEMemoryEvict, a pod without
    usage is the last candidate.
    """
    usage = NodeUsage(
        resource=MEMORY,
        used=node_memory_used_bytes,
        capacity=capacity_bytes,
        threshold_percent=policy.memory_evict_threshold_percent,
        lower_percent=policy.memory_evict_lower_percent,
    )
    if feature == BE_MEMORY_EVICT:

        def larger_first(one: AgentPod, other: AgentPod) -> int:
            mine, theirs = used_bytes.get(one.uid, -1), used_bytes.get(other.uid, -1)
            return theirs - mine if mine != theirs else (one.name < other.name) - (one.name > other.name)

        releases = {pod.uid: used_bytes.get(pod.uid, 0) for pod in pods}
        return judge_usage(
            feature, usage, lambda: best_effort_by_priority(pods, feature=feature, then=larger_first), releases
        )
    priority = policy.evict_enabled_priority_threshold
    if priority is None:
        return Judgement(is_valid=False, reason=f"{feature}: no priority threshold")
    return judge_usage(
        feature,
        usage,
        lambda: by_priority(pods, feature=feature, priority_threshold=priority, amount=used_bytes, known=used_bytes),
        used_bytes,
    )
