"""Eviction because a node uses too much of its CPU or memory: one rule for both resources.

Source: agent spec, 12.4, 12.5.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from koordcore.protocol.resource_names import CPU, amount_text

from koord_agent.domain.qos.evict.eviction import Target
from koord_agent.domain.qos.evict.eviction_policy import Judgement, bounds, evicting
from koord_agent.domain.state.pods import AgentPod

DEFAULT_LOWER_GAP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """Usage of one resource on a node, and the thresholds for it.

    Attributes:
        resource: `cpu` or `memory`.
        used: Milli-cores or bytes in use; None if it was not measured.
        capacity: Capacity of the node in the same unit.
        threshold_percent: Percentage of the capacity at which pods are evicted; None if not configured.
        lower_percent: Percentage down to which pods are evicted; None: 2 below the threshold.
    """

    resource: str
    used: float | None
    capacity: int
    threshold_percent: int | None
    lower_percent: int | None


def judge_usage(
    feature: str, usage: NodeUsage, candidates: Callable[[], Iterable[AgentPod]], releases: Mapping[str, int]
) -> Judgement:
    """Decide whether the node uses too much of a resource, and which pods are evicted.

        usage% = int(used) * 100 div capacity;  usage% >= threshold  =>  capacity * (usage% - lower) / 100

    Args:
        feature: Name of the eviction feature.
        usage: The usage of the resource on the node.
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
