"""Which pods and nodes LoadAwareScheduling looks at, the load thresholds of a node, and what a row of the columns has.
Each part of the node's annotation replaces that part of the arguments. A row has the least estimate that the node
refuses, and what the node has left for scores.

Source: scheduler-core spec, 7.4, 7.5; vectors scheduler/loadaware_filter, scheduler/loadaware_score
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations.node import node_reservation, trim_allocatable
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.priority import PriorityBand, priority_class
from koordcore.protocol.resource_names import DEPRECATED, rename_resources
from koordcore.values.duration import parse_seconds
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import MAX_AMOUNT, parse_resources

from koord_scheduler.domain.config.koordinator_args import LoadAwareSchedulingArgs
from koord_scheduler.domain.plugins.loadaware.assigned import NodeSums, Vector, estimate_vector, used_by_all, vector_of
from koord_scheduler.domain.plugins.loadaware.estimate import raw_amounts
from koord_scheduler.domain.plugins.loadaware.metric import AmountsByResource, NodeMetric


class Limits(NamedTuple):
    """The usage thresholds of a node for koord-prod pods, or for other pods."""

    percent: Vector  # Threshold per considered resource in percent of the node's size; 0 means no limit
    by_prod: bool = False  # Whether only the usage of koord-prod pods is compared
    # (type, period in seconds) of the percentile that is compared; None for the average usage.
    aggregation: tuple[str, float] | None = None

    @property
    def is_set(self) -> bool:
        return any(percent > 0 for percent in self.percent)


class NodeThresholds(NamedTuple):
    """The usage thresholds of a node: `prod` for koord-prod pods, `other` for all other pods."""

    prod: Limits
    other: Limits


class _Aggregated(msgspec.Struct, rename="camel"):
    usage_thresholds: dict[str, int] = {}
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str = ""


class _Custom(msgspec.Struct, rename="camel"):
    usage_thresholds: dict[str, int] = {}
    prod_usage_thresholds: dict[str, int] = {}
    aggregated_usage: _Aggregated | None = None


def node_thresholds(text: str, args: LoadAwareSchedulingArgs, resources: Sequence[str]) -> NodeThresholds:
    """Return the usage thresholds of a node. A malformed annotation, and resources that are not considered, are
    ignored. `text`: text of the node's annotation with thresholds, "" if there is none. Each part replaces that of
    `args`.
    """
    usage, prod, aggregated = args.usage_thresholds, args.prod_usage_thresholds, _of_args(args)
    custom = _custom(text)
    if custom is not None:
        own, own_aggregated = custom
        usage = own.usage_thresholds or usage
        prod = own.prod_usage_thresholds or prod
        aggregated = own_aggregated or aggregated
    if aggregated is not None:
        percent, kind, seconds = aggregated
        other = Limits(vector_of(percent, resources), aggregation=(kind, seconds))
    else:
        other = Limits(vector_of(usage, resources))
    prod_percent = vector_of(prod, resources)
    return NodeThresholds(Limits(prod_percent, by_prod=True) if any(prod_percent) else other, other)


_AggregatedPart = tuple[Mapping[str, int], str, float]
"""Thresholds, type, period in seconds."""


def _of_args(args: LoadAwareSchedulingArgs) -> _AggregatedPart | None:
    part = args.aggregated
    if part is None or not part.usage_thresholds or not part.usage_aggregation_type:
        return None
    return part.usage_thresholds, part.usage_aggregation_type, part.usage_aggregated_duration


def _custom(text: str) -> tuple[_Custom, _AggregatedPart | None] | None:
    if not text:
        return None
    try:
        custom = lenient_json.decode(text, _Custom)
        part = custom.aggregated_usage
        seconds = parse_seconds(part.usage_aggregated_duration) if part and part.usage_aggregated_duration else 0.0
    except InvalidInput:
        return None
    if part is None or not part.usage_thresholds or not part.usage_aggregation_type:
        return custom, None
    return custom, (part.usage_thresholds, part.usage_aggregation_type, seconds)


PASSES: Final = 1 << 62
"""Least refused estimate of a node that refuses no estimate."""
REFUSES: Final = -PASSES
"""Least refused estimate of a node that refuses every estimate."""
PLAIN, AGGREGATED, EXPIRED = range(3)
"""What an estimate is compared with: usage, usage by a percentile, nothing since the report has expired."""


class Reported(NamedTuple):
    """A node with a usage report, and values computed from the report."""

    metric: NodeMetric
    sums: NodeSums  # Sums over its pods
    capacity: Vector  # Its size, one amount per considered resource
    expired: bool  # Whether the report is too old


class Room(NamedTuple):
    """For each resource, the least estimated usage of a pod that the node refuses."""

    least: Sequence[int]  # One amount per considered resource
    # The usage with which estimates are compared: the average (PLAIN), a percentile (AGGREGATED), or none, because the
    # report is too old (EXPIRED).
    basis: int


def room_of(node: Reported, limits: Limits, args: LoadAwareSchedulingArgs, resources: Sequence[str]) -> Room:
    """Return how large the estimate of a pod must be, per resource, for the node's thresholds to refuse it.

    If the report has expired and the arguments filter expired reports, every estimate is refused, or none if
    `enableScheduleWhenNodeMetricsExpired`. Without thresholds, or a usage of the node, none is refused. Otherwise:

        round((used + e) * 100 / cap) > T   iff   e >= ceil(cap * (2 T + 1) / 200) - used

    Source: scheduler-core spec, 7.4 (3) to (5)
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
    """Return capacity minus `used` for each resource, at most the capacity and `MAX_AMOUNT`; -1 for a resource with
    which every pod scores 0.
    """
    return [
        min(amount - max(taken, 0), MAX_AMOUNT) if amount > 0 and amount >= taken else -1
        for amount, taken in zip(node.capacity, used, strict=True)
    ]


