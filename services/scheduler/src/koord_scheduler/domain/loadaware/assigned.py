"""What a node uses once the pods that it has just been given really run.

Source: scheduler-core spec, 7.3

A report is old when it arrives: pods placed since then are not in it, or not with what they will use. What a pod adds
is a function of the report and the pod alone, so that a node's sums can be kept up to date pod by pod.
Vectors hold one amount per considered resource, in name order.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.values.integers import parse_decimal
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.columns.node_columns import MAX_AMOUNT
from koord_scheduler.domain.config.args.load_aware import LoadAwareSchedulingArgs
from koord_scheduler.domain.loadaware.estimate import estimate_pod
from koord_scheduler.domain.loadaware.metric import AmountsByResource, NodeMetric

Vector = tuple[int, ...]
"""One amount per considered resource."""

_NOTHING: Final[AmountsByResource] = {}


def vector_of(amounts: AmountsByResource, resources: Sequence[str]) -> Vector:
    """Return the considered amounts; what is not named is 0."""
    return tuple([amounts.get(resource, 0) for resource in resources])


def estimate_vector(pod: Pod, args: LoadAwareSchedulingArgs) -> Vector:
    """Estimated usage of a pod over the considered resources, at most MAX_AMOUNT each.

    Raises:
        InvalidInput: A request or limit is not a valid quantity.
    """
    estimated = estimate_pod(pod, args)
    return tuple([min(estimated.get(resource, 0), MAX_AMOUNT) for resource in args.resources])


class AssignedPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that is assumed or bound on a node.

    Attributes:
        estimate: Over the considered resources.
        assigned_at: Unix seconds of its condition PodScheduled, else of the moment it became known here.
        window_end: Unix seconds until which its estimate counts whatever is measured; None: no forced window.
    """

    uid: str
    namespace: str
    name: str
    is_prod: bool
    estimate: Vector
    assigned_at: float
    window_end: float | None = None


def window_end(
    pod: Pod, args: LoadAwareSchedulingArgs, assigned_at: float, initialized_at: float | None
) -> float | None:
    """Return the end of the window in which a pod's estimate always counts, or None without a window.

    Source: spec, 7.3
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
    """A node's pods added up, given its last report; each vector as a list, changed pod by pod.

    delta        estimates beyond what was measured, of all pods
    estimated    whole estimates, of all pods
    prod_usage   measured usage of prod pods; with the system's usage when the arguments say so
    prod_delta   as delta, of prod pods

    One pod adds, with its estimate e, its measured usage u (0 when there is none) and U, I of the report:

        include = not measured, or placed after U - I, or its forced window ends after U
        delta += max(0, e - u) if include;  estimated += e
        prod_usage += u, prod_delta += max(0, e - u) if include, when the report calls it koord-prod, too
        prod_delta += e when it does not

    A pod whose estimate is all zero adds nothing.

    Source:
        scheduler-core spec, 7.3
    """

    __slots__ = ("_metric", "_resources", "delta", "estimated", "prod_delta", "prod_usage")

    def __init__(self, metric: NodeMetric, args: LoadAwareSchedulingArgs, resources: Sequence[str]) -> None:
        self._metric = metric
        self._resources = resources
        self.delta = [0] * len(resources)
        self.estimated = [0] * len(resources)
        with_system = args.prod_usage_include_sys and metric.node_usage is not None
        self.prod_usage = list(vector_of(metric.system_usage if with_system else _NOTHING, resources))
        self.prod_delta = [0] * len(resources)

    @property
    def prod(self) -> list[int]:
        """Used estimate over prod pods."""
        return [usage + delta for usage, delta in zip(self.prod_usage, self.prod_delta, strict=True)]

    def add(self, pod: AssignedPod) -> None:
        """Add a pod of the node."""
        self._count(pod, 1)

    def remove(self, pod: AssignedPod) -> None:
        """Remove a pod that was added before."""
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
    """Return the sums of a node, from nothing."""
    sums = NodeSums(metric, args, resources)
    for pod in pods:
        sums.add(pod)
    return sums


def used_by_all(
    metric: NodeMetric, sums: NodeSums, resources: Sequence[str], aggregation: tuple[str, float] | None
) -> Sequence[int]:
    """Return the estimated usage of a node over all pods.

    Args:
        aggregation: (type, period in seconds; 0: the longest), None: plain usage. A period that is not recorded gives
            the sum of the estimates without any usage (spec, 16 no. 15).

    Source:
        scheduler-core spec, 7.3
    """
    usage = metric.node_usage if aggregation is None else metric.aggregated_usage(*aggregation)
    if usage is None:
        return sums.estimated
    return [usage.get(resource, 0) + delta for resource, delta in zip(resources, sums.delta, strict=True)]
