"""The two strategies that services compute with, as typed values with units in the names.

The other strategies go to the node as JSON and are read there. A test compares the fields with the tables.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, TypeVar, cast

import msgspec

from koordcore.protocol.config.kinds import JsonValue
from koordcore.protocol.config.strategy import Strategy
from koordcore.values.duration import parse_seconds


class CalculatePolicy(StrEnum):
    """Which amounts of high-priority pods are deducted when batch resources are computed."""

    USAGE = "usage"
    REQUEST = "request"
    MAX_USAGE_REQUEST = "maxUsageRequest"


class MemoryCollectPolicy(StrEnum):
    """Which memory counts as used."""

    WITHOUT_PAGE_CACHE = "usageWithoutPageCache"
    WITH_HOT_PAGE_CACHE = "usageWithHotPageCache"
    WITH_PAGE_CACHE = "usageWithPageCache"


class CpuSuppressPolicy(StrEnum):
    """Method with which best-effort pods are suppressed."""

    CPUSET = "cpuset"
    CFS_QUOTA = "cfsQuota"


class CpuEvictPolicy(StrEnum):
    """Denominator of the CPU satisfaction of best-effort pods."""

    BY_REAL_LIMIT = "evictByRealLimit"
    BY_ALLOCATABLE = "evictByAllocatable"


E = TypeVar("E", bound=StrEnum)

_ACRONYMS: Final = {"cpu": "CPU", "be": "BE"}


def wire_name(attribute: str) -> str:
    """Return the JSON name of an attribute: `mid_cpu_threshold_percent` is `midCPUThresholdPercent`."""
    first, *rest = attribute.split("_")
    return first + "".join(_ACRONYMS.get(part, part.capitalize()) for part in rest)


class ColocationStrategy(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """Rules for offering unused resources of a node to batch and mid pods, and for measuring usage.

    Percent fields are whole percents of the node's capacity. A reclaim threshold may exceed 100. A
    `batch_*_threshold_percent` caps batch resources by capacity; None: no cap.

    Attributes:
        metric_windows_seconds: Windows over which usage is aggregated.
        mid_reclaim_static: Whether mid resources are a fixed ratio of the capacity, and not predicted.
        extensions: JSON values for plugins, not interpreted here.

    Source:
        protocol spec, 6.3; manager spec, 4.1
    """

    enable: bool
    metric_aggregate_duration_seconds: int
    metric_report_interval_seconds: int
    metric_windows_seconds: tuple[float, ...]
    metric_memory_collect_policy: MemoryCollectPolicy
    cpu_reclaim_threshold_percent: int
    cpu_calculate_policy: CalculatePolicy
    memory_reclaim_threshold_percent: int
    memory_calculate_policy: CalculatePolicy
    degrade_time_minutes: int
    update_time_threshold_seconds: int
    resource_diff_threshold: float
    mid_reclaim_static: bool
    mid_cpu_threshold_percent: int
    mid_memory_threshold_percent: int
    mid_unallocated_percent: int
    mid_static_cpu_reserved_percent: int
    mid_static_memory_reserved_percent: int
    batch_cpu_threshold_percent: int | None = None
    batch_memory_threshold_percent: int | None = None
    extensions: dict[str, Any] = {}


class ResourceThresholdStrategy(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """Thresholds at which the agent suppresses and evicts pods.

    None: not set, so the default of the feature applies.

    Source:
        protocol spec, 6.4
    """

    enable: bool
    cpu_suppress_threshold_percent: int
    cpu_suppress_policy: CpuSuppressPolicy
    memory_evict_threshold_percent: int
    cpu_evict_policy: CpuEvictPolicy
    cpu_suppress_min_percent: int | None = None
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
    evict_enabled_priority_threshold: int | None = None
    allocatable_evict_priority_threshold: int | None = None


def colocation_strategy(strategy: Strategy) -> ColocationStrategy:
    """Convert an effective colocation strategy (with defaults) to its typed form.

    An unknown policy counts as the default policy. Policies for cpu are `usage` and `maxUsageRequest`, for memory also
    `request`.
    """
    fields = dict(strategy)
    windows = cast("dict[str, list[str]]", fields.pop("metricAggregatePolicy"))["durations"]
    cpu_policy = _known(CalculatePolicy, fields["cpuCalculatePolicy"], CalculatePolicy.USAGE)
    return msgspec.convert(
        {
            **fields,
            "metricWindowsSeconds": [parse_seconds(text) for text in windows],
            "metricMemoryCollectPolicy": _known(
                MemoryCollectPolicy, fields["metricMemoryCollectPolicy"], MemoryCollectPolicy.WITHOUT_PAGE_CACHE
            ),
            "cpuCalculatePolicy": CalculatePolicy.USAGE if cpu_policy is CalculatePolicy.REQUEST else cpu_policy,
            "memoryCalculatePolicy": _known(CalculatePolicy, fields["memoryCalculatePolicy"], CalculatePolicy.USAGE),
            "midReclaimStatic": fields.pop("midReclaimMode", None) == "static",
        },
        ColocationStrategy,
    )


def resource_threshold_strategy(strategy: Strategy) -> ResourceThresholdStrategy:
    """Convert a threshold strategy (with defaults) to its typed form.

    An unknown policy counts as the default policy.
    """
    return msgspec.convert(
        {
            **strategy,
            "cpuSuppressPolicy": _known(CpuSuppressPolicy, strategy["cpuSuppressPolicy"], CpuSuppressPolicy.CPUSET),
            "cpuEvictPolicy": _known(CpuEvictPolicy, strategy["cpuEvictPolicy"], CpuEvictPolicy.BY_REAL_LIMIT),
        },
        ResourceThresholdStrategy,
    )


def _known(kind: type[E], text: JsonValue, fallback: E) -> E:
    return next((member for member in kind if member.value == text), fallback)
