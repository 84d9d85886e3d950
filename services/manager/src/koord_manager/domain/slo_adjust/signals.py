"""Read the signals of a node's health from its usage report and from the actions of its agent.

Source:
    manager spec, 16.1
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from koordcore.events.observation import NodeUsageReported
from koordcore.state.aggregates import NodePolicyState

from koord_manager.domain.node_resources.amounts import Amount, amount_of_usage

_EVICTION_WINDOW: Final = timedelta(minutes=10)
_QUOTA_PERIOD_US: Final = 100_000
_REPORTED: Final = ("cpuPressure", "memoryPressure", "cpuThrottled")


def node_signals(
    report: NodeUsageReported | None,
    capacity: Amount | None,
    published: NodePolicyState | None,
    evictions: Iterable[tuple[str, int]],
    now: datetime,
) -> dict[str, float]:
    """Return name of a signal -> measured value, without signals that cannot be computed.

    All values are percent, except `beEvictions`: the number of best-effort pods that the agent evicted in ten
    minutes.

    Args:
        report: The newest usage report, or None if none was received.
        capacity: Capacity of the node, or None if unknown.
        published: Last published policies of the node, or None if nothing was published.
        evictions: (RFC 3339 time, number) of the best-effort pods that the agent evicted.
        now: The time.

    Source:
        manager spec, 16.1
    """
    found = {"beEvictions": float(_recent(evictions, now))}
    if report is None:
        return found
    found.update({name: report.signals[name] for name in _REPORTED if name in report.signals})
    if capacity is not None and report.node_usage is not None:
        used = amount_of_usage(report.node_usage)
        if capacity.cpu > 0:
            found["cpuUtil"] = 100.0 * _peak_cpu(report, used.cpu) / capacity.cpu
        if capacity.memory > 0:
            found["memoryUtil"] = 100.0 * used.memory / capacity.memory
    lent = published.batch_cpu_milli if published else None
    if lent:
        left = lent if report.be_quota_us < 0 else report.be_quota_us * 1000 / _QUOTA_PERIOD_US
        found["cpuSuppressed"] = 100.0 * (1.0 - min(left / lent, 1.0))
    return found


def _peak_cpu(report: NodeUsageReported, average: int) -> int:
    """Return the 95th percentile of the shortest window that has one, or the average, in milli-cores."""
    for window in sorted(report.aggregated_node_usages, key=lambda window: window.duration_seconds):
        if "p95" in window.usage:
            return window.usage["p95"].cpu_milli
    return average


def _recent(evictions: Iterable[tuple[str, int]], now: datetime) -> int:
    return sum(count for at, count in evictions if now - datetime.fromisoformat(at) <= _EVICTION_WINDOW)
