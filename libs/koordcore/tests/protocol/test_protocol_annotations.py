"""Single labels and annotations: defaults, exact spellings and refusals beyond the vectors' cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from koordcore.protocol import amplification, keys
from koordcore.protocol.annotations import cpu, devices, gang, node, pods
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import format_resources

Parse = Callable[[Mapping[str, str]], object]


@pytest.mark.parametrize(
    ("parse", "key", "texts"),
    [
        (pods.parse_eviction_cost, keys.EVICTION_COST, ["01", "-01", "1.0", " 1", "2147483648", "0x1", "-", "abc"]),
        (pods.parse_eviction_priority, keys.EVICTION_PRIORITY, ["", "1.0", " 1", "2147483648", "0x1", "1_0"]),
        (gang.parse_gang_wait_time, keys.GANG_WAITING_TIME, ["1", "x", "1 s"]),
        (gang.parse_gang_total_num, keys.GANG_TOTAL_NUMBER, ["x", "1.5", "4294967296"]),
        (gang.parse_network_topology_index, keys.GANG_NETWORK_TOPOLOGY_INDEX, ["x", "", "1.0"]),
        (
            amplification.parse_cpu_normalization_ratio,
            keys.CPU_NORMALIZATION_RATIO,
            ["", "-1", "nan", "inf", "0.0", "1_0", " 1"],
        ),
        (amplification.parse_cpu_normalization_enabled, keys.CPU_NORMALIZATION_ENABLED, ["", "tRUE", "on", "2"]),
        (node.parse_network_bandwidth, keys.NETWORK_BANDWIDTH, ["", "10 G", "10gb"]),
        (
            cpu.parse_pod_cpu_qos,
            keys.CPU_QOS,
            ["", "[]", '{"groupIdentity":-2}', '{"groupIdentity":2.0}', '{"enable":"true"}'],
        ),
        (
            cpu.parse_system_qos_resource,
            keys.SYSTEM_QOS_RESOURCE,
            ["", "{", '{"cpuset":1}', '{"cpusetExclusive":"true"}'],
        ),
        (cpu.parse_kubelet_cpu_manager_policy, keys.KUBELET_CPU_MANAGER_POLICY, ["{", '{"options":{"a":true}}']),
        (
            devices.parse_gpu_partition_spec,
            keys.GPU_PARTITION_SPEC,
            ["{", '{"ringBusBandwidth":"x"}', '{"ringBusBandwidth":true}'],
        ),
        (devices.parse_gpu_partitions, keys.GPU_PARTITIONS, ["{", '{"x":[]}', '{"-1":[]}', f'{{"{"9" * 5000}":[]}}']),
    ],
)
def test_bad_text_is_refused_with_its_key(parse: Parse, key: str, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(InvalidInput) as caught:
            parse({key: text})
        assert caught.value.path.startswith(f"[{key}]"), text


@pytest.mark.parametrize("minors", [[0, 1, 2], [0], [1, 1], [0, 1, 1], []])
def test_a_gpu_partition_whose_minors_are_not_as_many_as_its_key_is_ignored(minors: list[int]) -> None:
    text = f'{{"2":[{{"minors":{minors}}},{{"minors":[4,5]}}],"1":[{{"minors":[7]}}]}}'
    table, ignored = devices.read_gpu_partitions({keys.GPU_PARTITIONS: text})
    assert table is not None
    assert {key: [each.minors for each in partitions] for key, partitions in table.items()} == {2: [(4, 5)], 1: [(7,)]}
    assert [error.path for error in ignored] == [f"[{keys.GPU_PARTITIONS}].2[0].minors"]
    assert "2 different minors" in str(ignored[0])


def test_absent_values() -> None:
    nothing: dict[str, str] = {}
    assert gang.gang_name(nothing, nothing) == ""
    assert gang.gang_match_policy(nothing) == gang.ONCE_SATISFIED
    assert gang.parse_gang_wait_time(nothing) == 0
    assert amplification.parse_cpu_normalization_ratio(nothing) is None
    assert node.parse_network_bandwidth(nothing) is None
    assert node.parse_third_party_allocated(nothing, "koord-batch") == {}
    assert cpu.parse_pod_cpu_qos(nothing) is None
    assert cpu.parse_system_qos_resource(nothing) is None
    assert cpu.core_sched(nothing) == cpu.CoreSched("", cpu.CoreSchedPolicy.DEFAULT)
    assert cpu.node_cpu_bind_policy(nothing) is cpu.NodeCpuBindPolicy.NONE
    assert devices.parse_gpu_partition_spec(nothing) is None
    assert not pods.is_eviction_enabled(nothing)
    assert not pods.is_quota_non_preemptible(nothing)


def test_empty_own_match_policy_falls_to_the_alias() -> None:
    entries = {keys.GANG_MATCH_POLICY: "", keys.GANG_MATCH_POLICY_ALIAS: gang.WAITING_AND_RUNNING}
    assert gang.gang_match_policy(entries) == gang.WAITING_AND_RUNNING
    assert gang.gang_match_policy(entries | {keys.GANG_MATCH_POLICY: "always"}) == gang.ONCE_SATISFIED


def test_gang_total_is_never_below_its_minimum() -> None:
    assert [gang.gang_total_num({keys.GANG_TOTAL_NUMBER: text}, 3) for text in ("", "x", "2", "5")] == [3, 3, 3, 5]
    assert gang.gang_total_num({}, 3) == 3


def test_pod_group_label_gives_the_minimum_before_the_annotation() -> None:
    annotations = {keys.GANG_MIN_AVAILABLE: "2"}
    assert gang.parse_gang_min_num({keys.POD_GROUP_MIN_AVAILABLE: "4"}, annotations) == 4
    assert gang.parse_gang_min_num({keys.POD_GROUP_MIN_AVAILABLE: ""}, annotations) == 2


def test_present_but_empty_scheduler_label_wins() -> None:
    assert pods.scheduler_name({keys.SCHEDULER_NAME: ""}, "s1") == ""
    assert pods.scheduler_name({}, "s1") == "s1"


@pytest.mark.parametrize("text", ["never", "", "Always"])
def test_inexact_preemption_policy_is_not_set(text: str) -> None:
    assert pods.preemption_policy({keys.PREEMPTION_POLICY: text}) is None
    assert pods.preemption_policy_or_never({keys.PREEMPTION_POLICY: text}) == "Never"


@pytest.mark.parametrize(
    ("policy", "option", "expected"),
    [("static", "false", "None"), ("none", "true", "None"), ("static", "true", "FullPCPUsOnly")],
)
def test_kubelet_binds_whole_cores_only_when_static_and_told_so(policy: str, option: str, expected: str) -> None:
    kubelet = cpu.KubeletCpuManagerPolicy(policy=policy, options={"full-pcpus-only": option})
    assert cpu.node_cpu_bind_policy({}, kubelet) == expected


def test_third_party_entries_of_other_classes_are_left_out_but_must_be_readable() -> None:
    entries = ",".join(f'{{"priority":"koord-mid","resources":{{"a":"{amount}"}}}}' for amount in (1, 2))
    good = f'{{"allocations":[{entries}]}}'
    assert format_resources(node.parse_third_party_allocated({keys.THIRD_PARTY_ALLOCATIONS: good}, "koord-mid")) == {
        "a": "3"
    }
    assert node.parse_third_party_allocated({keys.THIRD_PARTY_ALLOCATIONS: good}, "koord-batch") == {}
    with pytest.raises(InvalidInput):
        node.parse_third_party_allocated({keys.THIRD_PARTY_ALLOCATIONS: good.replace('"2"', '"x"')}, "koord-batch")


def test_system_qos_and_cpu_qos_values() -> None:
    found = cpu.parse_system_qos_resource({keys.SYSTEM_QOS_RESOURCE: '{"CPUSet":"0-1","cpusetExclusive":false}'})
    assert found == cpu.SystemQosResource(cpuset="0-1", exclusive=False)
    assert cpu.parse_pod_cpu_qos({keys.CPU_QOS: '{"groupIdentity":null,"coreExpeller":true}'}) == cpu.CpuQos(
        core_expeller=True
    )


def test_every_key_is_spelled_once() -> None:
    texts = [value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)]
    assert len(texts) == len(set(texts))
    assert all(text == text.strip() and text for text in texts)
