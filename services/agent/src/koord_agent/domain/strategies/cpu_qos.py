"""CPU QoS as a strategy: group identity of classes, pods, containers and host applications, and idle classes.

It proposes its plans when pods or settings changed, and renews them every 10 s. The values are computed by
`domain.strategies.group_identity`. Source: runtime spec, 2.6 (kubeqos, pod, host app), 3.1, 3.2.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.gate_names import CORE_SCHED, GROUP_IDENTITY
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.strategies.group_identity import (
    BVT,
    IDLE,
    BvtRule,
    application_bvt,
    bvt_rule,
    pod_bvt,
    qos_bvt,
    qos_idle,
)
from koord_agent.domain.strategies.strategy import RESOURCE_QOS, CycleState, Needs, Proposal, isolating

PLUGIN = "CPUQOS"
RENEW_AFTER_MS = 10_000
AUDIT_REASON = "UpdateCPU"


@dataclass(slots=True)
class CpuQosStrategy:
    """Proposes group identity and cpu.idle of QoS classes, pods and host applications on one node."""

    name = PLUGIN
    needs = Needs(gates=(GROUP_IDENTITY, CORE_SCHED), section=RESOURCE_QOS)
    identity: bool  # Whether group identities are set
    idle: bool  # Whether cpu.idle is set
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
        idle = [(CgroupFile(look.layout.qos_directory(qos), IDLE), qos_idle(policy, qos)) for qos in KubeQos]
        self._pods, self._section, self._at_ms = look.pods, policy, look.now_ms
        self._changed_ms = self._changed_ms if is_same else look.now_ms
        # zeros are wished for twice, for a write that failed, and then no more: nobody else gives a class an identity
        self._is_off = not rule.is_enabled and not any(value for _, value in idle)
        wanted: list[tuple[CgroupFile, int]] = []
        if self.identity and state.readings.group_identity().takes(rule):
            wanted.extend(self._identities(look, rule))
        if self.idle:
            wanted.extend(idle)
        plans = isolating(look, state, wanted, plugin=PLUGIN, reason=AUDIT_REASON)
        return Proposal(plans, problems=self._problems, group_identity=bool(plans) and rule.is_enabled)

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
