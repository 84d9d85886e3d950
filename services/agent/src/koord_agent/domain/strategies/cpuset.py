"""CPU lists of pods, containers and host applications, and no quota for pods that own CPUs.

The strategy proposes its plans when pods or pools changed, and renews them every 10 s. A value that is not in place,
because its file is missing, is proposed again in the next cycle. If the containers of a pod are unknown (no kubelet),
all cgroups of the pod get its list.

Source: runtime spec, 2.6 (container cpuset.cpus, pod cpu.cfs_quota_us), 3.3. Vectors: cpuset_hook.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from koordcore.protocol import keys
from koordcore.protocol.annotations.allocation import parse_allocation
from koordcore.protocol.annotations.cpu import parse_system_qos_resource
from koordcore.protocol.qos import KubeQos, QosClass
from koordcore.protocol.resource_names import BATCH_CPU, CPU
from koordcore.values.allocation import Allocation
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.gate_names import CPUSET_ALLOCATOR
from koord_agent.domain.kernel.cfs_bandwidth import QUOTA, UNLIMITED
from koord_agent.domain.node.cpu_pools import CpuPools, SharedPool
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import CgroupFile, Plan
from koord_agent.domain.strategies.strategy import CycleState, Needs, Proposal, Readings, isolating

PLUGIN = "CPUSetAllocator"
CPUSET = "cpuset.cpus"
RENEW_AFTER_MS = 10_000
AUDIT_REASON = "UpdateCPUSet"
_WITHOUT_QUOTA = (QosClass.LSE, QosClass.LSR)
_Value = tuple[CgroupFile, str]


class ResourceStatus(NamedTuple):
    cpuset: str = ""  # CPU list that the pod owns; "" means none
    cpu_zones: tuple[int, ...] = ()  # NUMA nodes of its amounts, in their order, if at least one of them gives it CPU


def resource_status(annotations: Mapping[str, str]) -> ResourceStatus:
    """The CPUs that the scheduler gave to a pod, from its annotation resource-status; empty without it.

    Raises:
        InvalidInput: The annotation is malformed.
    """
    text = annotations.get(keys.RESOURCE_STATUS)
    return _status_of(parse_allocation({keys.RESOURCE_STATUS: text})) if text else ResourceStatus()


def status_of_pod(pod: AgentPod) -> ResourceStatus:
    """From the annotation, or from the allocation if only the ledger knows the pod.

    Raises:
        InvalidInput: The annotation is malformed.
    """
    is_annotated = keys.RESOURCE_STATUS in pod.annotations
    return resource_status(pod.annotations) if is_annotated else _status_of(pod.allocation)


def _status_of(allocation: Allocation) -> ResourceStatus:
    zones = allocation.zones
    has_cpu = any(zone.amounts.get(CPU, 0) != 0 or zone.amounts.get(BATCH_CPU, 0) > 0 for zone in zones)
    return ResourceStatus(allocation.cpuset, tuple(zone.zone for zone in zones) if has_cpu else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class CpusetRule:
    """The CPUs of a node that each kind of pods may use."""

    shared: tuple[SharedPool, ...] = ()  # CPUs that latency-sensitive pods share, by NUMA node
    be: tuple[SharedPool, ...] = ()  # CPUs that best-effort pods share, by NUMA node
    system: str = ""  # CPU list of system QoS. "" means none.
    is_static: bool = False  # Whether the CPU manager policy of the kubelet is static


def cpuset_rule_of(pools: CpuPools | None, annotations: Mapping[str, str], *, is_static: bool) -> CpusetRule | None:
    """From the pools that the agent computed itself; None if they are unknown.

    Raises:
        InvalidInput: The annotation of system QoS is malformed.
    """
    if pools is None:
        return None
    return CpusetRule(shared=pools.ls, be=pools.be, system=system_cpuset(annotations), is_static=is_static)


def system_cpuset(annotations: Mapping[str, str]) -> str:
    """The CPU list that a node's annotation sets aside for pods with QoS SYSTEM; "" if there is none.

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
    """Return the text to write to cpuset.cpus of a container or sandbox. "" clears the file.

    None: it must not be changed.

    A pod that owns CPUs gets these. A pod with NUMA nodes that gave it CPU gets their shared pools; a BE pod only with
    `be_by_manager`. If these have no CPU, because all are reserved, it gets all shared pools. Otherwise SYSTEM pods get
    the CPUs of system QoS, if any, and LS pods all shared pools. The CPU list of a pod in the BestEffort class is
    cleared. Any other pod gets all shared pools, unless `rule.is_static`.

    Args:
        rule: None means it is not known yet.
        qos_label: "" means none.
        kube_qos: Kubernetes QoS class, which decides the cgroup directory.
        be_by_manager: Whether the gate BECPUManager is on.
    """
    if status.cpuset:
        return status.cpuset
    if rule is None:
        return None
    zones = status.cpu_zones
    if zones and (qos_label != QosClass.BE or be_by_manager):
        pools = rule.be if qos_label == QosClass.BE else rule.shared
        return _joined([pool for zone in zones for pool in pools if pool.node == zone]) or _joined(pools)
    if qos_label == QosClass.SYSTEM and rule.system:
        return rule.system
    if qos_label == QosClass.LS:
        return _joined(rule.shared)
    if kube_qos is KubeQos.BEST_EFFORT:
        return ""
    return None if rule.is_static else _joined(rule.shared)


def application_cpuset(rule: CpusetRule | None, qos: str) -> str | None:
    """None if `rule` is, as before the topology of the node is known: then no class is refused, either.

    Raises:
        InvalidInput: The QoS class is not LS.

    Source: runtime spec, 2.5, 3.3.
    """
    if rule is None:
        return None
    if qos != QosClass.LS:
        raise InvalidInput(QosClass.LS.value, qos, "QoS class of a host application with a CPU list")
    return _joined(rule.shared)


