"""Memory QoS as a strategy: it proposes its plans when pods or settings changed, and renews them every 30 s.

The values are computed by `domain.hooks.memory_qos`. Source: agent spec, 14.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from koordcore.protocol.pod_resources import MEMORY

from koord_agent.domain.gate_names import CGROUP_RECONCILE
from koord_agent.domain.hooks.memory_qos import PLUGIN, Values, class_settings, memory_values
from koord_agent.domain.kernel.cgroup_layout import UnknownContainerId
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.qos.strategy import RESOURCE_QOS, CycleState, Needs, Proposal
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentPod

RENEW_AFTER_MS = 30_000
AUDIT_REASON = "UpdateMemory"


@dataclass(slots=True)
class MemoryQosStrategy:
    """Proposes the memory.* files of QoS classes, pods and containers on one node.

    Attributes:
        page_size: Size of a memory page of this machine in bytes.
    """

    name = PLUGIN
    needs = Needs(gates=(CGROUP_RECONCILE,), section=RESOURCE_QOS)
    page_size: int = 4096
    _pods: tuple[AgentPod, ...] = ()
    _section: Mapping[str, Any] | None = None
    _at_ms: int = 0

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """Propose values of memory.* files for this cycle.

        No plans while the inputs are unchanged and less than 30 s have passed since the last plans. See
        `Strategy.propose`.
        """
        same_pods = len(self._pods) == len(look.pods) and all(
            old is new for old, new in zip(self._pods, look.pods, strict=True)
        )
        if same_pods and self._section is policy and 0 <= look.now_ms - self._at_ms < RENEW_AFTER_MS:
            return Proposal()
        self._pods, self._section, self._at_ms = look.pods, policy, look.now_ms
        values = memory_values(
            class_settings(policy),
            look.pods,
            allocatable_bytes=look.allocatable.get(MEMORY, 0),
            page_size=self.page_size,
        )
        plans: list[Plan] = []

        def add(directory: str, files: Values) -> None:
            plans.extend(
                Plan(
                    plugin=PLUGIN,
                    band=Band.ISOLATION,
                    file=CgroupFile(directory, name),
                    value=str(value),
                    created_ms=look.now_ms,
                    ttl_ms=state.ttl_ms,
                    reason=AUDIT_REASON,
                )
                for name, value in files.items()
            )

        for kube_qos, files in values.classes.items():
            add(look.layout.qos_directory(kube_qos), files)
        for pod in look.pods:
            found = values.pods.get(pod.uid)
            if found is None or pod.uid in look.frozen:
                continue
            add(look.pod_directory(pod), found.pod)
            for container in pod.containers:
                if container.name in found.containers and container.container_id:
                    try:
                        add(look.container_directory(pod, container.container_id), found.containers[container.name])
                    except UnknownContainerId:
                        continue
        return Proposal(plans)
