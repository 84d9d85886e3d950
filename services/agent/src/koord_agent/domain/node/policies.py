"""How a node is measured and reported (collect policy of a NodeMetric, with minimums); access to parts of a NodeSLO."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from koordcore.protocol.config.fields import Part, fields_of
from koordcore.protocol.config.parse import parse_value
from koordcore.protocol.config.sections import AggregatePolicy, ColocationStrategy, MemoryCollectPolicy
from koordcore.values.duration import parse_seconds
from koordcore.values.invalid import InvalidInput

_DEFAULTS = ColocationStrategy()
CFS_QUOTA_POLICY = "cfsQuota"
"""Value of `cpuSuppressPolicy` for limiting best-effort pods by a CPU quota, not by CPU lists."""
MIN_REPORT_INTERVAL_SECONDS = 30
MIN_AGGREGATE_DURATION_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectPolicy:
    """Intervals and windows of measuring a node: the object `metricCollectPolicy` of its NodeMetric, with defaults."""

    report_interval_seconds: int = _DEFAULTS.metric_report_interval_seconds  # Seconds between two reports
    # Length of the window over which the reported usage is averaged
    aggregate_duration_seconds: int = _DEFAULTS.metric_aggregate_duration_seconds
    # Lengths of the windows over which percentiles are computed
    durations_seconds: tuple[int, ...] = tuple(int(window) for window in _DEFAULTS.metric_windows_seconds)
    memory: MemoryCollectPolicy = _DEFAULTS.metric_memory_collect_policy  # Whether page cache counts as used memory

    def effective(self) -> "CollectPolicy":
        """Return the policy with minimums applied: at least 30 s between reports, and a window of at least 60 s."""
        return CollectPolicy(
            report_interval_seconds=max(self.report_interval_seconds, MIN_REPORT_INTERVAL_SECONDS),
            aggregate_duration_seconds=max(self.aggregate_duration_seconds, MIN_AGGREGATE_DURATION_SECONDS),
            durations_seconds=self.durations_seconds,
            memory=self.memory,
        )


class _Written(Part, frozen=True):
    report_interval_seconds: int | None = None
    aggregate_duration_seconds: int | None = None
    node_aggregate_policy: AggregatePolicy = AggregatePolicy()
    node_memory_collect_policy: str | None = None


def collect_policy_of(written: Mapping[str, Any] | None) -> CollectPolicy:
    """From `spec.metricCollectPolicy` of a NodeMetric as JSON: seconds as integers, windows as Go durations.

    Absent and null fields have their defaults.

    Raises:
        InvalidInput: A field is invalid. The error has field, rule and value.

    Source: agent spec, 7.
    """
    given = {
        name: parse_value(field, value, name)
        for name, field in fields_of(_Written).items()
        if (value := (written or {}).get(name)) is not None
    }
    fields = msgspec.convert(given, _Written)
    changes: dict[str, Any] = {
        "report_interval_seconds": fields.report_interval_seconds,
        "aggregate_duration_seconds": fields.aggregate_duration_seconds,
        "durations_seconds": tuple(_windows(fields.node_aggregate_policy.durations)),
        "memory": _memory(fields.node_memory_collect_policy),
    }
    return CollectPolicy(**{name: value for name, value in changes.items() if value is not None})


def _windows(durations: list[str]) -> Iterator[int]:
    for index, text in enumerate(durations):
        seconds = int(parse_seconds(text))
        if seconds < 1:
            raise InvalidInput("at least one second", text, f"nodeAggregatePolicy.durations[{index}]")
        yield seconds


def _memory(written: str | None) -> MemoryCollectPolicy | None:
    try:
        return None if written is None else MemoryCollectPolicy(written)
    except ValueError as error:
        allowed = ", ".join(policy.value for policy in MemoryCollectPolicy)
        raise InvalidInput(f"one of {allowed}", written, "nodeMemoryCollectPolicy") from error


def section(parent: Mapping[str, Any] | None, *path: str) -> Mapping[str, Any]:
    """An object inside a NodeSLO (JSON) or a part of it; empty if it, or an object around it, is absent or none."""
    found: object = parent
    for name in path:
        found = _object(found).get(name)
    return _object(found)


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
