"""The facts that load awareness reads from pods and nodes.

Source: scheduler-core spec, 7.4 and 7.5; vectors scheduler/loadaware_filter, scheduler/loadaware_score
"""

from dataclasses import dataclass
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.annotations.node import node_reservation, trim_allocatable
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.priority import PriorityBand, priority_class
from koordcore.protocol.resource_names import DEPRECATED, rename_resources
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import parse_resources

from koord_scheduler.domain.config.koordinator_args import LoadAwareSchedulingArgs
from koord_scheduler.domain.plugins.loadaware.assigned import Vector, estimate_vector
from koord_scheduler.domain.plugins.loadaware.estimate import raw_amounts
from koord_scheduler.domain.plugins.loadaware.metric import AmountsByResource, NodeMetric

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
    """Return what LoadAwareScheduling reads of a pod that waits for a node.

    Raises:
        InvalidInput: A request or limit is not a valid quantity.
    """
    return PodLoad(
        estimate=estimate_vector(pod, args),
        is_prod=priority_class(pod) is PriorityBand.PROD,
        of_daemon_set=any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references),
    )


def node_facts(node: Node) -> NodeFacts:
    """Return what LoadAwareScheduling reads of a node object.

    A malformed resource list counts as empty, because admission refuses it.

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
    """Return the phrase for users that the usage of a resource exceeds its threshold.

    Args:
        aggregated: Whether the threshold is one for a percentile of the usage.
    """
    return f"node(s) {resource} {'aggregated usage' if aggregated else 'usage'} exceed threshold"


def score_aggregation(args: LoadAwareSchedulingArgs) -> tuple[str, float] | None:
    """Return (type, period in seconds) of the percentile that scores use, or None if they use the average usage."""
    part = args.aggregated
    if part is None or not part.score_aggregation_type:
        return None
    return part.score_aggregation_type, part.score_aggregated_duration
