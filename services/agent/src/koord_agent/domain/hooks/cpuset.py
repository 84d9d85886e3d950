"""CPU lists of pods, containers and host applications, and the quota of pods that own CPUs.

Source: runtime spec, 3.3. Vectors: cpuset_hook.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.annotations.cpu import parse_system_qos_resource
from koordcore.protocol.lenient_json import decode
from koordcore.protocol.qos import KubeQos, QosClass
from koordcore.protocol.resource_names import BATCH_CPU, CPU
from koordcore.values.allocation import NOTHING
from koordcore.values.cpuset import parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import ZERO, quantity_from_json

from koord_agent.domain.kernel.cgroup_files import UNLIMITED
from koord_agent.domain.state.cpu_pools import CpuPools, SharedPool
from koord_agent.domain.state.pods import AgentPod


class _ZoneResources(msgspec.Struct):
    node: int = 0
    resources: dict[str, str | int | float | None] | None = None


class ResourceStatus(msgspec.Struct, rename="camel"):
    """The CPUs and NUMA amounts that the scheduler gave to a pod: the annotation resource-status.

    Attributes:
        cpuset: CPU list that the pod owns. "" means none.
        numa_node_resources: Amounts by NUMA node; None if the annotation has none.
    """

    cpuset: str = ""
    numa_node_resources: list[_ZoneResources] | None = None

    @property
    def cpu_zones(self) -> tuple[int, ...]:
        """NUMA nodes of all entries, in their order, if at least one of them gives CPU to the pod; otherwise empty."""
        zones = self.numa_node_resources or ()
        return tuple(zone.node for zone in zones) if any(map(_has_cpu, zones)) else ()


def _has_cpu(zone: _ZoneResources) -> bool:
    found = zone.resources or {}
    cpu, batch = (quantity_from_json(found[name]) if name in found else ZERO for name in (CPU, BATCH_CPU))
    return cpu.milli() != 0 or batch.milli() > 0


def resource_status(annotations: Mapping[str, str]) -> ResourceStatus:
    """Return the CPUs and NUMA amounts of a pod from its annotation resource-status; empty without the annotation.

    Raises:
        InvalidInput: The annotation is malformed.
    """
    text = annotations.get(keys.RESOURCE_STATUS)
    return decode(text, ResourceStatus) if text else ResourceStatus()


def status_of_pod(pod: AgentPod) -> ResourceStatus:
    """Return the CPUs and NUMA amounts that the scheduler gave to a pod.

    They come from the pod's annotation, or from its allocation if only the ledger knows the pod.

    Raises:
        InvalidInput: The annotation is malformed.
    """
    # only whether a zone gave CPU matters here, so milli-cores may stand for cores
    if keys.RESOURCE_STATUS in pod.annotations or pod.allocation is NOTHING:
        return resource_status(pod.annotations)
    zones = [
        _ZoneResources(
            zone.zone, {name: f"{amount}m" if name == CPU else amount for name, amount in zone.amounts.items()}
        )
        for zone in pod.allocation.zones
    ]
    return ResourceStatus(cpuset=pod.allocation.cpuset, numa_node_resources=zones or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpusetRule:
    """The CPUs of a node that each kind of pods may use.

    Attributes:
        shared: CPUs that latency-sensitive pods share, by NUMA node.
        be: CPUs that best-effort pods share, by NUMA node.
        system: CPU list of system QoS. "" means none.
        is_static: Whether the CPU manager policy of the kubelet is static.
    """

    shared: tuple[SharedPool, ...] = ()
    be: tuple[SharedPool, ...] = ()
    system: str = ""
    is_static: bool = False


def cpuset_rule_of(pools: CpuPools | None, annotations: Mapping[str, str], *, is_static: bool) -> CpusetRule | None:
    """Return which CPUs each kind of pods may use, from the pools that the agent computed itself.

    Args:
        pools: CPUs of each kind of pods. None means they are unknown.
        annotations: Annotations of the node.
        is_static: Whether the CPU manager policy of the kubelet is static.

    Returns:
        None if the pools are unknown.

    Raises:
        InvalidInput: The annotation of system QoS is malformed.
    """
    if pools is None:
        return None
    return CpusetRule(shared=pools.ls, be=pools.be, system=system_cpuset(annotations), is_static=is_static)


def system_cpuset(annotations: Mapping[str, str]) -> str:
    """Return the CPU list that a node's annotation sets aside for pods with QoS SYSTEM; "" if there is none.

    Raises:
        InvalidInput: The annotation is malformed, or its CPU list is.
    """
    system = parse_system_qos_resource(annotations)
    if system is None:
        return ""
    parse_cpuset(system.cpuset)  # a malformed list would keep containers from starting
    return system.cpuset


def container_cpuset(
    rule: CpusetRule | None,
    qos_label: str,
    kube_qos: KubeQos,
    status: ResourceStatus,
    *,
    be_by_manager: bool = False,
) -> str | None:
    """Return the text to write to cpuset.cpus of a container or sandbox.

    A pod that owns CPUs gets these. A pod with NUMA nodes that gave it CPU gets their shared pools; a BE pod only with
    `be_by_manager`. Otherwise SYSTEM pods get the CPUs of system QoS, if any, and LS pods all shared pools. The CPU
    list of a pod in the BestEffort class is cleared. Any other pod gets all shared pools, unless `rule.is_static`.

    Args:
        rule: Which CPUs each kind of pods may use. None means it is not known yet.
        qos_label: QoS class of the pod, "" means none.
        kube_qos: Kubernetes QoS class, which decides the cgroup directory.
        status: CPUs and zones that the scheduler allocated to the pod.
        be_by_manager: Whether the gate BECPUManager is on.

    Returns:
        The CPU list. "" clears the file. None means that the file must not be changed.
    """
    if status.cpuset:
        return status.cpuset
    if rule is None:
        return None
    zones = status.cpu_zones
    if zones and (qos_label != QosClass.BE or be_by_manager):
        pools = rule.be if qos_label == QosClass.BE else rule.shared
        return _joined([pool for zone in zones for pool in pools if pool.node == zone])
    if qos_label == QosClass.SYSTEM and rule.system:
        return rule.system
    if qos_label == QosClass.LS:
        return _joined(rule.shared)
    if kube_qos is KubeQos.BEST_EFFORT:
        return ""
    return None if rule.is_static else _joined(rule.shared)


def application_cpuset(rule: CpusetRule | None, qos: str) -> str | None:
    """Return the CPU list of a host application with QoS class LS; None if it is not known yet.

    Raises:
        InvalidInput: The class is not LS.
    """
    if qos != QosClass.LS:
        raise InvalidInput(QosClass.LS.value, qos, "QoS class of a host application with a CPU list")
    return None if rule is None else _joined(rule.shared)


def owned_quota_us(status: ResourceStatus, *, unsets: bool = True) -> int | None:
    """Return the quota -1 (unlimited) for a pod or container that owns CPUs, so that it is not throttled.

    Args:
        status: CPUs and zones that the scheduler allocated to the pod.
        unsets: False with the flag -disable-unset-cpu-quota.

    Returns:
        None if the pod owns no CPUs or the flag is set; then the quota must not be changed.
    """
    return UNLIMITED if unsets and status.cpuset else None


def _joined(pools: Sequence[SharedPool]) -> str:
    return ",".join(pool.cpuset for pool in pools)
