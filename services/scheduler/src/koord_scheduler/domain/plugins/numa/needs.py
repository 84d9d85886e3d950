"""CPU and NUMA requests of a pod: read from its object, once for each pod equivalence class.

Source: scheduler-fine-grained spec, 1.3 (1 to 5) and 1.5 (2, 4).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations.allocation import parse_allocation
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.priority import priority_class
from koordcore.protocol.qos import QosClass
from koordcore.protocol.resource_names import CPU
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import MAX_AMOUNT

from koord_scheduler.domain.cluster.scheduling_hint import is_designated
from koord_scheduler.domain.framework.topology_hints import TopologyPolicy
from koord_scheduler.domain.plugins.numa.binding import PodBinding, ResourceSpec, pod_binding
from koord_scheduler.domain.plugins.numa.cpu_layout import parsed_mask
from koord_scheduler.domain.plugins.numa.zones import Allocated

T = TypeVar("T")
PLUGIN: Final = "NodeNUMAResource"
_REQUIRED: Final = "Required"
_BINDING: Final = (QosClass.LSE, QosClass.LSR)
_MOST_MILLI: Final = MAX_AMOUNT // 1000 * 1000  # whole CPUs
_POLICIES: Final = {policy.value: policy for policy in TopologyPolicy}


class _NumaTopologySpec(msgspec.Struct, frozen=True):
    """Annotation numa-topology-spec of a pod."""

    policy: str = msgspec.field(default="", name="numaTopologyPolicy")
    exclusive: str = msgspec.field(default="", name="singleNUMANodeExclusive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Requests of a pod about CPUs and NUMA zones besides amounts, read from its labels and annotations."""

    binding: PodBinding  # How the pod binds CPUs
    policy: TopologyPolicy = TopologyPolicy.NONE  # NUMA topology policy of the pod
    # Whether the pod avoids zones of certain pods. If the pod spans zones, it gets no zone with bound pods. Otherwise
    # it gets no zone with pods that span zones.
    is_exclusive: bool = False
    # Text of its annotation resource-status, if the pod may get nothing else; "": any CPUs and zones.
    designated: str = ""
    refusal: str = ""  # Why the pod cannot be placed on any node; "" if it can


def asks(pod: Pod) -> bool:
    """Return whether the pod requests bound CPUs or NUMA alignment by itself, whatever its node demands.

    It does if its QoS label is LSE or LSR, or if it has the annotation resource-spec or numa-topology-spec, or if its
    CPUs and zones are designated.
    """
    meta = pod.metadata
    return (
        _is_designated(pod)
        or meta.labels.get(keys.QOS_CLASS) in _BINDING
        or keys.RESOURCE_SPEC in meta.annotations
        or keys.NUMA_TOPOLOGY_SPEC in meta.annotations
    )


def wish_of(pod: Pod, default_bind_policy: str) -> Wish | None:
    """Return the requests of a pod about CPUs and NUMA zones besides amounts; None if it has none (`asks` is False).

    If an annotation is invalid or contradicts the amounts, `Wish.refusal` says so.

    Args:
        default_bind_policy: Argument `defaultCPUBindPolicy` of the plugin.

    Raises:
        InvalidInput: One of its requests is not a valid quantity.
    """
    if not asks(pod):
        return None
    milli = min(pod_requests(pod).get(CPU, 0), _MOST_MILLI)
    try:
        spec = _decoded(pod.metadata.annotations, keys.RESOURCE_SPEC, ResourceSpec)
        topology = _decoded(pod.metadata.annotations, keys.NUMA_TOPOLOGY_SPEC, _NumaTopologySpec)
        designated = pod.metadata.annotations[keys.RESOURCE_STATUS] if _is_designated(pod) else ""
        parse_allocation({keys.RESOURCE_STATUS: designated})
    except InvalidInput as error:
        return Wish(binding=PodBinding(milli=milli), refusal=str(error))
    qos = pod.metadata.labels.get(keys.QOS_CLASS, "")
    binding = pod_binding(milli, qos, priority_class(pod), spec, default_bind_policy)
    if isinstance(binding, str):
        return Wish(binding=PodBinding(milli=milli), refusal=binding)
    policy = _POLICIES.get(topology.policy, TopologyPolicy.NONE)
    exclusive = topology.exclusive or (_REQUIRED if policy is not TopologyPolicy.NONE else "")
    return Wish(binding=binding, policy=policy, is_exclusive=exclusive == _REQUIRED, designated=designated)


def designated_of(wish: Wish) -> Allocated | None:
    """Return the CPUs and zone amounts that the pod's annotation designates; None if the pod may get any."""
    if not wish.designated:
        return None
    allocation = parse_allocation({keys.RESOURCE_STATUS: wish.designated})
    return Allocated(parsed_mask(allocation.cpuset), {each.zone: dict(each.amounts) for each in allocation.zones})


def _is_designated(pod: Pod) -> bool:
    return bool(pod.metadata.annotations.get(keys.RESOURCE_STATUS)) and is_designated(pod.metadata.annotations, PLUGIN)


def _decoded(annotations: Mapping[str, str], key: str, kind: type[T]) -> T:
    text = annotations.get(key)
    try:
        return lenient_json.decode(text, kind) if text else kind()
    except InvalidInput as error:
        raise error.at(f"metadata.annotations[{key}]") from error
