"""What a node uses once the pods that it has just been given really run. source    scheduler-core spec, 7.3

A report is old when it arrives: pods placed since then are not in it, or not with what they will use. Each pod's share
of the estimate is a function of the report and the pod alone, so that a node's sums can be kept up to date pod by pod.
Vectors hold one amount per considered resource, in name order.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.protocol.priority import PriorityBand, priority_class
from koordcore.values.integers import parse_decimal
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.config.args.load_aware import LoadAwareSchedulingArgs
from koord_scheduler.domain.loadaware.estimate import estimate_pod
from koord_scheduler.domain.loadaware.metric import AmountsByResource, NodeMetric

Vector = tuple[int, ...]
"""One amount per considered resource."""


def vector_of(amounts: AmountsByResource, resources: Sequence[str]) -> Vector:
    """The considered amounts; what is not named is 0."""
    return tuple([amounts.get(resource, 0) for resource in resources])


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPod:
    """A pod that is assumed or bound on a node.

    estimate      over the considered resources
    assigned_at   unix seconds of its condition PodScheduled, else of the moment it became known here
    window_end    unix seconds until which its estimate counts whatever is measured; None: no forced window
    """

    uid: str
    namespace: str
    name: str
    is_prod: bool
    estimate: Vector
    assigned_at: float
    window_end: float | None = None


def assigned_pod(
    pod: Pod, args: LoadAwareSchedulingArgs, *, assigned_at: float, initialized_at: float | None = None
) -> AssignedPod:
    """The facts of a pod on a node; the caller leaves out reserve pods and terminated pods.

    initialized_at    transition time of condition Initialized=True; None: not initialized
    raises            InvalidInput for a request or limit that is no quantity
    source            scheduler-core spec, 7.3
    """
    return AssignedPod(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        is_prod=priority_class(pod) is PriorityBand.PROD,
        estimate=vector_of(estimate_pod(pod, args), args.resources),
        assigned_at=assigned_at,
        window_end=_window_end(pod, args, assigned_at, initialized_at),
    )


def _window_end(
    pod: Pod, args: LoadAwareSchedulingArgs, assigned_at: float, initialized_at: float | None
) -> float | None:
    after_scheduled = args.estimated_seconds_after_pod_scheduled
    after_initialized = args.estimated_seconds_after_initialized
    if args.allow_customize_estimation:
        annotations = pod.metadata.annotations
        own = _seconds(annotations, keys.LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED)
        after_scheduled = after_scheduled if own is None else own
        own = _seconds(annotations, keys.LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED)
        after_initialized = after_initialized if own is None else own
    if after_initialized and initialized_at is not None:
        return initialized_at + after_initialized
    return assigned_at + after_scheduled if after_scheduled else None


def _seconds(annotations: Mapping[str, str], key: str) -> int | None:
    text = annotations.get(key)
    if text is None:
        return None
    try:
        seconds = parse_decimal(text, 64)
    except InvalidInput:
        return None
    return seconds if seconds >= 0 else None


class Share(NamedTuple):
    """What one pod adds to the sums of its node.

    delta       estimate beyond what was measured of it
    estimated   its whole estimate
    prod        measured usage and delta, of a prod pod
    """

    delta: Vector
    estimated: Vector
    prod: Vector


def share_of(pod: AssignedPod, metric: NodeMetric, resources: Sequence[str]) -> Share:
    """What a pod adds, given the node's last report.

        include = not measured, or placed after U - I, or forced window ends after U     (U: updateTime, I: interval)
        delta = max(0, e - u) if include;   prod: u + delta when the report calls it koord-prod too, else its estimate

    A pod whose estimate is all zero adds nothing.
    source    scheduler-core spec, 7.3
    """
    estimate = pod.estimate
    nothing = (0,) * len(resources)
    if not any(estimate):
        return Share(nothing, nothing, nothing)
    found = metric.usage_of(pod.namespace, pod.name, pod.uid)
    updated_at = -math.inf if metric.updated_at is None else metric.updated_at
    include = (
        found is None
        or updated_at - metric.report_interval_seconds < pod.assigned_at
        or (pod.window_end is not None and pod.window_end > updated_at)
    )
    usage = nothing if found is None else vector_of(found.usage, resources)
    delta = tuple([max(0, e - u) for e, u in zip(estimate, usage, strict=True)]) if include else nothing
    if not pod.is_prod:
        return Share(delta, estimate, nothing)
    if found is None:
        return Share(delta, estimate, delta)
    if not found.is_prod:
        return Share(delta, estimate, estimate)
    return Share(delta, estimate, tuple([u + d for u, d in zip(usage, delta, strict=True)]))


class NodeSums(NamedTuple):
    """A node's report and its pods' shares, added up.

    delta       of all pods
    estimated   of all pods
    prod        of prod pods, with the system's usage when the arguments say so
    """

    delta: Vector
    estimated: Vector
    prod: Vector


def sums_of(
    metric: NodeMetric, pods: Iterable[AssignedPod], args: LoadAwareSchedulingArgs, resources: Sequence[str]
) -> NodeSums:
    """The sums of a node, from nothing."""
    sums = empty_sums(metric, args, resources)
    for pod in pods:
        sums = NodeSums(*map(added, sums, share_of(pod, metric, resources)))
    return sums


def empty_sums(metric: NodeMetric, args: LoadAwareSchedulingArgs, resources: Sequence[str]) -> NodeSums:
    """The sums of a node without pods."""
    nothing = (0,) * len(resources)
    with_system = args.prod_usage_include_sys and metric.node_usage is not None
    return NodeSums(nothing, nothing, vector_of(metric.system_usage, resources) if with_system else nothing)


def added(left: Vector, right: Vector) -> Vector:
    """The sum, resource by resource."""
    return tuple([a + b for a, b in zip(left, right, strict=True)])


def subtracted(left: Vector, right: Vector) -> Vector:
    """The difference, resource by resource."""
    return tuple([a - b for a, b in zip(left, right, strict=True)])


def used_by_all(
    metric: NodeMetric, sums: NodeSums, resources: Sequence[str], aggregation: tuple[str, float] | None
) -> Vector:
    """Used estimate over all pods.

    aggregation   (type, period in seconds; 0: the longest), None: plain usage. A period that is not recorded gives the
                  sum of the estimates without any usage (spec, 16 no. 15)
    source        scheduler-core spec, 7.3
    """
    usage = metric.node_usage if aggregation is None else metric.aggregated_usage(*aggregation)
    if usage is None:
        return sums.estimated
    return added(vector_of(usage, resources), sums.delta)
