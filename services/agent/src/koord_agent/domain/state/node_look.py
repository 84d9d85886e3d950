"""One immutable look at the node: everything that a strategy may judge on, gathered once per round.

The shell (`koord_agent.shell.node.node_agent`) builds it after the collectors have run; strategies in `qos/` take it
(or a narrower view made of it) and return plans. Nothing in it changes during a round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from koordcore.values.cpuset import EMPTY, CpuSet
from koordcore.values.resources import Amounts
from koordcore.values.topology import CpuPlace

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, HostApplication
from koord_agent.domain.metrics.metrics_view import Metrics
from koord_agent.domain.state.cpu_pools import CpuPools
from koord_agent.domain.state.pods import AgentPod


@dataclass(frozen=True, kw_only=True)
class NodeLook:
    """The node at now_ms.

    slo                 effective NodeSLO in wire spelling (defaults filled in, switched-off features at their "off"
                        values); None = no valid NodeSLO so far: nothing is enforced and nothing restored
    slo_problem         why the newest NodeSLO was not taken; "" = it was
    capacity, allocatable   of the node object: cpu milli-cores, others whole units
    reserved_milli      max(capacity - allocatable, annotated reservation)
    pods                all pods the agent knows of
    frozen              uids of pods that must not be touched: their newest state is not understood
    topology            online CPUs; empty = unknown
    reserved_cpus       CPUs that the node reservation holds
    system_cpus         CPUs that system QoS holds exclusively
    states              what states of installed packages read last, by name
    kubelet_static      whether the kubelet's CPU manager policy is static
    """

    now_ms: int
    node: str
    layout: CgroupLayout
    cgroup_version: int
    metrics: Metrics
    pods: tuple[AgentPod, ...]
    slo: Mapping[str, Any] | None = None
    slo_problem: str = ""
    capacity: Amounts = field(default_factory=dict[str, int])
    allocatable: Amounts = field(default_factory=dict[str, int])
    reserved_milli: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    frozen: frozenset[str] = frozenset()
    host_applications: tuple[HostApplication, ...] = ()
    topology: tuple[CpuPlace, ...] = ()
    reserved_cpus: CpuSet = EMPTY
    system_cpus: CpuSet = EMPTY
    kubelet_static: bool = False
    pools: CpuPools | None = None
    states: Mapping[str, object] = field(default_factory=dict[str, object])

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a part of the NodeSLO; empty if it is absent."""
        return (self.slo or {}).get(name) or {}

    @cached_property
    def by_uid(self) -> Mapping[str, AgentPod]:
        """The pods by uid."""
        return {pod.uid: pod for pod in self.pods}

    def pod_directory(self, pod: AgentPod) -> str:
        """Cgroup directory of a pod, relative to a hierarchy's root."""
        return self.layout.pod_directory(pod.kube_qos, pod.uid)

    def container_directory(self, pod: AgentPod, container_id: str) -> str:
        """Cgroup directory of a container of a pod. Raises UnknownContainerId."""
        return self.layout.container_directory(pod.kube_qos, pod.uid, container_id)
