"""CPU lists as a strategy: owned CPUs, shared pools, and no quota for pods that own CPUs.

It proposes its plans when pods or pools changed, and renews them every 10 s. A value that is not in place, because its
file is missing, is proposed again in the next cycle. The values are computed by `domain.hooks.cpuset`. A pod whose
containers are unknown (no kubelet) counts as its own only container. Source: runtime spec, 2.6 (container cpuset.cpus,
pod cpu.cfs_quota_us), 3.3.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from koordcore.protocol.qos import QosClass
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.gate_names import CPUSET_ALLOCATOR
from koord_agent.domain.hooks import cpuset
from koord_agent.domain.kernel.cgroup_files import QUOTA
from koord_agent.domain.kernel.cgroup_layout import UnknownContainerId
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.qos.strategy import CycleState, Needs, Proposal, Readings
from koord_agent.domain.state.cpu_pools import CpuPools
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentPod

PLUGIN = "CPUSetAllocator"
CPUSET = "cpuset.cpus"
RENEW_AFTER_MS = 10_000
AUDIT_REASON = "UpdateCPUSet"
_WITHOUT_QUOTA = (QosClass.LSE, QosClass.LSR)

_Value = tuple[CgroupFile, str]


@dataclass(slots=True)
class CpusetStrategy:
    """Proposes the CPU lists of pods and host applications on one node.

    Attributes:
        unsets_quota: Whether pods that own CPUs get no CPU quota; False with the flag -disable-unset-cpu-quota.
        be_by_manager: Whether the gate BECPUManager is on.
    """

    name = PLUGIN
    needs = Needs(gates=(CPUSET_ALLOCATOR,), node_slo=False)
    unsets_quota: bool = True
    be_by_manager: bool = False
    _pods: tuple[AgentPod, ...] = ()
    _pools: CpuPools | None = None
    _rule: cpuset.CpusetRule | None = None
    _plans: tuple[Plan, ...] = ()
    _problems: tuple[str, ...] = ()
    _at_ms: int | None = None

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """Propose CPU lists and unlimited quotas for this cycle.

        While the inputs are unchanged and less than 10 s have passed since the last plans, propose only plans whose
        files have other values. With `be_by_manager`, all are proposed each time. See `Strategy.propose`.
        """
        same_pods = len(self._pods) == len(look.pods) and all(
            old is new for old, new in zip(self._pods, look.pods, strict=True)
        )
        is_fresh = self._at_ms is not None and 0 <= look.now_ms - self._at_ms < RENEW_AFTER_MS
        # CPU suppression restores the lists of best-effort pods in each cycle, so their own lists are proposed as often
        if not self.be_by_manager and same_pods and is_fresh and self._pools == look.pools:
            # one of the plans may be of a pod that is frozen since then
            late = () if look.frozen else (plan for plan in self._plans if not state.written.get(plan.file, True))
            return Proposal([replace(plan, created_ms=look.now_ms) for plan in late], problems=self._problems)
        self._pods, self._pools, self._at_ms = look.pods, look.pools, look.now_ms
        problems: list[str] = []
        try:
            self._rule = cpuset.cpuset_rule_of(look.pools, look.annotations, is_static=look.kubelet_static)
        except InvalidInput as error:
            problems.append(f"node: its system CPUs stay as they were: {error}")
        self._plans = tuple(
            Plan(
                plugin=PLUGIN,
                band=Band.ISOLATION,
                file=file,
                value=value,
                created_ms=look.now_ms,
                ttl_ms=state.ttl_ms,
                reason=AUDIT_REASON,
            )
            for file, value in (
                *self._of_pods(look, state.readings, problems),
                *self._of_applications(look, problems),
            )
        )
        self._problems = tuple(problems)
        return Proposal(self._plans, problems=self._problems)

    def _of_pods(self, look: NodeLook, readings: Readings, problems: list[str]) -> Iterator[_Value]:
        for pod in look.pods:
            if pod.uid in look.frozen:
                continue
            try:
                status = cpuset.status_of_pod(pod)
            except InvalidInput as error:
                problems.append(f"pod {pod.namespace}/{pod.name}: its CPU list is not applied: {error}")
                continue
            cpus = cpuset.container_cpuset(
                self._rule, pod.qos_label, pod.kube_qos, status, be_by_manager=self.be_by_manager
            )
            loses_quota = pod.qos_label in _WITHOUT_QUOTA
            quota = cpuset.owned_quota_us(status, unsets=self.unsets_quota) if loses_quota else None
            if not cpus and quota is None:
                continue  # an empty list is not written (runtime spec, 2.4)
            of_pod, of_containers = look.pod_directory(pod), tuple(_containers(look, pod))
            if quota is not None:
                yield from ((CgroupFile(each, QUOTA), str(quota)) for each in dict.fromkeys((of_pod, *of_containers)))
            if cpus:
                yield from ((CgroupFile(each, CPUSET), cpus) for each in of_containers)
            if cpus and of_containers and of_pod not in of_containers:
                yield from _widened(CgroupFile(of_pod, CPUSET), cpus, readings)

    def _of_applications(self, look: NodeLook, problems: list[str]) -> Iterator[_Value]:
        for application in look.host_applications:
            try:
                cpus = cpuset.application_cpuset(self._rule, application.qos)
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


def _containers(look: NodeLook, pod: AgentPod) -> Iterator[str]:
    """Yield the directories of the containers that exist. Without known containers, yield that of the pod."""
    if not pod.containers:
        yield look.pod_directory(pod)
    for container in pod.containers:
        if container.container_id:
            try:
                yield look.container_directory(pod, container.container_id)
            except UnknownContainerId:
                continue
