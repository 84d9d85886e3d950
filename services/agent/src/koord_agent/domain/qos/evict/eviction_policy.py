"""The eviction part of a node's threshold strategy, as the eviction features read it.

Absent fields stay None: each feature says itself which of them it cannot do without. Source: agent spec, 4.2, 12.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from koordcore.protocol.config.typed import CpuEvictPolicy, wire_name
from koordcore.protocol.lenient_json import convert

from koord_agent.domain.qos.evict.eviction import EvictionTask


class EvictionPolicy(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """Thresholds in whole percents, priorities as Kubernetes priority values. None means not configured."""

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
        """Whether best-effort satisfaction is measured against batch-cpu allocatable instead of the real limit."""
        return self.cpu_evict_policy == CpuEvictPolicy.BY_ALLOCATABLE


def eviction_policy(section: Mapping[str, Any]) -> EvictionPolicy:
    """Return the policy of a threshold section in wire spelling. Other fields of it are ignored.

    Raises:
        InvalidInput: A field of a wrong type.
    """
    return convert(dict(section), EvictionPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a feature makes of its settings and the node.

    Attributes:
        is_valid: Whether the settings allow the feature to work at all.
        task: None means nothing to evict.
        reason: Why there is no task, or the numbers behind it.
    """

    is_valid: bool
    task: EvictionTask | None = None
    reason: str = ""


def bounds(threshold: int | None, lower: int | None, *, default_gap: int | None = None) -> tuple[int, int] | None:
    """Return the threshold and lower bound in percent.

    None means not usable: not set, negative, or lower not below the threshold.

    Args:
        threshold: Threshold of the signal.
        lower: Lower bound.
        default_gap: How far below the threshold an unset lower bound lies. None means it must be set.
    """
    if lower is None and threshold is not None and default_gap is not None:
        lower = threshold - default_gap
    if threshold is None or lower is None or threshold < 0 or lower >= threshold:
        return None
    return threshold, lower
