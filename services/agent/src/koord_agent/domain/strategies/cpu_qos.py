"""CPU QoS as a strategy: group identity of classes, pods, containers and host applications, and idle pods.

On a kernel without group identity, best-effort pods with the lowest one are idle instead (cpu.idle). The strategy
proposes its plans when pods or settings changed, and renews them every 10 s. The values are computed by
`domain.strategies.group_identity`. Source: runtime spec, 2.6 (kubeqos, pod, host app), 3.1, 3.2.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.gate_names import CORE_SCHED, GROUP_IDENTITY
from koord_agent.domain.kernel.cgroup_files import IDLE, SHARES
from koord_agent.domain.kernel.cpu_weight import MIN_SHARES
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.strategies.group_identity import (
    BVT,
    BvtRule,
    application_bvt,
    bvt_rule,
    is_idle,
    pod_bvt,
    qos_bvt,
)
from koord_agent.domain.strategies.pod_resources import pod_shares
from koord_agent.domain.strategies.strategy import RESOURCE_QOS, CycleState, Needs, Proposal, Readings, isolating

PLUGIN = "CPUQOS"
RENEW_AFTER_MS = 10_000
AUDIT_REASON = "UpdateCPU"


@dataclass(slots=True)
class CpuQosStrategy:
    """Proposes group identity of QoS classes, pods and host applications on one node, and cpu.idle of pods."""

    name = PLUGIN
    needs = Needs(gates=(GROUP_IDENTITY, CORE_SCHED), section=RESOURCE_QOS)
    identity: bool  # Whether group identities are set
    idle: bool  # Whether pods of classes with schedIdle are idle
    _problems: tuple[str, ...] = ()
    _pods: tuple[AgentPod, ...] = ()
    _section: Mapping[str, Any] | None = None
    _at_ms: int = 0
    _changed_ms: int = 0
    _is_off: bool = False

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """No plans while the inputs are unchanged and less than 10 s have passed since the last plans.

        If nothing is enabled, zeros are proposed for 20 s, and then no more.
        """
        is_same = look.has_same_pods(self._pods) and self._section is policy
        is_fresh = 0 <= look.now_ms - self._at_ms < RENEW_AFTER_MS
        is_done = self._is_off and look.now_ms - self._changed_ms >= 2 * RENEW_AFTER_MS
        if is_same and (is_fresh or is_done):
            return Proposal(problems=self._problems)
        rule = bvt_rule(policy)
        kernel = state.readings.group_identity()
        idle = frozenset(
            pod.uid
            for pod in look.pods
            if (self.idle and is_idle(policy, pod.qos_label, pod.kube_qos))
            or (self.identity and kernel.lacks_identity and pod.is_best_effort and _has_lowest_identity(rule, pod))
        )
        self._pods, self._section, self._at_ms = look.pods, policy, look.now_ms
        self._changed_ms = self._changed_ms if is_same else look.now_ms
        # zeros are wished for twice, for a write that failed, and then no more: nobody else gives a class an identity
        self._is_off = not rule.is_enabled and not idle
        wanted: list[tuple[CgroupFile, int]] = []
        if self.identity and kernel.takes(rule):
            wanted.extend(self._identities(look, rule))
        wanted.extend(self._idle_values(look, idle, state.readings))
        plans = isolating(look, state, wanted, plugin=PLUGIN, reason=AUDIT_REASON)
        return Proposal(plans, problems=self._problems, group_identity=bool(plans) and rule.is_enabled)

    def _idle_values(
        self, look: NodeLook, idle: frozenset[str], readings: Readings
    ) -> Iterator[tuple[CgroupFile, int]]:
        """The kernel gives a cgroup that is idle no longer the shares 1024, so its own are restored.

        An earlier version of the agent let classes be idle.
        """

        def was_idle(directory: str) -> bool:
            return (readings.read(CgroupFile(directory, IDLE)) or "").strip() == "1"

        for qos in KubeQos if self.idle else ():
            directory = look.layout.qos_directory(qos)
            if was_idle(directory):
                yield CgroupFile(directory, IDLE), 0
                if qos is KubeQos.BEST_EFFORT:  # the kubelet restores the others
                    yield CgroupFile(directory, SHARES), MIN_SHARES
        for pod in look.pods:
            directory = look.pod_directory(pod)
            if pod.uid in look.frozen:
                continue
            if pod.uid in idle:
                yield CgroupFile(directory, IDLE), 1
            elif was_idle(directory):
                yield CgroupFile(directory, IDLE), 0
                yield CgroupFile(directory, SHARES), pod_shares(pod)

    def _identities(self, look: NodeLook, rule: BvtRule) -> Iterator[tuple[CgroupFile, int]]:
        for qos in KubeQos:
            yield CgroupFile(look.layout.qos_directory(qos), BVT), qos_bvt(rule, qos)
        problems: list[str] = []
        for pod in look.pods:
            if pod.uid in look.frozen:
                continue
            try:
                value = pod_bvt(rule, pod.qos_label, pod.kube_qos, pod.annotations)
            except InvalidInput as error:
                problems.append(f"pod {pod.namespace}/{pod.name}: its CPU QoS is not applied: {error}")
                continue
            yield CgroupFile(look.pod_directory(pod), BVT), value
            for _, directory in look.created_containers(pod):
                yield CgroupFile(directory, BVT), value
        self._problems = tuple(problems)
        for application in look.host_applications:
            try:
                directory = look.layout.host_application_directory(application)
            except ValueError:
                continue
            if directory:
                yield CgroupFile(directory, BVT), application_bvt(rule, application.qos)


def _has_lowest_identity(rule: BvtRule, pod: AgentPod) -> bool:
    try:
        return pod_bvt(rule, pod.qos_label, pod.kube_qos, pod.annotations) < 0
    except InvalidInput:
        return False
