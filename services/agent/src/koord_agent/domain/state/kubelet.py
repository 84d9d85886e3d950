"""The kubelet's configuration, and the CPUs that its CPU manager assigned.

Source: agent spec, 4.3, 4.7.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from koordcore.protocol.objects import without_nulls
from koordcore.values import codec
from koordcore.values.cpuset import EMPTY, CpuSet, format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import ZERO
from koordcore.values.resources import CPU, parse_resources
from koordcore.values.topology import CpuTopology, take_packed

from koord_agent.domain.state.pods import AgentPod

STATIC: Final = "static"
DEFAULT_SCOPE: Final = "container"
_LEVELS: Final = {"single-numa-node": "SingleNUMANode", "restricted": "Restricted", "best-effort": "BestEffort"}
_SCOPES: Final = {"container": "ContainerLevel", "pod": "PodLevel"}


class KubeletConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of the kubelet's configuration (`kubeletconfig` of /configz) that the agent reads."""

    cpu_manager_policy: str = ""
    cpu_manager_policy_options: dict[str, str] = {}
    topology_manager_policy: str = ""
    topology_manager_scope: str = DEFAULT_SCOPE
    reserved_system_cpus: str = msgspec.field(default="", name="reservedSystemCPUs")
    kube_reserved: dict[str, str | int | float] = {}
    system_reserved: dict[str, str | int | float] = {}
    cgroup_driver: str = ""

    @property
    def is_static(self) -> bool:
        """Whether the CPU manager assigns whole CPUs to containers."""
        return self.cpu_manager_policy == STATIC


def parse_configz(body: bytes) -> KubeletConfiguration:
    """Return the configuration in an answer of /configz. Other parts, such as `logging`, are ignored.

    Raises:
        codec.DecodeError: A field has a wrong type.
        InvalidInput: The answer has no object `kubeletconfig`.
    """
    found = codec.decode(body, dict[str, Any]).get("kubeletconfig")
    if found is None:
        raise InvalidInput("an object kubeletconfig", body[:80].decode(errors="replace"))
    return kubelet_configuration(found)


def kubelet_configuration(raw: object) -> KubeletConfiguration:
    """Convert decoded JSON to the configuration. Null entries count as absent.

    Raises:
        codec.DecodeError: A field has a wrong type.
    """
    return codec.convert(without_nulls(raw), KubeletConfiguration)


def topology_policy(policy: str, scope: str) -> str:
    """Return the entry of `topologyPolicies` for the policy and scope of the kubelet's topology manager.

    It is "None" for a combination without an entry.

    Source:
        agent spec, 4.7 (8).
    """
    if policy in _LEVELS and scope in _SCOPES:
        return _LEVELS[policy] + _SCOPES[scope]
    return "None"


def static_reserved_cpus(kubelet: KubeletConfiguration, topology: CpuTopology) -> str:
    """Return the CPU list that a CPU manager with static policy reserves for the system, sorted.

    It is "" with another policy or without such CPUs.

    Source:
        agent spec, 4.7 (6).
    """
    if not kubelet.is_static:
        return ""
    try:
        if kubelet.reserved_system_cpus:
            listed = parse_cpuset(kubelet.reserved_system_cpus)
            return format_cpuset(listed) if listed <= topology.cpus else ""
        reserved = (parse_resources(part).get(CPU, ZERO) for part in (kubelet.kube_reserved, kubelet.system_reserved))
        milli = sum((quantity for quantity in reserved), ZERO).milli()
    except InvalidInput:
        return ""
    return format_cpuset(take_packed(topology, -(-milli // 1000)) or EMPTY)


class KubeletAllocation(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """CPUs that the kubelet's CPU manager assigned to one pod, as the topology report states them.

    Namespace and name are absent if the pod is unknown.
    """

    uid: str
    cpuset: str
    managed_by_kubelet: bool = False
    namespace: str = ""
    name: str = ""


class _CpuManagerState(msgspec.Struct, rename="camel"):
    policy_name: str = ""
    entries: dict[str, dict[str, str]] = {}


def parse_cpu_manager_state(text: str | bytes) -> Mapping[str, Mapping[str, str]]:
    """Return pod UID -> container -> CPU list, from the file cpu_manager_state.

    Raises:
        codec.DecodeError: A field has a wrong type.
    """
    return codec.decode(text, _CpuManagerState).entries


def kubelet_allocations(
    entries: Mapping[str, Mapping[str, str]], pods: Sequence[AgentPod]
) -> tuple[tuple[KubeletAllocation, ...], CpuSet]:
    """Return the CPUs that the kubelet assigned to pods, sorted by UID, and the set of all these CPUs.

    Pods labelled LS or BE, pods with CPUs of Koordinator, and invalid lists are skipped.

    Source:
        agent spec, 4.7 (1).
    """
    known = {pod.uid: pod for pod in pods}
    found: list[KubeletAllocation] = []
    taken: set[int] = set()
    for uid in sorted(entries):
        pod = known.get(uid)
        if pod is not None and (pod.qos_label in ("LS", "BE") or pod.cpuset):
            continue
        cpus: set[int] = set()
        for text in entries[uid].values():
            try:
                cpus |= parse_cpuset(text.strip())
            except InvalidInput:
                continue
        if cpus:
            taken |= cpus
            found.append(
                KubeletAllocation(
                    uid=uid,
                    cpuset=format_cpuset(cpus),
                    managed_by_kubelet=True,
                    namespace=pod.namespace if pod is not None else "",
                    name=pod.name if pod is not None else "",
                )
            )
    return tuple(found), frozenset(taken)
