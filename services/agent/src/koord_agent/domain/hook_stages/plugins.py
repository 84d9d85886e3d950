"""The plug-ins of the stages: each is a pure function of a call and the rules of the node.

Source: runtime spec, 2.2, 2.9, 3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.qos import QosClass

from koord_agent.domain import gate_names as gates
from koord_agent.domain.hook_stages.call import HookCall, HookRules
from koord_agent.domain.hook_stages.stages import Mode, Stage
from koord_agent.domain.hook_stages.values import NOTHING, HookValues
from koord_agent.domain.hooks.allocated_devices import gpu_injection, rdma_devices
from koord_agent.domain.hooks.batch_resource import batch_containers, container_batch_values, pod_batch_values
from koord_agent.domain.hooks.cpu_normalization import normalized_quota_us
from koord_agent.domain.hooks.cpuset import container_cpuset, owned_quota_us
from koord_agent.domain.hooks.group_identity import pod_bvt
from koord_agent.domain.hooks.pod_resctrl import group_name, pod_schemata

Decide = Callable[[HookCall, HookRules], HookValues]
"""Returns what a plug-in sets. Raises InvalidInput if it fails; then it sets nothing."""


@dataclass(frozen=True, slots=True)
class HookPlugin:
    """A hook plug-in: computes values for a pod or container at some stages.

    Attributes:
        name: Name of the plug-in. Plug-ins of a stage run in the order of their names, by byte.
        gate: Feature gate that enables it.
        stages: Stages at which it runs.
        decide: Returns the values that the plug-in sets.
    """

    name: str
    gate: str
    stages: tuple[Stage, ...]
    decide: Decide


def _batch_resource(call: HookCall, rules: HookRules) -> HookValues:
    if call.pod.qos_label != QosClass.BE:
        return NOTHING
    known = rules.pods.get(call.pod.uid) if call.mode is Mode.RECONCILER else None
    batch = batch_containers(() if known is None else known.containers, call.pod.annotations)
    if batch is None:
        return NOTHING
    if call.container is None:
        found = pod_batch_values(batch, ratio=rules.ratio, is_suppressed_by_quota=rules.be_unlimited)
    elif call.container.name in batch:
        one = batch[call.container.name]
        found = container_batch_values(one, ratio=rules.ratio, is_suppressed_by_quota=rules.be_unlimited)
    else:
        return NOTHING
    return HookValues(
        cpu_shares=found.cpu_shares, cfs_quota_us=found.cfs_quota_us, memory_limit_bytes=found.memory_limit_bytes
    )


def _cpu_normalization(call: HookCall, rules: HookRules) -> HookValues:
    if call.container is None:
        return NOTHING
    quota = normalized_quota_us(rules.ratio, call.pod.qos_label, call.status(rules), call.container.before.cfs_quota_us)
    return HookValues(cfs_quota_us=quota)


def _cpuset_allocator(call: HookCall, rules: HookRules) -> HookValues:
    status = call.status(rules)
    quota = owned_quota_us(status, unsets=rules.options.unsets_quota)
    if call.container is None:
        return HookValues(cfs_quota_us=quota)
    cpus = container_cpuset(
        rules.cpuset, call.pod.qos_label, call.pod.kube_qos, status, be_by_manager=rules.options.be_by_manager
    )
    return HookValues(cpuset=cpus, cfs_quota_us=quota)


def _group_identity(call: HookCall, rules: HookRules) -> HookValues:
    value = pod_bvt(rules.bvt, call.pod.qos_label, call.pod.kube_qos, call.pod.annotations)
    return HookValues(bvt=value if rules.bvt_kernel.takes(rules.bvt) else None)


def _resctrl(call: HookCall, rules: HookRules) -> HookValues:
    text = call.pod.annotations.get(keys.RESCTRL)
    if not text or rules.resctrl is None:
        return NOTHING
    group = group_name(call.pod.uid)
    if call.stage is not Stage.PRE_RUN_POD_SANDBOX:
        return HookValues(resctrl_group=group)
    machine = rules.resctrl
    schemata = pod_schemata(text, cbm_mask=machine.cbm_mask, cache_ids=machine.cache_ids, vendor=machine.vendor)
    return HookValues(resctrl_group=group, resctrl_schemata=schemata)


def _gpu_env(call: HookCall, rules: HookRules) -> HookValues:
    container = "" if call.container is None else call.container.name
    found = gpu_injection(
        call.pod.labels,
        call.annotations(rules),
        pod_uid=call.pod.uid,
        container=container,
        library=rules.options.hami_library,
        is_monitored=rules.options.is_gpu_monitored,
        can_mount=call.mode is Mode.NRI,
    )
    return HookValues(envs=found.envs, mounts=found.mounts, host_dir=found.host_dir, problem=found.problem)


def _rdma_device(call: HookCall, rules: HookRules) -> HookValues:
    return HookValues(devices=rdma_devices(call.annotations(rules), rules.devices))


_CONTAINER: Final = (Stage.PRE_CREATE_CONTAINER, Stage.PRE_UPDATE_CONTAINER)
_POD_AND_CONTAINER: Final = (Stage.PRE_RUN_POD_SANDBOX, *_CONTAINER)
PLUGINS: Final = (
    HookPlugin("BatchResource", gates.BATCH_RESOURCE, _POD_AND_CONTAINER, _batch_resource),
    HookPlugin("CPUNormalization", gates.CPU_NORMALIZATION, _CONTAINER, _cpu_normalization),
    HookPlugin("CPUSetAllocator", gates.CPUSET_ALLOCATOR, _POD_AND_CONTAINER, _cpuset_allocator),
    HookPlugin("GroupIdentity", gates.GROUP_IDENTITY, (Stage.PRE_RUN_POD_SANDBOX,), _group_identity),
    HookPlugin(
        "Resctrl",
        gates.RESCTRL,
        (Stage.PRE_RUN_POD_SANDBOX, Stage.PRE_CREATE_CONTAINER, Stage.PRE_REMOVE_POD_SANDBOX),
        _resctrl,
    ),
    HookPlugin("gpu env inject", gates.GPU_ENV_INJECT, (Stage.PRE_CREATE_CONTAINER,), _gpu_env),
    HookPlugin("rdma device inject", gates.RDMA_DEVICE_INJECT, (Stage.PRE_CREATE_CONTAINER,), _rdma_device),
)
"""All plug-ins of stages in the order of their names, by byte."""
