"""The eviction fields of a node's threshold strategy, and the judgement of a feature.

Absent fields are None, because each feature requires other fields.

Source: agent spec, 4.2, 12.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from koordcore.protocol.config.typed import wire_name
from koordcore.protocol.lenient_json import convert
from koordcore.values.resources import Amounts

from koord_agent.domain.qos.evict.eviction import EvictionTask, Target
from koord_agent.domain.state.pods import AgentPod

BY_ALLOCATABLE = "evictByAllocatable"
"""Value of `cpuEvictPolicy` for measuring best-effort satisfaction against the allocatable batch cpu."""


class EvictionPolicy(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The eviction settings in the threshold section of a NodeSLO. A field that is not configured is None.

    Thresholds are whole percents. Priorities are Kubernetes priority values.
    """

    memory_evict_threshold_percent: int | None = None
    memory_evict_lower_percent: int | None = None
    memory_allocatable_evict_threshold_percent: int | None = None
    memory_allocatable_evict_lower_percent: int | None = None
    cpu_evict_be_satisfaction_upper_percent: int | None = None
    cpu_evict_be_satisfaction_lower_percent: int | None = None
    cpu_evict_be_usage_threshold_percent: int | None = None
    cpu_evict_time_window_seconds: int | None = None
    cpu_evict_threshold_percent: int | None = None
    cpu_evict_lower_percent: int | None = None
    cpu_allocatable_evict_threshold_percent: int | None = None
    cpu_allocatable_evict_lower_percent: int | None = None
    cpu_evict_policy: str | None = None
    evict_enabled_priority_threshold: int | None = None
    allocatable_evict_priority_threshold: int | None = None

    @property
    def by_allocatable(self) -> bool:
        """Whether BECPUEvict compares best-effort requests with the allocatable batch-cpu of the node.

        If False, it compares them with the CPU that best-effort pods can really get.
        """
        return self.cpu_evict_policy == BY_ALLOCATABLE


def eviction_policy(section: Mapping[str, Any]) -> EvictionPolicy:
    """Return the eviction settings in the threshold section of a NodeSLO (JSON). Other fields are ignored.

    Raises:
        InvalidInput: A field has a wrong type.
    """
    return convert(dict(section), EvictionPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The decision of one eviction feature in this cycle.

    Attributes:
        is_valid: Whether the settings of the feature are valid.
        task: Demand to evict pods; None if nothing is evicted.
        reason: Reason why there is no task, or the numbers behind the task.
    """

    is_valid: bool
    task: EvictionTask | None = None
    reason: str = ""


def evicting(
    feature: str,
    target: Target,
    to_release: Amounts,
    candidates: Iterable[AgentPod],
    releases: Mapping[str, Amounts],
    reason: str,
) -> Judgement:
    """Return the decision that pods have to be evicted.

    Args:
        feature: Name of the eviction feature.
        target: What counts as released: the requests of pods or their usage.
        to_release: Resource -> amount to release.
        candidates: Pods that may be evicted; the first is evicted first.
        releases: UID -> amounts that the end of the pod would release.
        reason: One sentence with the numbers behind it.
    """
    order = tuple(pod.uid for pod in candidates)
    task = EvictionTask(
        feature=feature, target=target, to_release=to_release, order=order, releases=releases, reason=reason
    )
    return Judgement(is_valid=True, task=task, reason=reason)


def bounds(threshold: int | None, lower: int | None, *, default_gap: int | None = None) -> tuple[int, int] | None:
    """Return the threshold of a feature, and the lower bound down to which it evicts pods, both in percent.

    Args:
        threshold: Threshold in percent; None = not set.
        lower: Lower bound in percent; None = not set.
        default_gap: Percentage points between the threshold and a lower bound that is not set. None: the lower bound
            is required.

    Returns:
        Threshold and lower bound. None if one is missing or negative, or the lower bound is not below the threshold.
    """
    if lower is None and threshold is not None and default_gap is not None:
        lower = threshold - default_gap
    if threshold is None or lower is None or threshold < 0 or lower >= threshold:
        return None
    return threshold, lower
