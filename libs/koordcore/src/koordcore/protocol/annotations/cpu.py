"""CPU labels and annotations of pods and nodes: bind policy, cpuQOS, core scheduling, CPUs of system QoS.

NodeResourceTopology states where each CPU is, and which CPUs the kubelet gave to pods.

Source: scheduler-fine-grained spec, 1.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from typing import Final

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations.text import TRUE, parse_present
from koordcore.values.invalid import InvalidInput
from koordcore.values.topology import CpuPlace


class NodeCpuBindPolicy(StrEnum):
    """Rules by which CPUs for pods are chosen on a node."""

    NONE = "None"  # No rule
    FULL_PCPUS_ONLY = "FullPCPUsOnly"  # All CPUs of each used core
    SPREAD_BY_PCPUS = "SpreadByPCPUs"  # One CPU of each core


class KubeletCpuManagerPolicy(msgspec.Struct, omit_defaults=True, frozen=True):
    """CPU manager of a node's kubelet: policy, options and reserved CPUs, from the annotation `cpu-manager-policy`. The
    annotation belongs to the NodeResourceTopology. Fields are empty if the agent did not report them.
    """

    policy: str = ""
    options: dict[str, str] = {}
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")


def parse_kubelet_cpu_manager_policy(annotations: Mapping[str, str]) -> KubeletCpuManagerPolicy:
    """Return the CPU manager policy of the kubelet of a node; a policy with empty fields if it was not reported.
    `kubelet.koordinator.sh/cpu-manager-policy` counts.

    Raises:
        InvalidInput: The annotation is not valid JSON.

    Source: protocol spec, 4.5.
    """
    decode = partial(lenient_json.decode, kind=KubeletCpuManagerPolicy)
    return parse_present(annotations, keys.KUBELET_CPU_MANAGER_POLICY, decode) or KubeletCpuManagerPolicy()


def node_cpu_bind_policy(
    labels: Mapping[str, str], kubelet: KubeletCpuManagerPolicy | None = None
) -> NodeCpuBindPolicy:
    """Return the CPU bind policy of a node. FullPCPUsOnly if the label `node.koordinator.sh/cpu-bind-policy` has this
    value, or if the kubelet's static policy has `full-pcpus-only=true`. SpreadByPCPUs if the label has this value.
    Otherwise None.

    Source: protocol spec, 4.3.
    """
    label = labels.get(keys.CPU_BIND_POLICY)
    by_kubelet = kubelet is not None and kubelet.policy == "static" and kubelet.options.get("full-pcpus-only") == TRUE
    if by_kubelet or label == NodeCpuBindPolicy.FULL_PCPUS_ONLY:
        return NodeCpuBindPolicy.FULL_PCPUS_ONLY
    if label == NodeCpuBindPolicy.SPREAD_BY_PCPUS:
        return NodeCpuBindPolicy.SPREAD_BY_PCPUS
    return NodeCpuBindPolicy.NONE


class CpuQos(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """CPU QoS settings of one pod, from its annotation `koordinator.sh/cpuQOS`. A field that is None is not set, so the
    node's strategy applies.
    """

    enable: bool | None = None  # Whether the settings apply
    group_identity: int | None = None  # Group identity (bvt), -1..2
    sched_idle: int | None = None  # Value of the kernel's `cpu.idle`
    core_expeller: bool | None = None  # Whether the pod keeps best-effort pods off its cores


LOWEST_GROUP_IDENTITY: Final = -1
HIGHEST_GROUP_IDENTITY: Final = 2


def parse_pod_cpu_qos(annotations: Mapping[str, str]) -> CpuQos | None:
    """Return the CPU QoS settings in a pod's annotation `koordinator.sh/cpuQOS`; None without the annotation.

    Raises:
        InvalidInput: The annotation is not valid JSON, or groupIdentity is outside -1..2. Callers ignore the
            annotation.

    Source: protocol spec, 4.2.
    """
    return parse_present(annotations, keys.CPU_QOS, _parse_cpu_qos)


def _parse_cpu_qos(text: str) -> CpuQos:
    parsed = lenient_json.decode(text, CpuQos)
    identity = parsed.group_identity
    if identity is not None and not LOWEST_GROUP_IDENTITY <= identity <= HIGHEST_GROUP_IDENTITY:
        raise InvalidInput(f"within {LOWEST_GROUP_IDENTITY}..{HIGHEST_GROUP_IDENTITY}", identity, "groupIdentity")
    return parsed


class CoreSchedPolicy(StrEnum):
    """Value of the pod label `koordinator.sh/core-sched-policy`."""

    DEFAULT = ""  # The pod shares physical cores with pods of its core-scheduling group only
    NONE = "none"  # The pod takes no part in core scheduling
    EXCLUSIVE = "exclusive"  # The pod shares physical cores with no other pod


@dataclass(frozen=True, slots=True)
class CoreSched:
    """Core-scheduling group of a pod ("" for none), and whether the pod shares physical cores with its group."""

    group: str
    policy: CoreSchedPolicy


def core_sched(labels: Mapping[str, str]) -> CoreSched:
    """Return the core-scheduling group (empty if absent) and the policy of a pod, from its labels. The labels are
    `koordinator.sh/core-sched-group-id` and `koordinator.sh/core-sched-policy`. An unknown policy counts as the default
    policy.

    Source: protocol spec, 4.1.
    """
    text = labels.get(keys.CORE_SCHED_POLICY, "")
    known = {str(policy): policy for policy in CoreSchedPolicy}
    return CoreSched(labels.get(keys.CORE_SCHED_GROUP_ID, ""), known.get(text, CoreSchedPolicy.DEFAULT))


class SystemQosResource(msgspec.Struct, omit_defaults=True, frozen=True):
    """CPUs of a node that are reserved for SYSTEM pods; exclusive by default."""

    cpuset: str = ""
    exclusive: bool = msgspec.field(default=True, name="cpusetExclusive")


def parse_system_qos_resource(annotations: Mapping[str, str]) -> SystemQosResource | None:
    """Return the CPUs that a node reserves for SYSTEM pods; None without its annotation `system-qos-resource`.

    Raises:
        InvalidInput: The annotation is not valid JSON. The agent then stops reporting the topology.

    Source: protocol spec, 4.4.
    """
    decode = partial(lenient_json.decode, kind=SystemQosResource)
    return parse_present(annotations, keys.SYSTEM_QOS_RESOURCE, decode)


HIGHEST_CPU: Final = 16_383  # Twice as many CPUs as Linux supports. Limits bound the work that one document can cause.
HIGHEST_ZONE: Final = 63
HIGHEST_CORE: Final = (1 << 16) - 1
HIGHEST_SOCKET: Final = 255


class _Detail(msgspec.Struct, frozen=True):
    id: int
    core: int
    socket: int
    node: int


class _CpuTopology(msgspec.Struct, frozen=True):
    detail: list[_Detail] | None = None


class KubeletCpus(msgspec.Struct, frozen=True):
    """CPUs that the kubelet gave to one pod: an entry in the annotation `pod-cpu-allocs` of a NodeResourceTopology."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    cpuset: str = ""  # CPUs of the pod as a Linux CPU list
    # Whether the kubelet's CPU manager gave them.
    managed_by_kubelet: bool = msgspec.field(default=False, name="managedByKubelet")


