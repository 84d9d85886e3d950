"""Memory QoS of all pods of a node as plans, handed over when something changed and once in a while.

The values are computed by `memory_qos`. Source: agent spec, 14.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from koordcore.protocol.pod_resources import MEMORY

from koord_agent.domain.hooks.memory_qos import PLUGIN, Values, class_settings, memory_values
from koord_agent.domain.kernel.cgroup_layout import UnknownContainerId
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentPod

RENEW_AFTER_MS = 30_000
AUDIT_REASON = "UpdateMemory"


@dataclass(slots=True)
class MemoryBook:
    """When the plans of a node were handed over last, and for which pods. Owned by its agent."""

    page_size: int = 4096
    _pods: tuple[AgentPod, ...] = ()
    _section: Mapping[str, Any] | None = None
    _at_ms: int = 0

    def plans(self, look: NodeLook, section: Mapping[str, Any], *, ttl_ms: int) -> tuple[Plan, ...]:
        """Plans for every memory.* file that the settings name; none while nothing changed and they are fresh.

        section   `resourceQOSStrategy` in wire spelling
        """
        same_pods = len(self._pods) == len(look.pods) and all(
            old is new for old, new in zip(self._pods, look.pods, strict=True)
        )
        if same_pods and self._section is section and 0 <= look.now_ms - self._at_ms < RENEW_AFTER_MS:
            return ()
        self._pods, self._section, self._at_ms = look.pods, section, look.now_ms
        values = memory_values(
            class_settings(section),
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
                    ttl_ms=ttl_ms,
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
        return tuple(plans)
