"""An immutable snapshot of the node, called *look*: all inputs of strategies and hooks, gathered once per cycle.

`koord_agent.shell.node.measure` builds it after the collectors have run. It does not change during a cycle. The next
cycle replaces it as a whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from koordcore.values.cpuset import EMPTY, CpuSet
from koordcore.values.resources import CPU, Amounts
from koordcore.values.topology import CpuPlace

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, HostApplication, UnknownContainerId
from koord_agent.domain.metrics.series import Metrics
from koord_agent.domain.node.cpu_pools import CpuPools
from koord_agent.domain.node.pods import AgentContainer, AgentPod


@dataclass(frozen=True, kw_only=True)
class NodeLook:
    """An immutable snapshot of the node at the time `now_ms`: all inputs of strategies and hooks."""

    now_ms: int
    node: str
    layout: CgroupLayout
    cgroup_version: int  # 1 or 2
    metrics: Metrics  # Time series up to `now_ms`
    pods: tuple[AgentPod, ...]  # All pods that the agent knows of
    # NodeSLO as JSON, with defaults, and with "off" values for disabled features. None: no valid NodeSLO so far, so
    # nothing is limited and nothing restored.
    slo: Mapping[str, Any] | None = None
    slo_problem: str = ""  # What of the newest NodeSLO is invalid; "": nothing is
    # Capacity of the node object: CPU in milli-cores, other resources in whole units.
    capacity: Amounts = field(default_factory=dict[str, int])
    allocatable: Amounts = field(default_factory=dict[str, int])  # Allocatable of the node object, in the same units
    reserved_milli: int = 0  # Milli-cores: max(capacity - allocatable, annotated reservation)
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    # Whether no pod is missing. False until the kubelet, if it is asked, has listed its pods for the first time: those
    # of the log have no annotations, and some pods are not in the log.
    has_all_pods: bool = True
    # UIDs of pods that must not be changed, because their newest version is invalid or unknown.
    frozen: frozenset[str] = frozenset()
    host_applications: tuple[HostApplication, ...] = ()  # Processes outside of Kubernetes that the NodeSLO names
    topology: tuple[CpuPlace, ...] = ()  # Online CPUs; empty = unknown
    reserved_cpus: CpuSet = EMPTY  # CPUs of the node reservation, and those that the kubelet keeps free of containers
    system_cpus: CpuSet = EMPTY  # CPUs that system QoS uses exclusively
    kubelet_static: bool = False
    pools: CpuPools | None = None  # CPUs of each kind of pods; None if unknown
    # Name -> last value of a state of an installed package.
    states: Mapping[str, object] = field(default_factory=dict[str, object])

    def section(self, name: str) -> Mapping[str, Any]:
        """A section of the NodeSLO as JSON; empty if it is absent or there is no NodeSLO."""
        return (self.slo or {}).get(name) or {}

    @property
    def cpu_count(self) -> int:
        """Online CPUs; those of the node object if the topology is unknown, and 0 if both are."""
        return len(self.topology) or self.capacity.get(CPU, 0) // 1000

    @cached_property
    def by_uid(self) -> Mapping[str, AgentPod]:
        return {pod.uid: pod for pod in self.pods}

    @cached_property
    def by_cgroup_uid(self) -> Mapping[str, AgentPod]:
        """Pods by the UID that the kubelet and the container runtime have of them."""
        return {pod.cgroup_uid: pod for pod in self.pods}

    def pod_directory(self, pod: AgentPod) -> str:
        return self.layout.pod_directory(pod.kube_qos, pod.cgroup_uid)

    def has_same_pods(self, pods: Sequence[AgentPod]) -> bool:
        """Whether its pods are these objects, in this order. Pods that did not change are kept from cycle to cycle."""
        return len(pods) == len(self.pods) and all(old is new for old, new in zip(pods, self.pods, strict=True))

    def created_containers(self, pod: AgentPod) -> Iterator[tuple[AgentContainer, str]]:
        """Containers that exist, with their directories, ephemeral ones last. Those of an unknown runtime are left out.

        None if they run in a virtual machine: the node has no cgroups of them.
        """
        if pod.is_in_vm:
            return
        for container in pod.created:
            try:
                directory = self.container_directory(pod, container.container_id)
            except UnknownContainerId:
                continue
            yield container, directory

    def container_directory(self, pod: AgentPod, container_id: str) -> str:
        """Raises UnknownContainerId: The runtime in the id is unknown."""
        return self.layout.container_directory(pod.kube_qos, pod.cgroup_uid, container_id)
