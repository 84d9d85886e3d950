"""The plug-ins of the stages, run in order under a failure policy, and their registration with a CRI proxy.

Each plug-in is a pure function of a call and the rules of the node. Their rules are in `domain.strategies` if a cycle
of the agent sets the same values.

Source: runtime spec, 2.2, 2.7, 2.9, 3. Vectors: registration.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.qos import QosClass
from koordcore.values.invalid import InvalidInput

from koord_agent.domain import gate_names as gates
from koord_agent.domain.failure import failure
from koord_agent.domain.gate_names import RESCTRL
from koord_agent.domain.hooks.allocated_devices import gpu_injection, rdma_devices
from koord_agent.domain.hooks.call import NOTHING, HookCall, HookRules, HookValues, Mode, Stage
from koord_agent.domain.hooks.resctrl import group_name, pod_schemata
from koord_agent.domain.strategies.cpuset import container_cpuset, owned_quota_us
from koord_agent.domain.strategies.group_identity import pod_bvt
from koord_agent.domain.strategies.pod_resources import batch_pod, batch_values, normalized_quota_us

Decide = Callable[[HookCall, HookRules], HookValues]
"""Returns what a plug-in sets. Raises InvalidInput if it fails; then it sets nothing."""
_CONTAINER: Final = (Stage.PRE_CREATE_CONTAINER, Stage.PRE_UPDATE_CONTAINER)
_POD_AND_CONTAINER: Final = (Stage.PRE_RUN_POD_SANDBOX, *_CONTAINER)
REGISTRATION_FILE: Final = "koordlet.json"


@dataclass(frozen=True, slots=True)
class HookPlugin:
    name: str  # Name of the plug-in. Plug-ins of a stage run in the order of their names, by byte.
    gate: str
    stages: tuple[Stage, ...]
    decide: Decide


def _batch_resource(call: HookCall, rules: HookRules) -> HookValues:
    if call.pod.qos_label != QosClass.BE:
        return NOTHING
    batch = batch_pod(rules.pods.get(call.pod.uid), call.pod.annotations)
    if batch is None:
        return NOTHING
    amounts = batch.of_pod if call.container is None else batch.containers.get(call.container.name)
    if amounts is None:
        return NOTHING
    found = batch_values(amounts, ratio=rules.ratio, is_suppressed_by_quota=rules.be_unlimited)
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


class FailurePolicy(StrEnum):
    """Effect of a hook that fails. IGNORE: the other hooks run. FAIL: the call ends with the error."""

    IGNORE = "Ignore"
    FAIL = "Fail"


@dataclass(frozen=True, slots=True)
class HookDone:
    plugin: str
    values: HookValues
    error: str = ""  # Why it failed; "" for success. A plug-in that fails sets nothing.
    seconds: float = 0.0  # How long it ran, by the clock of the caller


@dataclass(frozen=True, slots=True)
class StageResult:
    values: HookValues  # Values that all plug-ins together set. If `failed` is set, they must not be used.
    done: tuple[HookDone, ...]  # Result of each plug-in that ran, in order
    failed: str = ""  # Name of the plug-in whose failure ended the call; "" for none. Only the policy FAIL ends a call.

    @property
    def error(self) -> str:
        """Error text of the plug-in that ended the call, for the caller; "" if the call succeeded."""
        return next((f"{one.plugin}: {one.error}" for one in self.done if one.plugin == self.failed), "")


def enabled_plugins(is_enabled: Callable[[str], bool], *, has_resctrl: bool = False) -> tuple[HookPlugin, ...]:
    """In the order in which they run. Without `has_resctrl`, the plug-in Resctrl is left out."""
    return tuple(one for one in PLUGINS if is_enabled(one.gate) and (one.gate != RESCTRL or has_resctrl))


def stages_of(plugins: Iterable[HookPlugin]) -> frozenset[Stage]:
    return frozenset(stage for plugin in plugins for stage in plugin.stages)


def run_stage(
    plugins: Sequence[HookPlugin],
    call: HookCall,
    rules: HookRules,
    policy: FailurePolicy,
    *,
    clock: Callable[[], float] = lambda: 0.0,
) -> StageResult:
    """Return the values of all plug-ins that did not fail. A later plug-in overrides the values of an earlier one.

    If a plug-in fails under the policy FAIL, the plug-ins after it do not run, and `failed` names it. `clock` returns
    seconds, to measure the plug-ins.
    """
    values, done = NOTHING, list[HookDone]()
    for plugin in plugins:
        if call.stage not in plugin.stages:
            continue
        began = clock()
        try:
            decided = plugin.decide(call, rules)
        except Exception as error:  # noqa: BLE001 - under the policy Ignore, no plug-in keeps a pod from starting
            reason = str(error) if isinstance(error, InvalidInput) else failure("", error)
            done.append(HookDone(plugin.name, NOTHING, reason, clock() - began))
            if policy is FailurePolicy.FAIL:
                return StageResult(values, tuple(done), failed=plugin.name)
            continue
        done.append(HookDone(plugin.name, decided, seconds=clock() - began))
        values = values.then(decided)
    return StageResult(values, tuple(done))


def registration(
    stages: Iterable[Stage], *, endpoint: str, policy: FailurePolicy, disabled: Collection[str] = ()
) -> str:
    """Return the text of the file that registers the agent's hook server with CRI proxies.

    Args:
        endpoint: Path of the socket, as a proxy on the machine sees it.
        policy: How a proxy reacts if a call fails.
        disabled: Stages to leave out, from the flag -runtime-hooks-disable-stages.
    """
    content = {
        "remote-endpoint": endpoint,
        "failure-policy": policy.value,
        "runtime-hooks": sorted(stage.value for stage in stages if stage.value not in disabled),
    }
    return json.dumps(content, indent="\t")