@lru_cache(maxsize=256)
def parse_cpu_topology(text: str) -> tuple[CpuPlace, ...]:
    """Return the CPUs that the annotation `cpu-topology` of a NodeResourceTopology lists, ascending; maybe empty. Core
    ids in the annotation repeat between sockets. So the core id of the result is `socket << 16 | core`.

    Raises:
        InvalidInput: The JSON is malformed, a CPU occurs twice, or an id is out of range.

    Source: scheduler-fine-grained spec, 1.1.
    """
    detail = lenient_json.decode(text, _CpuTopology).detail or [] if text else []
    places: dict[int, CpuPlace] = {}
    for index, each in enumerate(detail):
        limits = (
            ("id", each.id, HIGHEST_CPU),
            ("core", each.core, HIGHEST_CORE),
            ("socket", each.socket, HIGHEST_SOCKET),
            ("node", each.node, HIGHEST_ZONE),
        )
        for field, value, highest in limits:
            if not 0 <= value <= highest:
                raise InvalidInput(f"an integer from 0 to {highest}", value, f"detail[{index}].{field}")
        if each.id in places:
            raise InvalidInput("a CPU that is stated once", each.id, f"detail[{index}].id")
        core = each.socket << 16 | each.core
        places[each.id] = CpuPlace(cpu=each.id, core=core, socket=each.socket, node=each.node)
    return tuple(places[cpu] for cpu in sorted(places))


def parse_kubelet_cpus(annotations: Mapping[str, str]) -> list[KubeletCpus]:
    """Return the CPUs that the kubelet gave to pods, from the annotation `pod-cpu-allocs`; empty if it is absent.

    Raises:
        InvalidInput: The annotation is not a JSON list of pods with their CPUs.
    """
    text = annotations.get(keys.POD_CPU_ALLOCS)
    entries = lenient_json.parse_json(text) if text else None
    return [] if entries is None else lenient_json.convert(entries, list[KubeletCpus])
