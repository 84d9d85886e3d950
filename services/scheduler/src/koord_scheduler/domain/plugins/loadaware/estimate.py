"""Estimates how much a pod will use, and how large a node is for this purpose.

Source: scheduler-core spec, 7.2
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_limits, pod_requests
from koordcore.protocol.priority import PriorityBand, priority_class
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, NATIVE_TO_EXTENDED
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import Quantity
from koordcore.values.resources import Amounts, ResourceList, amount_of, parse_resources

from koord_scheduler.domain.config.koordinator_args import RECOMMENDED_ESTIMATOR, LoadAwareSchedulingArgs

DEFAULT_CPU_MILLI: Final = 250
DEFAULT_MEMORY_BYTES: Final = 200 * 1024 * 1024
_DEFAULTS: Final = {
    CPU: DEFAULT_CPU_MILLI,
    BATCH_CPU: DEFAULT_CPU_MILLI,
    MEMORY: DEFAULT_MEMORY_BYTES,
    BATCH_MEMORY: DEFAULT_MEMORY_BYTES,
}
"""Estimated usage of a pod that names neither request nor limit of the resource: milli-cores and bytes."""


def estimate_pod(pod: Pod, args: LoadAwareSchedulingArgs) -> Amounts:
    """Return the usage that the scheduler expects of a pod, for each resource that has a scaling factor.

    Units are milli-cores, bytes, whole units.

        q = max(limit, request) of the resource that the pod's class uses;  e = min(limit, round(q * factor / 100))

    If q is 0, the estimate is 250m for cpu and batch-cpu, 200 MiB for memory and batch-memory, otherwise 0. It is 0
    as well if the pod's priority class has no such resource. With the recommended estimator, the pod's annotation
    replaces the estimate, at most the limit.

    Raises:
        InvalidInput: A request or limit is not a valid quantity.

    Source: scheduler-core spec, 7.2; 16 no. 13; manager spec, 15.7; vectors scheduler/loadaware_estimate
    """
    requests, limits = pod_requests(pod), pod_limits(pod)
    band = priority_class(pod)
    recommended = _recommended(pod) if args.estimator == RECOMMENDED_ESTIMATOR else {}
    estimated: Amounts = {}
    for resource, factor in scaling_factors(pod, args).items():
        own = _resource_of_class(resource, band)
        if own is None:
            estimated[resource] = 0
        elif own in recommended:
            estimated[resource] = min(recommended[own], limits.get(own) or recommended[own])
        else:
            estimated[resource] = _estimate(own, requests.get(own, 0), limits.get(own, 0), factor)
    return estimated


def _recommended(pod: Pod) -> Amounts:
    """Return the usage that the recommender expects of the pod. A malformed annotation is ignored."""
    text = pod.metadata.annotations.get(keys.RECOMMENDED_USAGE)
    if not text:
        return {}
    with suppress(InvalidInput):
        expected = parse_resources(lenient_json.parse_json(text))
        return {name: amount for name, quantity in expected.items() if (amount := amount_of(name, quantity)) >= 0}
    return {}


def scaling_factors(pod: Pod, args: LoadAwareSchedulingArgs) -> Mapping[str, int]:
    """Return resource -> factor in percent that turns a pod's request into its estimated usage. If the arguments allow
    it, the pod's annotation overrides their factors. A malformed annotation is ignored.
    """
    text = pod.metadata.annotations.get(keys.LOAD_ESTIMATED_SCALING_FACTORS)
    if not args.allow_customize_estimation or not text:
        return args.estimated_scaling_factors
    try:
        return {**args.estimated_scaling_factors, **lenient_json.decode(text, dict[str, int])}
    except InvalidInput:
        return args.estimated_scaling_factors


def raw_amounts(allocatable: Mapping[str, Quantity], annotations: Mapping[str, str]) -> Amounts:
    """Return resource -> size of a node: the amounts of its raw-allocatable annotation, otherwise its allocatable. A
    malformed annotation is ignored. Amounts are milli-cores, bytes, whole units.
    """
    raw: ResourceList = {}
    text = annotations.get(keys.RAW_ALLOCATABLE)
    if text:
        with suppress(InvalidInput):
            raw = parse_resources(lenient_json.parse_json(text))
    return {name: amount_of(name, quantity) for name, quantity in {**allocatable, **raw}.items()}


def _resource_of_class(resource: str, band: PriorityBand) -> str | None:
    match band:
        case PriorityBand.PROD:
            return resource
        case PriorityBand.BATCH | PriorityBand.MID:
            return NATIVE_TO_EXTENDED[band].get(resource)
        case PriorityBand.FREE:
            return None


def _estimate(resource: str, request: int, limit: int, factor: int) -> int:
    quantity = max(request, limit)
    if quantity == 0:
        return _DEFAULTS.get(resource, 0)
    estimated = rounded_ratio(quantity * factor, 100)
    return min(estimated, limit) if limit > 0 else estimated


def rounded_ratio(dividend: int, divisor: int) -> int:
    """Return dividend / divisor, rounded half away from zero. The divisor must be positive."""
    half = (2 * abs(dividend) + divisor) // (2 * divisor)
    return half if dividend >= 0 else -half
