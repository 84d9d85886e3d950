"""CPU binding: whether and how a pod binds CPUs on a node, by its QoS class, its annotation and the node's policy.

Source: scheduler-fine-grained spec, 1.3; vectors scheduler/cpu_bind_resolve.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from koordcore.protocol.annotations.cpu import NodeCpuBindPolicy
from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.qos import QosClass

from koord_scheduler.domain.plugins.numa.accumulator import BindPolicy, ExclusivePolicy

NOT_WHOLE: Final = "the requested CPUs must be integer"
NO_LAYOUT: Final = "node(s) invalid CPU Topology"
CONFLICT: Final = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
NOT_WHOLE_CORES: Final = "node(s) requested cpus not multiple cpus per core"
_DEFAULT: Final = "Default"
_BINDING_QOS: Final = frozenset({QosClass.LSE, QosClass.LSR})
_POLICIES: Final = {str(policy): policy for policy in BindPolicy}
_EXCLUSIVE: Final = {str(policy): policy for policy in ExclusivePolicy}
_OF_NODE: Final = {
    NodeCpuBindPolicy.FULL_PCPUS_ONLY: BindPolicy.FULL_PCPUS,
    NodeCpuBindPolicy.SPREAD_BY_PCPUS: BindPolicy.SPREAD_BY_PCPUS,
}


class ResourceSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotation `scheduling.koordinator.sh/resource-spec` of a pod, with policy names as the user wrote them."""

    required: str = msgspec.field(default="", name="requiredCPUBindPolicy")  # Required CPU bind policy; "" if absent
    preferred: str = msgspec.field(default="", name="preferredCPUBindPolicy")  # Preferred CPU bind policy; "" if absent
    exclusive: str = msgspec.field(default="", name="preferredCPUExclusivePolicy")  # Exclusive policy; "" if absent


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBinding:
    """How a pod wants its CPUs bound, by its QoS class and annotation. `Binding` adds the node's policy."""

    milli: int  # CPU that the pod requests, in milli-cores
    policy: BindPolicy | None = None  # How its CPUs are chosen; None if it binds CPUs only on nodes that demand it
    required: BindPolicy | None = None  # `policy` if the pod refuses any other; else None
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE  # Unit (core or zone) that the pod prefers not to share


@dataclass(frozen=True, slots=True)
class Binding:
    """CPUs that a pod binds on one node: their number, and how they are chosen."""

    count: int  # Number of CPUs
    policy: BindPolicy  # How the CPUs are chosen
    is_required: bool  # Whether CPUs that violate the policy are refused
    exclusive: ExclusivePolicy  # Unit (core or zone) that the pod prefers not to share with other bound pods


def pod_binding(
    milli: int, qos_label: str, priority_class: str, spec: ResourceSpec, default_policy: str
) -> PodBinding | str:
    """Return how a pod wants CPUs to be bound, or a sentence about why no node can run it. Only pods with QoS LSE or
    LSR and the priority class koord-prod bind CPUs of their own. They must request whole CPUs.

    Args:
        milli: CPU that the pod requests, in milli-cores.
        qos_label: Text of its label `koordinator.sh/qosClass`.
        priority_class: Its priority class, explicit or derived.
        default_policy: Argument `defaultCPUBindPolicy` of the plugin; "": a pod without a policy does not bind CPUs.

    Source: scheduler-fine-grained spec, 1.3 (2 to 5)
    """
    if qos_label not in _BINDING_QOS or priority_class != PriorityBand.PROD:
        return PodBinding(milli=milli)
    preferred = default_policy if spec.preferred in ("", _DEFAULT) else spec.preferred
    required = default_policy if spec.required == _DEFAULT else spec.required
    policy = _POLICIES.get(required or preferred)
    if policy is None:
        return PodBinding(milli=milli)
    if milli % 1000:
        return NOT_WHOLE
    if milli <= 0:
        return PodBinding(milli=milli)
    return PodBinding(
        milli=milli,
        policy=policy,
        required=policy if required else None,
        exclusive=_EXCLUSIVE.get(spec.exclusive, ExclusivePolicy.NONE),
    )


def binding_on(
    pod: PodBinding, node_policy: NodeCpuBindPolicy, *, can_fill: Callable[[int], bool] | None
) -> Binding | str | None:
    """Return how the pod binds CPUs on a node; a sentence if it cannot run there; None if it binds no CPUs.
    `node_policy`: the CPU bind policy that the node demands of every pod; NONE: no policy. `can_fill`: whether
    that many CPUs can be whole cores of the node; None if the node does not report its CPUs.
    Source: scheduler-fine-grained spec, 1.3 (7 to 10)
    """
    imposed = _OF_NODE.get(node_policy)
    if pod.milli <= 0 or (pod.policy is None and imposed is None):
        return None
    if pod.milli % 1000:
        return NOT_WHOLE
    if can_fill is None:
        return NO_LAYOUT
    if imposed is not None and pod.required is not None and imposed is not pod.required:
        return CONFLICT
    required = imposed or pod.required
    count = pod.milli // 1000
    if required is BindPolicy.FULL_PCPUS and not can_fill(count):
        return NOT_WHOLE_CORES
    policy = required or pod.policy
    assert policy is not None, "a pod that binds has a policy"
    return Binding(count, policy, required is not None, pod.exclusive)
