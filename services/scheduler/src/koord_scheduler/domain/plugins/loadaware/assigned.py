"""Estimates the usage that a node will have once the recently placed pods run.

A report is outdated when it arrives: pods placed since then are not in it, or not with their later usage. The amount
that a pod adds depends only on the report and the pod, so that a node's sums can be updated pod by pod. Vectors hold
one amount per considered resource, in the order of the resources' names.

Source: scheduler-core spec, 7.3
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.values.integers import parse_decimal
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import clamped

from koord_scheduler.domain.config.koordinator_args import LoadAwareSchedulingArgs
from koord_scheduler.domain.plugins.loadaware.estimate import estimate_pod
from koord_scheduler.domain.plugins.loadaware.metric import AmountsByResource, NodeMetric

Vector = tuple[int, ...]
"""One amount per considered resource: milli-cores, bytes, whole units."""

_NOTHING: Final[AmountsByResource] = {}


def vector_of(amounts: AmountsByResource, resources: Sequence[str]) -> Vector:
    """Return one amount for each name in `resources`, in this order. 0 for resources that `amounts` does not
    contain.
    """
    return tuple([amounts.get(resource, 0) for resource in resources])


def estimate_vector(pod: Pod, args: LoadAwareSchedulingArgs) -> Vector:
    """Return the estimated usage of a pod for each resource that the plugin considers, each within 0..MAX_AMOUNT. The
    order is that of `args.resources`; units are milli-cores, bytes, whole units. Raises InvalidInput: a request or
    limit is not a valid quantity.
    """
    estimated = estimate_pod(pod, args)
    return tuple([clamped(estimated.get(resource, 0)) for resource in args.resources])


class AssignedPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """LoadAwareScheduling's record of a pod that is assumed or bound on a node."""

    uid: str
    namespace: str
    name: str
    is_prod: bool  # Whether its priority class is koord-prod
    estimate: Vector  # Its estimated usage, one amount per considered resource
    # Unix seconds of its condition PodScheduled; without the condition, of the moment when the scheduler first saw it
    # on a node.
    assigned_at: float
    # Unix seconds until which its estimate counts even if usage is measured. None: no such window.
    window_end: float | None = None


def window_end(
    pod: Pod, args: LoadAwareSchedulingArgs, assigned_at: float, initialized_at: float | None
) -> float | None:
    """Return the Unix seconds until which a pod's estimate counts even if its usage is measured. None: no such window.
    `pod`: the pod; with allowCustomizeEstimation, its annotations override the arguments. `assigned_at`: Unix seconds
    from which the pod counts on its node. `initialized_at`: Unix seconds of the condition Initialized=True; None if it
    is not initialized.
    """
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


class NodeSums:
    """Sums of measured and estimated usage over a node's pods, given the node's last report.

    A list of amounts per resource.

    A pod with estimate e and measured usage u (0 if unmeasured) adds, for a report of time U and interval I:

        include = not measured, or placed after U - I, or its window ends after U
        delta += max(0, e - u) if include;  estimated += e
        for koord-prod pods, if the report calls them koord-prod too:
            prod_usage += u;  prod_delta += max(0, e - u) if include
        for other koord-prod pods: prod_delta += e

    A pod whose estimate is all zero adds nothing.
    """

    __slots__ = ("_metric", "_resources", "delta", "estimated", "prod_delta", "prod_usage")

    def __init__(self, metric: NodeMetric, args: LoadAwareSchedulingArgs, resources: Sequence[str]) -> None:
        self._metric = metric
        self._resources = resources
        self.delta = [0] * len(resources)  # Estimates beyond the measured usage, of all pods
        self.estimated = [0] * len(resources)  # Whole estimates of all pods
        with_system = args.prod_usage_include_sys and metric.node_usage is not None
        # Measured usage of koord-prod pods; with the system's usage if the arguments say so.
        self.prod_usage = list(vector_of(metric.system_usage if with_system else _NOTHING, resources))
        self.prod_delta = [0] * len(resources)  # Estimates beyond the measured usage, of koord-prod pods

    @property
    def prod(self) -> list[int]:
        """Return the estimated usage of koord-prod pods per resource: `prod_usage` plus `prod_delta`."""
        return [usage + delta for usage, delta in zip(self.prod_usage, self.prod_delta, strict=True)]

    def add(self, pod: AssignedPod) -> None:
        self._count(pod, 1)

    def remove(self, pod: AssignedPod) -> None:
        """Subtract a pod from the sums: the inverse of `add`."""
        self._count(pod, -1)

    def _count(self, pod: AssignedPod, sign: int) -> None:
        if not any(pod.estimate):
            return
        metric = self._metric
        found = metric.usage_of(pod.namespace, pod.name, pod.uid)
        updated_at = -math.inf if metric.updated_at is None else metric.updated_at
        include = (
            found is None
            or updated_at - metric.report_interval_seconds < pod.assigned_at
            or (pod.window_end is not None and pod.window_end > updated_at)
        )
        usage = _NOTHING if found is None else found.usage
        confirmed = found is None or found.is_prod
        for index, resource in enumerate(self._resources):
            estimate, used = pod.estimate[index], usage.get(resource, 0)
            delta = estimate - used if include and estimate > used else 0
            self.delta[index] += sign * delta
            self.estimated[index] += sign * estimate
            if not pod.is_prod:
                continue
            if confirmed:
                self.prod_usage[index] += sign * used
                self.prod_delta[index] += sign * delta
            else:
                self.prod_delta[index] += sign * estimate


def sums_of(
    metric: NodeMetric, pods: Iterable[AssignedPod], args: LoadAwareSchedulingArgs, resources: Sequence[str]
) -> NodeSums:
    """Return the usage sums of a node on which exactly these pods run, given its last report."""
    sums = NodeSums(metric, args, resources)
    for pod in pods:
        sums.add(pod)
    return sums


def used_by_all(
    metric: NodeMetric, sums: NodeSums, resources: Sequence[str], aggregation: tuple[str, float] | None
) -> Sequence[int]:
    """Return the estimated usage of a node over all pods, one amount per considered resource. `aggregation`: (type,
    period in seconds) of a percentile, with period 0 for the longest one; None for the average usage. If the report has
    no such period, the result is the sum of the estimates without any usage (spec, 16 no. 15).
    """
    usage = metric.node_usage if aggregation is None else metric.aggregated_usage(*aggregation)
    if usage is None:
        return sums.estimated
    return [usage.get(resource, 0) + delta for resource, delta in zip(resources, sums.delta, strict=True)]
