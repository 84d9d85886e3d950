"""The colocation strategy of slo-controller-config as a typed value, with units in the names of its fields.

Strategies of other sections go to the node as JSON and are read there. A test compares the fields with the tables.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, TypeVar, cast

import msgspec

from koordcore.protocol.config.kinds import JsonValue
from koordcore.protocol.config.strategy import Strategy
from koordcore.values.duration import parse_seconds


class CalculatePolicy(StrEnum):
    """Amounts of high-priority pods that are deducted when batch resources are computed.

    Attributes:
        USAGE: Usage of these pods.
        REQUEST: Requests of these pods.
        MAX_USAGE_REQUEST: For each pod, the larger of usage and request.
    """

    USAGE = "usage"
    REQUEST = "request"
    MAX_USAGE_REQUEST = "maxUsageRequest"


class MemoryCollectPolicy(StrEnum):
    """Memory that the agent counts as used: without page cache, with hot page cache only, or with all page cache."""

    WITHOUT_PAGE_CACHE = "usageWithoutPageCache"
    WITH_HOT_PAGE_CACHE = "usageWithHotPageCache"
    WITH_PAGE_CACHE = "usageWithPageCache"


E = TypeVar("E", bound=StrEnum)

_ACRONYMS: Final = {"cpu": "CPU", "be": "BE"}


def wire_name(attribute: str) -> str:
    """Return the JSON name of an attribute of `ColocationStrategy`, for example `midCPUThresholdPercent`."""
    first, *rest = attribute.split("_")
    return first + "".join(_ACRONYMS.get(part, part.capitalize()) for part in rest)


class ColocationStrategy(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """Rules for offering unused resources of a node to batch and mid pods, and for measuring usage.

    Fields `..._percent` are whole percents of the node's capacity. A reclaim threshold may exceed 100.
    `batch_cpu_threshold_percent` and `batch_memory_threshold_percent` limit batch resources; None: no limit.

    Attributes:
        enable: Whether the node offers batch and mid resources.
        metric_aggregate_duration_seconds: Length of the window over which the agent averages usage.
        metric_report_interval_seconds: Seconds between two usage reports of the agent.
        metric_windows_seconds: Lengths of the windows over which usage is aggregated.
        cpu_reclaim_threshold_percent: Part of the node's cpu that all pods together may use; the rest is kept free.
        degrade_time_minutes: Age of the usage report after which batch and mid resources are withdrawn.
        update_time_threshold_seconds: Time after which the amounts are published again, even if they hardly changed.
        resource_diff_threshold: Share of the published amount that a change must exceed to be published at once.
        mid_cpu_threshold_percent: Largest part of the node's cpu that mid pods may request.
        mid_unallocated_percent: Part of the capacity without requests that is added to mid resources.
        mid_reclaim_static: Whether mid resources are a fixed percentage of the capacity, and not predicted.
        extensions: JSON values for plugins, which this code does not interpret.

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


def colocation_strategy(strategy: Strategy) -> ColocationStrategy:
    """Convert a colocation strategy from JSON (with all defaults) to the typed form.

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


def _known(kind: type[E], text: JsonValue, fallback: E) -> E:
    return next((member for member in kind if member.value == text), fallback)
