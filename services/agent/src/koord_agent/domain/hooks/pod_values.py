"""Compute every kernel value of a pod and of its containers from the last snapshot of the node alone.

They are pure functions of the pod, the NodeSLO and the node. So a hook server can answer with them at once, without
waiting for a cycle. The strategies of the cycle use the same functions. Source: runtime spec, 2.2 to 2.6.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from koordcore.protocol import keys
from koordcore.protocol.qos import QosClass
from koordcore.protocol.resource_names import CPU
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.batch_resource import (
    batch_containers,
    container_batch_values,
    is_suppressed_by_quota,
    pod_batch_values,
)
from koord_agent.domain.hooks.cpu_burst import burst_value_us, is_managed, policy_of_pod
from koord_agent.domain.hooks.cpu_normalization import normalization_ratio, normalized_quota_us
from koord_agent.domain.hooks.cpuset import (
    CpusetRule,
    ResourceStatus,
    container_cpuset,
    cpuset_rule_of,
    owned_quota_us,
    status_of_pod,
)
from koord_agent.domain.hooks.group_identity import BvtRule, bvt_rule, pod_bvt
from koord_agent.domain.hooks.memory_qos import Values, class_settings, pod_memory
from koord_agent.domain.hooks.oom_score import oom_score_adj
from koord_agent.domain.hooks.pod_resctrl import group_name
from koord_agent.domain.hooks.resctrl import enabled_classes, group_of_pod
from koord_agent.domain.kernel.cgroup_files import milli_to_quota_us
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentContainer, AgentPod

PAGE_BYTES = 4096
_RESOURCE_QOS = "resourceQOSStrategy"


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupValues:
    """Values for the files of one cgroup. None means that the file must not be changed.

    Attributes:
        bvt: Value of cpu.bvt_warp_ns.
        cpu_shares: Value of cpu.shares.
        cfs_quota_us: Value of cpu.cfs_quota_us; -1 means unlimited.
        cfs_burst_us: Value of cpu.cfs_burst_us.
        cpuset: Value of cpuset.cpus; "" clears it.
        memory_limit_bytes: Value of memory.limit_in_bytes; -1 means unlimited.
        oom_score_adj: oom_score_adj of every process of a container.
        memory: File of memory QoS -> its value.
    """

    bvt: int | None = None
    cpu_shares: int | None = None
    cfs_quota_us: int | None = None
    cfs_burst_us: int | None = None
    cpuset: str | None = None
    memory_limit_bytes: int | None = None
    oom_score_adj: int | None = None
    memory: Values = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class PodValues:
    """Values of a pod and of its containers.

    Attributes:
        pod: Values for the directory of the pod.
        containers: Container name -> values.
        resctrl_group: Name of the resctrl group for its threads. None if there is none.
        problems: Invalid annotations. The values that depend on them are None.
    """

    pod: CgroupValues
    containers: Mapping[str, CgroupValues]
    resctrl_group: str | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRules:
    """Settings of the NodeSLO and the node, parsed once for the values of all pods.

    Attributes:
        bvt: Group identities of the QoS classes.
        memory: QoS class -> memory QoS settings.
        burst: `cpuBurstStrategy` as JSON.
        cpuset: CPUs that each kind of pods may use. None if not known.
        ratio: CPU normalization ratio of the node. None if there is none.
        be_unlimited: Whether CPU suppression limits the best-effort class by its quota.
        resctrl_classes: QoS classes whose resctrl group is enabled.
        allocatable_memory_bytes: Allocatable memory of the node in bytes.
    """

    bvt: BvtRule
    memory: Mapping[str, Any]
    burst: Mapping[str, Any]
    cpuset: CpusetRule | None
    ratio: float | None
    be_unlimited: bool
    resctrl_classes: tuple[str, ...]
    allocatable_memory_bytes: int


def node_rules(look: NodeLook) -> NodeRules:
    """Parse the settings in a snapshot of the node that all pods share.

    Raises:
        InvalidInput: The NodeSLO is invalid.
    """
    qos = look.section(_RESOURCE_QOS)
    return NodeRules(
        bvt=bvt_rule(qos),
        memory=class_settings(qos),
        burst=look.section("cpuBurstStrategy"),
        cpuset=cpuset_rule_of(look.pools, look.annotations, is_static=look.kubelet_static),
        ratio=normalization_ratio(look.annotations),
        be_unlimited=is_suppressed_by_quota(look.section("resourceUsedThresholdWithBE")),
        resctrl_classes=enabled_classes(qos),
        allocatable_memory_bytes=look.allocatable.get("memory", 0),
    )


def values_of_pod(
    pod: AgentPod, rules: NodeRules, *, unsets_quota: bool = True, be_by_manager: bool = False
) -> PodValues:
    """Return all kernel values of a pod and of its containers.

    Args:
        pod: The pod. Its containers may be unknown.
        rules: Settings of the node, from `node_rules`.
        unsets_quota: Whether pods that own CPUs get no CPU quota; False with the flag -disable-unset-cpu-quota.
        be_by_manager: Whether the gate BECPUManager is on.
    """
    problems: list[str] = []
    status, cpuset = ResourceStatus(), None
    try:
        status = status_of_pod(pod)
        cpuset = container_cpuset(rules.cpuset, pod.qos_label, pod.kube_qos, status, be_by_manager=be_by_manager)
    except InvalidInput as error:
        problems.append(str(error))
    bvt = None
    try:
        bvt = pod_bvt(rules.bvt, pod.qos_label, pod.kube_qos, pod.annotations)
    except InvalidInput as error:
        problems.append(str(error))
    batch = batch_containers(pod.containers, pod.annotations) if pod.qos_label == QosClass.BE else None
    memory = pod_memory(pod, rules.memory, rules.allocatable_memory_bytes, PAGE_BYTES)
    burst = policy_of_pod(pod, rules.burst) if is_managed(pod) else None
    owned = owned_quota_us(status, unsets=unsets_quota)

    def of_container(container: AgentContainer) -> CgroupValues:
        limit_milli = container.limits.get(CPU, 0)
        one = None if batch is None else batch.get(container.name)
        found = (
            None
            if one is None
            else container_batch_values(one, ratio=rules.ratio, is_suppressed_by_quota=rules.be_unlimited)
        )
        normalized = normalized_quota_us(rules.ratio, pod.qos_label, status, milli_to_quota_us(limit_milli))
        return CgroupValues(
            bvt=bvt,
            cpu_shares=None if found is None else found.cpu_shares,
            cfs_quota_us=_first(owned, None if found is None else found.cfs_quota_us, normalized),
            cfs_burst_us=None if burst is None else burst_value_us(burst, limit_milli),
            cpuset=cpuset,
            memory_limit_bytes=None if found is None else found.memory_limit_bytes,
            oom_score_adj=oom_score_adj(pod.annotations, container.name),
            memory={} if memory is None else memory.containers.get(container.name, {}),
        )

    containers = {container.name: of_container(container) for container in pod.containers if not container.is_init}
    of_pod = (
        None if batch is None else pod_batch_values(batch, ratio=rules.ratio, is_suppressed_by_quota=rules.be_unlimited)
    )
    normalized = normalized_quota_us(rules.ratio, pod.qos_label, status, milli_to_quota_us(pod.limits.get(CPU, 0)))
    return PodValues(
        pod=CgroupValues(
            bvt=bvt,
            cpu_shares=None if of_pod is None else of_pod.cpu_shares,
            cfs_quota_us=_first(owned, None if of_pod is None else of_pod.cfs_quota_us, normalized),
            cfs_burst_us=None if burst is None else sum(one.cfs_burst_us or 0 for one in containers.values()),
            memory_limit_bytes=None if of_pod is None else of_pod.memory_limit_bytes,
            memory={} if memory is None else memory.pod,
        ),
        containers=containers,
        resctrl_group=group_name(pod.uid)
        if keys.RESCTRL in pod.annotations
        else group_of_pod(pod, rules.resctrl_classes),
        problems=tuple(problems),
    )


def _first(*values: int | None) -> int | None:
    """Return the first value that is set. The quota of a pod that owns CPUs takes precedence."""
    return next((value for value in values if value is not None), None)
