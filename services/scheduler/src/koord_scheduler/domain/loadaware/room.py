"""Computes one row of the columns: the least estimate that a node refuses, and what it has left for scores."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from koordcore.values.resources import MAX_AMOUNT

from koord_scheduler.domain.config.args.load_aware import LoadAwareSchedulingArgs
from koord_scheduler.domain.loadaware.assigned import NodeSums, Vector, used_by_all
from koord_scheduler.domain.loadaware.metric import NodeMetric
from koord_scheduler.domain.loadaware.thresholds import Limits

PASSES: Final = 1 << 62
"""Least refused estimate of a node that refuses no estimate."""
REFUSES: Final = -PASSES
"""Least refused estimate of a node that refuses every estimate."""
PLAIN, AGGREGATED, EXPIRED = range(3)
"""What an estimate is compared with: usage, usage by a percentile, nothing since the report has expired."""


class Reported(NamedTuple):
    """A node with a usage report, and values computed from the report.

    Attributes:
        metric: The report.
        sums: Sums over its pods.
        capacity: Its size, one amount per considered resource.
        expired: Whether the report is too old.
    """

    metric: NodeMetric
    sums: NodeSums
    capacity: Vector
    expired: bool


class Room(NamedTuple):
    """For each resource, the least estimated usage of a pod that the node refuses.

    Attributes:
        least: One amount per considered resource.
        basis: The usage with which estimates are compared: the average (PLAIN), a percentile (AGGREGATED), or none,
            because the report is too old (EXPIRED).
    """

    least: Sequence[int]
    basis: int


def room_of(node: Reported, limits: Limits, args: LoadAwareSchedulingArgs, resources: Sequence[str]) -> Room:
    """Return how large the estimate of a pod must be, per resource, for the node's thresholds to refuse it.

    If the report has expired and the arguments filter expired reports, every estimate is refused, or none if
    `enableScheduleWhenNodeMetricsExpired`. Without thresholds, or a usage of the node, none is refused. Otherwise:

        round((used + e) * 100 / cap) > T   iff   e >= ceil(cap * (2 T + 1) / 200) - used

    Source:
        scheduler-core spec, 7.4 (3) to (5)
    """
    if not limits.is_set:
        return _everything(resources)
    if node.expired and args.filter_expired_node_metrics:
        if args.enable_schedule_when_node_metrics_expired:
            return _everything(resources)
        return Room((REFUSES,) * len(resources), EXPIRED)
    if node.metric.node_usage is None:
        return _everything(resources)
    used = node.sums.prod if limits.by_prod else used_by_all(node.metric, node.sums, resources, limits.aggregation)
    least = [
        max(REFUSES, min(-(-cap * (2 * percent + 1) // 200) - amount, PASSES - 1))
        if percent > 0 and cap > 0
        else PASSES
        for percent, cap, amount in zip(limits.percent, node.capacity, used, strict=True)
    ]
    return Room(least, PLAIN if limits.aggregation is None else AGGREGATED)


def _everything(resources: Sequence[str]) -> Room:
    return Room((PASSES,) * len(resources), PLAIN)


def left_of(node: Reported, used: Sequence[int]) -> list[int]:
    """Return capacity minus `used` for each resource; -1 for a resource with which every pod scores 0."""
    return [
        min(amount - taken, MAX_AMOUNT) if amount > 0 and amount >= taken else -1
        for amount, taken in zip(node.capacity, used, strict=True)
    ]


def divisors_of(capacity: Vector) -> list[int]:
    """Return the capacity per resource as a divisor, at least 1."""
    return [min(max(amount, 1), MAX_AMOUNT) for amount in capacity]