def divisors_of(capacity: Vector) -> list[int]:
    """Return the capacity per resource as a divisor, at least 1."""
    return [min(max(amount, 1), MAX_AMOUNT) for amount in capacity]


MAX_SCORE: Final = 100
EXPIRED_REASON: Final = "node(s) nodeMetric expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLoad:
    """The properties of a waiting pod that LoadAwareScheduling reads. Pods with equal values get equal results."""

    estimate: Vector  # Its estimated usage, one amount per considered resource
    is_prod: bool = True  # Whether its priority class is koord-prod
    of_daemon_set: bool = False  # Whether a DaemonSet owns it. Such pods are never refused.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The properties of a node object that LoadAwareScheduling reads."""

    allocatable: AmountsByResource  # Raw size of the node minus its reserved amounts; milli-cores, bytes, whole units
    usage_thresholds: str = ""  # Text of its annotation with thresholds; "" if it has none


def pod_load(pod: Pod, args: LoadAwareSchedulingArgs) -> PodLoad:
    """Return what LoadAwareScheduling reads of a pod that waits for a node. Raises InvalidInput: a request or limit is
    not a valid quantity.
    """
    return PodLoad(
        estimate=estimate_vector(pod, args),
        is_prod=priority_class(pod) is PriorityBand.PROD,
        of_daemon_set=any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references),
    )


def node_facts(node: Node) -> NodeFacts:
    """Return what LoadAwareScheduling reads of a node object. A malformed resource list counts as empty, because
    admission refuses it.
    Source: scheduler-core spec, 3 (node transformers) and 7.2
    """
    annotations = node.metadata.annotations
    try:
        quantities = parse_resources(rename_resources(node.status.allocatable, DEPRECATED))
    except InvalidInput:
        quantities = {}
    return NodeFacts(
        allocatable=raw_amounts(trim_allocatable(quantities, node_reservation(annotations)), annotations),
        usage_thresholds=annotations.get(keys.USAGE_THRESHOLDS, ""),
    )


def expiry(metric: NodeMetric, args: LoadAwareSchedulingArgs) -> float:
    """Return the Unix seconds from which the report is too old. A report without an update time is always too old."""
    if metric.updated_at is None:
        return float("-inf")
    return metric.updated_at + args.node_metric_expiration_seconds


def exceeded_reason(resource: str, *, aggregated: bool) -> str:
    """Return the phrase for users that the usage of a resource exceeds its threshold. `aggregated`: whether the
    threshold is one for a percentile of the usage.
    """
    return f"node(s) {resource} {'aggregated usage' if aggregated else 'usage'} exceed threshold"


def score_aggregation(args: LoadAwareSchedulingArgs) -> tuple[str, float] | None:
    """Return (type, period in seconds) of the percentile that scores use, or None if they use the average usage."""
    part = args.aggregated
    if part is None or not part.score_aggregation_type:
        return None
    return part.score_aggregation_type, part.score_aggregated_duration
