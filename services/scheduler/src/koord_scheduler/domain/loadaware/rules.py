"""Filter and score of one node for one pod: the definition that `columns` must agree with.

Source:
    scheduler-core spec, 7.4 and 7.5; vectors scheduler/loadaware_filter, scheduler/loadaware_score
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.priority import PriorityBand, priority_class
from koordcore.protocol.reservation import node_reservation, trim_allocatable
from koordcore.protocol.resource_names import DEPRECATED, rename_resources
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import parse_resources

from koord_scheduler.domain.config.args.load_aware import LoadAwareSchedulingArgs
from koord_scheduler.domain.loadaware.assigned import AssignedPod, Vector, estimate_vector, sums_of, used_by_all
from koord_scheduler.domain.loadaware.estimate import raw_amounts, rounded_ratio
from koord_scheduler.domain.loadaware.metric import AmountsByResource, NodeMetric
from koord_scheduler.domain.loadaware.thresholds import node_thresholds

MAX_SCORE: Final = 100
EXPIRED_REASON: Final = "node(s) nodeMetric expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLoad:
    """What the plugin reads of a pod that wants a node. estimate: over the considered resources."""

    estimate: Vector
    is_prod: bool = True
    of_daemon_set: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What the plugin reads of a node.

    Attributes:
        allocatable: Less node reservation, at its raw size.
        usage_thresholds: Text of the annotation, "" when there is none.
    """

    allocatable: AmountsByResource
    usage_thresholds: str = ""


def pod_load(pod: Pod, args: LoadAwareSchedulingArgs) -> PodLoad:
    """Return the facts of a pod that wants a node.

    Raises:
        InvalidInput: A request or limit that is no quantity.
    """
    return PodLoad(
        estimate=estimate_vector(pod, args),
        is_prod=priority_class(pod) is PriorityBand.PROD,
        of_daemon_set=any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references),
    )


def node_facts(node: Node) -> NodeFacts:
    """Return the facts of a node object; a malformed resource list counts as empty (admission has refused it).

    Source:
        scheduler-core spec, 3 (node transformers) and 7.2
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
    """Return unix seconds from which the metric counts as expired; without an update time it always does."""
    if metric.updated_at is None:
        return float("-inf")
    return metric.updated_at + args.node_metric_expiration_seconds


def exceeded_reason(resource: str, *, aggregated: bool) -> str:
    """Return the reason text for a resource above its threshold."""
    return f"node(s) {resource} {'aggregated usage' if aggregated else 'usage'} exceed threshold"


def filter_node(
    pod: PodLoad,
    node: NodeFacts,
    metric: NodeMetric | None,
    assigned: Iterable[AssignedPod],
    args: LoadAwareSchedulingArgs,
    now: float,
) -> str | None:
    """Return why the node is refused, or None if it passes. Refusals are Unschedulable because load may fall.

    Args:
        now: Unix seconds.

    Source:
        scheduler-core spec, 7.4, step by step
    """
    resources = args.resources
    if pod.of_daemon_set:
        return None
    thresholds = node_thresholds(node.usage_thresholds, args, resources)
    limits = thresholds.prod if pod.is_prod else thresholds.other
    if not limits.is_set or metric is None:
        return None
    if args.filter_expired_node_metrics and now >= expiry(metric, args):
        return None if args.enable_schedule_when_node_metrics_expired else EXPIRED_REASON
    if metric.node_usage is None:
        return None
    sums = sums_of(metric, assigned, args, resources)
    used = sums.prod if limits.by_prod else used_by_all(metric, sums, resources, limits.aggregation)
    for index, resource in enumerate(resources):
        percent, allocatable = limits.percent[index], node.allocatable.get(resource, 0)
        if percent <= 0 or allocatable <= 0:
            continue
        if rounded_ratio((used[index] + pod.estimate[index]) * 100, allocatable) > percent:
            return exceeded_reason(resource, aggregated=limits.aggregation is not None)
    return None


def score_node(
    pod: PodLoad,
    node: NodeFacts,
    metric: NodeMetric | None,
    assigned: Iterable[AssignedPod],
    args: LoadAwareSchedulingArgs,
    now: float,
) -> int:
    """Return how much of the node would be left, 0..100.

        s(r) = (cap - used - e) * 100 // cap, 0 when over or without cap;  dominant = min(100, min over all resources)
        score = (sum of w * s + dominant * D) // (sum of w + D)

    An expired metric scores 0 even where it passes the filter (spec, 16 no. 14).

    Args:
        now: Unix seconds.

    Source:
        scheduler-core spec, 7.5
    """
    if metric is None or metric.node_usage is None or now >= expiry(metric, args):
        return 0
    resources = args.resources
    sums = sums_of(metric, assigned, args, resources)
    by_prod = args.score_according_prod_usage and pod.is_prod
    used = sums.prod if by_prod else used_by_all(metric, sums, resources, score_aggregation(args))
    scores = [
        _left(node.allocatable.get(resource, 0), used[index] + pod.estimate[index])
        for index, resource in enumerate(resources)
    ]
    return weighted_score(scores, resources, args)


def score_aggregation(args: LoadAwareSchedulingArgs) -> tuple[str, float] | None:
    """Return (type, period in seconds) of the usage that scores use, or None for the plain usage."""
    part = args.aggregated
    if part is None or not part.score_aggregation_type:
        return None
    return part.score_aggregation_type, part.score_aggregated_duration


def weighted_score(scores: Sequence[int], resources: Sequence[str], args: LoadAwareSchedulingArgs) -> int:
    """Return the weighted mean of the scores of all considered resources; 0 if all weights are 0."""
    dominant_weight = args.dominant_resource_weight
    weights = args.resource_weights
    total = sum(weights.values()) + dominant_weight
    if total == 0:
        return 0
    weighted = sum(score * weights.get(resource, 0) for score, resource in zip(scores, resources, strict=True))
    return (weighted + min(MAX_SCORE, *scores) * dominant_weight) // total


def _left(capacity: int, used: int) -> int:
    return (capacity - used) * MAX_SCORE // capacity if capacity > 0 and used <= capacity else 0
