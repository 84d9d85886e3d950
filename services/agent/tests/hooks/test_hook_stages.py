"""The hook framework: order, failure policy, what survives a failed hook, and what the proxy mode cannot carry."""

import json
from collections.abc import Sequence
from dataclasses import replace

from koord_agent.domain.hooks.call import (
    NOTHING,
    HookCall,
    HookedContainer,
    HookedPod,
    HookRules,
    HookValues,
    Mode,
    Stage,
)
from koord_agent.domain.hooks.plugins import PLUGINS, FailurePolicy, enabled_plugins, run_stage
from koord_agent.domain.node.pods import agent_pod_of_ledger
from koordcore.events.node_ledger import PodOnNode
from koordcore.protocol import keys
from koordcore.values.allocation import Allocation


class Files:
    """A machine with one RDMA device, whose character device is missing."""

    def character_device(self, path: str) -> tuple[int, int] | None:
        return (10, 58) if path.endswith("rdma_cm") else None

    def rdma_names(self, pci_address: str) -> Sequence[str]:
        return ("uverbs0",) if pci_address == "0000:09:00.0" else ()


def call(mode: Mode = Mode.PROXY, *, annotations: dict[str, str], labels: dict[str, str] | None = None) -> HookCall:
    pod = HookedPod(name="p", namespace="d", uid="u1", labels=labels or {}, annotations=annotations)
    return HookCall(mode=mode, stage=Stage.PRE_CREATE_CONTAINER, pod=pod, container=HookedContainer(name="main"))


def test_plugins_run_in_the_byte_order_of_their_names() -> None:
    names = [plugin.name for plugin in PLUGINS]
    assert names == sorted(names, key=str.encode)


def test_resctrl_is_not_registered_on_a_machine_without_it() -> None:
    assert "Resctrl" not in [plugin.name for plugin in enabled_plugins(lambda _: True)]
    assert "Resctrl" in [plugin.name for plugin in enabled_plugins(lambda _: True, has_resctrl=True)]


def test_plugin_that_fails_halfway_leaves_nothing_of_its_own_and_all_of_the_others() -> None:
    text = json.dumps({"gpu": [{"minor": 2}], "rdma": [{"id": "0000:09:00.0"}]})
    one = call(Mode.NRI, annotations={keys.DEVICE_ALLOCATED: text})
    result = run_stage(enabled_plugins(lambda _: True), one, HookRules(devices=Files()), FailurePolicy.IGNORE)
    assert result.values.devices == (), "rdma_cm alone would be a partial result"
    assert dict(result.values.envs) == {"NVIDIA_VISIBLE_DEVICES": "2"}
    assert (result.failed, result.error) == ("", "")
    assert "/dev/infiniband/uverbs0" in result.done[-1].error


def test_plugin_with_an_error_that_nobody_expected_keeps_no_pod_from_starting() -> None:
    def broken(*_: object) -> HookValues:
        raise KeyError("what nobody thought of")

    first, *others = enabled_plugins(lambda _: True)
    plugins = (replace(first, decide=broken), *others)
    one = call(annotations={keys.DEVICE_ALLOCATED: json.dumps({"gpu": [{"minor": 2}]})})
    ignored = run_stage(plugins, one, HookRules(), FailurePolicy.IGNORE)
    assert (ignored.failed, dict(ignored.values.envs)) == ("", {"NVIDIA_VISIBLE_DEVICES": "2"})
    assert ignored.done[0].error.startswith("KeyError: 'what nobody thought of' (test_hook_stages.py:")
    assert run_stage(plugins, one, HookRules(), FailurePolicy.FAIL).failed == first.name


def test_pod_without_devices_passes_all_plugins_on_a_machine_without_devices() -> None:
    result = run_stage(enabled_plugins(lambda _: True), call(annotations={}), HookRules(), FailurePolicy.FAIL)
    assert (result.failed, len(result.done)) == ("", 5)


def test_policy_fail_ends_the_call_with_the_reason() -> None:
    one = call(annotations={keys.RESOURCE_STATUS: "{"})
    result = run_stage(enabled_plugins(lambda _: True), one, HookRules(), FailurePolicy.FAIL)
    assert result.failed == "CPUNormalization"
    assert result.error.startswith("CPUNormalization: ")
    assert [done.plugin for done in result.done] == ["BatchResource", "CPUNormalization"]


def test_shared_card_of_hami_core_is_not_injected_without_mounts() -> None:
    amounts = {"koordinator.sh/gpu-memory-ratio": "50", "koordinator.sh/gpu-memory": "1Gi"}
    text = json.dumps({"gpu": [{"minor": 1, "resources": amounts}]})
    labels = {keys.GPU_ISOLATION_PROVIDER: "HAMi-core"}
    plugins = enabled_plugins(lambda name: name == "GPUEnvInject")
    found = {
        mode: run_stage(
            plugins,
            call(mode, annotations={keys.DEVICE_ALLOCATED: text}, labels=labels),
            HookRules(),
            FailurePolicy.IGNORE,
        ).values
        for mode in (Mode.PROXY, Mode.NRI)
    }
    assert dict(found[Mode.PROXY].envs) == {"NVIDIA_VISIBLE_DEVICES": "1"}
    assert "HAMi-core is not injected" in found[Mode.PROXY].problem
    assert "LD_PRELOAD" in found[Mode.NRI].envs
    assert found[Mode.NRI].problem == ""


def test_allocation_that_the_agent_knows_counts_for_a_pod_whose_annotations_lack_it() -> None:
    entry = PodOnNode(
        uid="u1",
        namespace="d",
        name="p",
        qos="LSR",
        kube_qos="Guaranteed",
        priority_class="koord-prod",
        requests={"cpu": 2000},
        allocation=Allocation(cpuset="2-3"),
    )
    rules = HookRules(pods={"u1": agent_pod_of_ledger(entry)})
    plugins = enabled_plugins(lambda name: name == "CPUSetAllocator")
    labels = {keys.QOS_CLASS: "LSR"}
    known = run_stage(plugins, call(annotations={}, labels=labels), rules, FailurePolicy.FAIL).values
    assert (known.cpuset, known.cfs_quota_us) == ("2-3", -1)
    written = {keys.RESOURCE_STATUS: '{"cpuset":"6"}'}
    assert run_stage(plugins, call(annotations=written, labels=labels), rules, FailurePolicy.FAIL).values.cpuset == "6"


def test_later_values_override_earlier_ones_and_collections_are_merged() -> None:
    first = HookValues(cpu_shares=2, cfs_quota_us=5000, envs={"A": "1", "B": "1"})
    second = HookValues(cfs_quota_us=-1, cpuset="", envs={"B": "2"})
    both = first.then(second)
    assert (both.cpu_shares, both.cfs_quota_us, both.cpuset, dict(both.envs)) == (2, -1, "", {"A": "1", "B": "2"})
    assert NOTHING.then(first).then(NOTHING) == first