def owned_quota_us(status: ResourceStatus, *, unsets: bool = True) -> int | None:
    """Return -1 (unlimited) for a pod or container that owns CPUs, so that it is not throttled; None for no change.

    `unsets` is False with the flag -disable-unset-cpu-quota.
    """
    return UNLIMITED if unsets and status.cpuset else None


def _joined(pools: Sequence[SharedPool]) -> str:
    """The CPUs of all pools. A pool may be empty, if its NUMA node is reserved as a whole."""
    return ",".join(pool.cpuset for pool in pools if pool.cpuset)


@dataclass(slots=True)
class CpusetStrategy:
    """Proposes the CPU lists of pods and host applications on one node."""

    name = PLUGIN
    needs = Needs(gates=(CPUSET_ALLOCATOR,), node_slo=False)
    # Whether pods that own CPUs get no CPU quota; False with the flag -disable-unset-cpu-quota.
    unsets_quota: bool = True
    be_by_manager: bool = False  # Whether the gate BECPUManager is on
    _pods: tuple[AgentPod, ...] = ()
    _pools: CpuPools | None = None
    _rule: CpusetRule | None = None
    _plans: tuple[Plan, ...] = ()
    _problems: tuple[str, ...] = ()
    _at_ms: int | None = None

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """While the inputs are the same and for less than 10 s, propose only plans whose files have other values.

        With `be_by_manager`, all are proposed each time.
        """
        is_fresh = self._at_ms is not None and 0 <= look.now_ms - self._at_ms < RENEW_AFTER_MS
        # CPU suppression restores the lists of best-effort pods in each cycle, so their own lists are proposed as often
        if not self.be_by_manager and look.has_same_pods(self._pods) and is_fresh and self._pools == look.pools:
            # one of the plans may be of a pod that is frozen since then
            late = () if look.frozen else (plan for plan in self._plans if not state.written.get(plan.file, True))
            return Proposal([replace(plan, created_ms=look.now_ms) for plan in late], problems=self._problems)
        self._pods, self._pools, self._at_ms = look.pods, look.pools, look.now_ms
        problems: list[str] = []
        try:
            self._rule = cpuset_rule_of(look.pools, look.annotations, is_static=look.kubelet_static)
        except InvalidInput as error:
            problems.append(f"node: its system CPUs stay as they were: {error}")
        values = [*self._of_pods(look, state.readings, problems), *self._of_applications(look, problems)]
        self._plans = tuple(isolating(look, state, values, plugin=PLUGIN, reason=AUDIT_REASON))
        self._problems = tuple(problems)
        return Proposal(self._plans, problems=self._problems)

    def _of_pods(self, look: NodeLook, readings: Readings, problems: list[str]) -> Iterator[_Value]:
        for pod in look.pods:
            if pod.uid in look.frozen:
                continue
            try:
                status = status_of_pod(pod)
            except InvalidInput as error:
                problems.append(f"pod {pod.namespace}/{pod.name}: its CPU list is not applied: {error}")
                continue
            cpus = container_cpuset(self._rule, pod.qos_label, pod.kube_qos, status, be_by_manager=self.be_by_manager)
            loses_quota = pod.qos_label in _WITHOUT_QUOTA
            quota = owned_quota_us(status, unsets=self.unsets_quota) if loses_quota else None
            if not cpus and quota is None:
                continue  # an empty list is not written (runtime spec, 2.4)
            of_pod, of_containers = look.pod_directory(pod), tuple(_containers(look, pod, readings))
            if quota is not None:
                direct = (each for each in of_containers if posixpath.dirname(each) == of_pod)
                yield from ((CgroupFile(each, QUOTA), str(quota)) for each in (of_pod, *direct))
            if cpus:
                yield from ((CgroupFile(each, CPUSET), cpus) for each in of_containers)
            if cpus and of_containers and of_pod not in of_containers:
                yield from _widened(CgroupFile(of_pod, CPUSET), cpus, readings)

    def _of_applications(self, look: NodeLook, problems: list[str]) -> Iterator[_Value]:
        for application in look.host_applications:
            try:
                cpus = application_cpuset(self._rule, application.qos)
                directory = look.layout.host_application_directory(application)
            except InvalidInput as error:
                problems.append(f"host application {application.name}: its CPU list is not applied: {error}")
                continue
            except ValueError:
                continue
            if directory and cpus:
                yield CgroupFile(directory, CPUSET), cpus


def _widened(of_pod: CgroupFile, cpus: str, readings: Readings) -> Iterator[_Value]:
    """Yield a wider CPU list for a pod's directory, if its list does not contain the CPUs of its containers.

    While the containers were unknown, as after a start of the agent, the directory had the list of the containers. A
    pool may have grown since.
    """
    try:
        present, wanted = parse_cpuset((readings.read(of_pod) or "").strip()), parse_cpuset(cpus)
    except InvalidInput:
        return
    if present and not wanted <= present:  # an empty list has the CPUs of the parent
        yield of_pod, format_cpuset(present | wanted)


def _containers(look: NodeLook, pod: AgentPod, readings: Readings) -> Iterator[str]:
    """The directories of the containers that exist.

    Without known containers, that of the pod and all below it: only the kubelet tells the containers of pods, and most
    agents ask none. On cgroup v1, the kernel refuses a list of the pod that lacks a CPU of a container or the sandbox.
    """
    if not pod.containers:
        of_pod = look.pod_directory(pod)
        yield from readings.tree(of_pod) or (of_pod,)
    yield from (directory for _, directory in look.created_containers(pod))
