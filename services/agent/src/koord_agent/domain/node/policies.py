"""How a node is measured and reported (collect policy of a NodeMetric, with minimums), and its CPU suppressed."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from koordcore.protocol.config.sections import MemoryCollectPolicy
from koordcore.values.duration import parse_seconds
from koordcore.values.invalid import InvalidInput

MIN_REPORT_INTERVAL_SECONDS = 30
MIN_AGGREGATE_DURATION_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectPolicy:
    """Intervals and windows of measuring a node: the object `metricCollectPolicy` of its NodeMetric, with defaults."""

    report_interval_seconds: int = 60  # Seconds between two reports
    aggregate_duration_seconds: int = 300  # Length of the window over which the reported usage is averaged
    durations_seconds: tuple[int, ...] = (300, 600, 1800)  # Lengths of the windows over which percentiles are computed
    memory: MemoryCollectPolicy = MemoryCollectPolicy.WITHOUT_PAGE_CACHE  # Whether page cache counts as used memory

    def effective(self) -> "CollectPolicy":
        """Return the policy with minimums applied: at least 30 s between reports, and a window of at least 60 s."""
        return CollectPolicy(
            report_interval_seconds=max(self.report_interval_seconds, MIN_REPORT_INTERVAL_SECONDS),
            aggregate_duration_seconds=max(self.aggregate_duration_seconds, MIN_AGGREGATE_DURATION_SECONDS),
            durations_seconds=self.durations_seconds,
            memory=self.memory,
        )


def collect_policy_of(written: Mapping[str, Any] | None) -> CollectPolicy:
    """From `spec.metricCollectPolicy` of a NodeMetric as JSON: seconds as integers, windows as Go durations.

    Absent and null fields have their defaults.

    Raises:
        InvalidInput: A field is invalid. The error has field, rule and value.

    Source: agent spec, 7.
    """
    fields, plain = written or {}, CollectPolicy()
    windows = _object(fields.get("nodeAggregatePolicy"), "nodeAggregatePolicy").get("durations")
    memory = fields.get("nodeMemoryCollectPolicy")
    return CollectPolicy(
        report_interval_seconds=_seconds(fields, "reportIntervalSeconds", plain.report_interval_seconds),
        aggregate_duration_seconds=_seconds(fields, "aggregateDurationSeconds", plain.aggregate_duration_seconds),
        durations_seconds=plain.durations_seconds if windows is None else _windows(windows),
        memory=plain.memory if memory is None else _memory(memory),
    )


def _object(value: object, field: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput("an object", value, field)
    return cast("Mapping[str, Any]", value)


def _seconds(fields: Mapping[str, Any], field: str, default: int) -> int:
    value = fields.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput("a whole number of seconds", value, field)
    return value


def _windows(written: object) -> tuple[int, ...]:
    field = "nodeAggregatePolicy.durations"
    if not isinstance(written, list):
        raise InvalidInput("a list of durations", written, field)
    found: list[int] = []
    for index, text in enumerate(cast("list[object]", written)):
        if not isinstance(text, str):
            raise InvalidInput("a duration such as 5m", text, f"{field}[{index}]")
        try:
            seconds = int(parse_seconds(text))
        except InvalidInput as error:
            raise error.at(f"{field}[{index}]") from error
        if seconds < 1:
            raise InvalidInput("at least one second", text, f"{field}[{index}]")
        found.append(seconds)
    return tuple(found)


def _memory(written: object) -> MemoryCollectPolicy:
    try:
        return MemoryCollectPolicy(written)
    except ValueError as error:
        allowed = ", ".join(policy.value for policy in MemoryCollectPolicy)
        raise InvalidInput(f"one of {allowed}", written, "nodeMemoryCollectPolicy") from error


class CpuSuppressPolicy(StrEnum):
    """Kind of file with which CPU suppression limits best-effort pods: a CPU quota or CPU lists."""

    CPUSET = "cpuset"
    CFS_QUOTA = "cfsQuota"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressPolicy:
    """Settings of CPU suppression of a node: `resourceUsedThresholdWithBE`."""

    enable: bool  # Whether best-effort pods are suppressed
    threshold_percent: int = 65  # Percentage of the node's CPU that all pods together may use
    min_percent: int | None = None  # Percentage of the node's CPU that best effort always keeps. None: no such minimum.
    # Whether the cpusets or the CFS quota of best-effort pods are limited.
    by: CpuSuppressPolicy = CpuSuppressPolicy.CPUSET
