"""The ConfigMap as a value: what is kept on rejection, typed strategies, NodeSLO, and the cost for many nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from koordcore.protocol.config.config_map import NodeStrategies, default_config, read_config_map
from koordcore.protocol.config.node_slo import complete_node_slo, render_node_slo, update_extensions
from koordcore.protocol.config.sections import (
    SECTIONS,
    AggregatePolicy,
    CalculatePolicy,
    ColocationStrategy,
    MemoryCollectPolicy,
    SectionName,
)

Document = dict[str, Any]

IDLE = {SectionName.COLOCATION, SectionName.CPU_NORMALIZATION, SectionName.RESOURCE_AMPLIFICATION}


def texts(**sections: Document) -> dict[str, str]:
    return {f"{name.replace('_', '-')}-config": json.dumps(value) for name, value in sections.items()}


def test_missing_config_map_means_defaults_with_colocation_in_error() -> None:
    reading = read_config_map(None, None)
    assert reading.config == default_config(colocation_error=True)
    assert reading.rejections == ()
    assert reading.changed == frozenset(SectionName)
    assert read_config_map(reading.config, {}).config == default_config()


def test_absent_keys_mean_defaults_without_error() -> None:
    assert read_config_map(None, {"unknown-config": "{"}).config == default_config()


def test_same_data_changes_nothing() -> None:
    data = texts(colocation={"enable": True})
    first = read_config_map(None, data)
    second = read_config_map(first.config, dict(data))
    assert (second.config, second.changed) == (first.config, frozenset())


def test_only_changed_sections_are_named() -> None:
    first = read_config_map(None, texts(colocation={"enable": True}))
    second = read_config_map(
        first.config, texts(colocation={"enable": True}, cpu_burst={"clusterStrategy": {"policy": "auto"}})
    )
    assert second.changed == {SectionName.CPU_BURST}
    # other text, same meaning
    third = read_config_map(second.config, {**texts(colocation={"ENABLE": True, "x": 1}, cpu_burst={}), "a": "b"})
    assert third.changed == {SectionName.CPU_BURST}


@pytest.mark.parametrize("name", list(SectionName))
def test_refused_section_keeps_its_previous_value_and_others_go_on(name: SectionName) -> None:
    before = read_config_map(None, {section.key: "{}" for section in SectionName}).config
    other = next(section for section in (SectionName.CPU_BURST, SectionName.SYSTEM) if section is not name)
    part = {"clusterStrategy": {"policy": "auto", "minFreeKbytesFactor": 3}}
    reading = read_config_map(before, {name.key: "{", other.key: json.dumps(part)})
    assert reading.config.section(name) == before.section(name)
    assert reading.changed == {other}
    (rejection,) = reading.rejections
    assert (rejection.section, rejection.event_reason) == (name, SECTIONS[name].parse_error_event)
    assert rejection.sentence().startswith(f"{name.key}: must be JSON")
    assert reading.config.colocation_error is (name is SectionName.COLOCATION)


@pytest.mark.parametrize("name", list(SectionName))
def test_refused_at_start_leaves_idle_or_default(name: SectionName) -> None:
    config = read_config_map(None, {name.key: "{"}).config
    if name in IDLE:
        assert config.section(name) is None
        assert config.strategy_for(name, {}, {}) is None
    else:
        assert config.section(name) == default_config().section(name)


def test_event_reasons() -> None:
    assert {str(name): table.parse_error_event for name, table in SECTIONS.items()} == {
        "colocation": "ColocationCfgUnmarshalFailed",
        "resource-threshold": "SLOCfgUnmarshalFailed",
        "resource-qos": "SLOCfgUnmarshalFailed",
        "cpu-burst": "SLOCfgUnmarshalFailed",
        "system": "SLOCfgUnmarshalFailed",
        "host-application": "SLOCfgUnmarshalFailed",
        "cpu-normalization": "CPUNormalizationCfgUnmarshalFailed",
        "resource-amplification": "ResourceAmplificationCfgUnmarshalFailed",
        "slo-adjust": "SLOAdjustCfgUnmarshalFailed",
        "interference": "SLOCfgUnmarshalFailed",
    }


def test_rejection_names_field_rule_and_value() -> None:
    (rejection,) = read_config_map(None, texts(colocation={"degradeTimeMinutes": 0})).rejections
    assert (rejection.field, rejection.rule, rejection.value) == ("degradeTimeMinutes", "> 0", 0)
    assert rejection.sentence() == "colocation-config.degradeTimeMinutes: must be > 0, got 0"


@pytest.mark.parametrize(
    ("cluster", "node", "enabled"),
    [(True, None, True), (True, False, False), (False, True, False), (False, None, False)],
)
def test_colocation_needs_cluster_and_node(cluster: bool, node: bool | None, enabled: bool) -> None:
    entries = [] if node is None else [{"nodeSelector": {"matchLabels": {"x": "y"}}, "enable": node}]
    config = read_config_map(None, texts(colocation={"enable": cluster, "nodeConfigs": entries})).config
    strategies = NodeStrategies(config)
    strategy = strategies.colocation({"x": "y"}, {})
    assert strategy is not None
    assert (strategies.cluster_colocation_enabled and strategy.enable) is enabled
    assert strategy.enable is (cluster if node is None else node)


def test_idle_colocation_is_not_enabled() -> None:
    config = read_config_map(None, {"colocation-config": "{"}).config
    assert NodeStrategies(config).colocation({}, {}) is None
    assert not NodeStrategies(config).cluster_colocation_enabled


def test_typed_defaults() -> None:
    strategies = NodeStrategies(default_config())
    assert strategies.colocation({}, {}) == ColocationStrategy(
        enable=False,
        metric_aggregate_duration_seconds=300,
        metric_report_interval_seconds=60,
        metric_aggregate_policy=AggregatePolicy(durations=["5m0s", "10m0s", "30m0s"]),
        metric_memory_collect_policy=MemoryCollectPolicy.WITHOUT_PAGE_CACHE,
        cpu_reclaim_threshold_percent=60,
        cpu_calculate_policy=CalculatePolicy.USAGE,
        memory_reclaim_threshold_percent=65,
        memory_calculate_policy=CalculatePolicy.USAGE,
        degrade_time_minutes=15,
        update_time_threshold_seconds=300,
        resource_diff_threshold=0.1,
        mid_reclaim_mode=None,
        mid_cpu_threshold_percent=100,
        mid_memory_threshold_percent=100,
        mid_unallocated_percent=0,
        mid_static_cpu_reserved_percent=0,
        mid_static_memory_reserved_percent=0,
    )


@pytest.mark.parametrize(
    ("document", "attribute", "value"),
    [
        ({"cpuCalculatePolicy": "maxUsageRequest"}, "cpu_calculate_policy", CalculatePolicy.MAX_USAGE_REQUEST),
        ({"cpuCalculatePolicy": "request"}, "cpu_calculate_policy", CalculatePolicy.USAGE),
        ({"cpuCalculatePolicy": "x"}, "cpu_calculate_policy", CalculatePolicy.USAGE),
        ({"memoryCalculatePolicy": "request"}, "memory_calculate_policy", CalculatePolicy.REQUEST),
        ({"memoryCalculatePolicy": "x"}, "memory_calculate_policy", CalculatePolicy.USAGE),
        (
            {"metricMemoryCollectPolicy": "usageWithPageCache"},
            "metric_memory_collect_policy",
            MemoryCollectPolicy.WITH_PAGE_CACHE,
        ),
        ({"metricMemoryCollectPolicy": "x"}, "metric_memory_collect_policy", MemoryCollectPolicy.WITHOUT_PAGE_CACHE),
        ({"midReclaimMode": "static"}, "mid_reclaim_static", True),
        ({"midReclaimMode": "dynamic"}, "mid_reclaim_static", False),
        ({"batchCPUThresholdPercent": 0}, "batch_cpu_threshold_percent", 0),
        ({"metricAggregatePolicy": {"durations": ["90s", "1500ms"]}}, "metric_windows_seconds", (90.0, 1.5)),
        ({"extensions": {"a": [1]}}, "extensions", {"a": [1]}),
    ],
)
def test_unknown_policies_act_as_the_default(document: Document, attribute: str, value: object) -> None:
    strategy = NodeStrategies(read_config_map(None, texts(colocation=document)).config).colocation({}, {})
    assert getattr(strategy, attribute) == value


def test_node_override_does_not_leak_into_the_shared_strategy() -> None:
    strategies = NodeStrategies(default_config())
    shared = strategies.colocation({}, {})
    own = strategies.colocation({"node.koordinator.sh/cpu-reclaim-ratio": "0.9"}, {})
    annotated = strategies.colocation({}, {"node.koordinator.sh/colocation-strategy": '{"enable": true}'})
    assert own is not None
    assert annotated is not None
    assert shared is not None
    assert (own.cpu_reclaim_threshold_percent, annotated.enable) == (90, True)
    assert (shared.cpu_reclaim_threshold_percent, shared.enable) == (60, False)
    assert strategies.colocation({}, {}) is shared


def test_node_slo_as_rendered_and_as_completed() -> None:
    data = texts(
        resource_threshold={"clusterStrategy": {"enable": True}},
        resource_qos={"clusterStrategy": {"beClass": {"cpuQOS": {"enable": True}}}},
        host_application={"applications": [{"name": "nginx"}]},
    )
    config = read_config_map(None, data).config
    rendered = render_node_slo(config, {}, {"node.koordinator.sh/network-bandwidth": "25G"}, {"plug": 1})
    assert rendered.fault is None
    assert rendered.spec["resourceQOSStrategy"] == {"beClass": {"cpuQOS": {"enable": True}}}
    assert rendered.spec["systemStrategy"] == {"totalNetworkBandwidth": "25G"}
    assert rendered.spec["hostApplications"] == [{"name": "nginx"}]
    assert rendered.spec["extensions"] == {"plug": 1}
    completed: Any = complete_node_slo(rendered.spec)
    assert completed["resourceQOSStrategy"]["beClass"]["cpuQOS"]["groupIdentity"] == -1
    assert completed["systemStrategy"] == {"totalNetworkBandwidth": "25G"}


def test_bad_bandwidth_leaves_the_agent_with_its_defaults() -> None:
    system = {"clusterStrategy": {"minFreeKbytesFactor": 5}}
    config = read_config_map(None, texts(system=system)).config
    rendered = render_node_slo(config, {}, {"node.koordinator.sh/network-bandwidth": "fast"}, {})
    assert rendered.spec["systemStrategy"] is None
    assert rendered.fault is not None
    assert rendered.fault.value == "fast"
    assert complete_node_slo(rendered.spec)["systemStrategy"] == {"totalNetworkBandwidth": "0"}


def test_extensions_follow_their_plug_ins_and_strangers_stay() -> None:
    old: Document = {"stranger": None, "mine": 1, "gone": 2}
    assert update_extensions(old, {"mine": {"a": 1}, "gone": None, "new": 0}) == {
        "stranger": None,
        "mine": {"a": 1},
        "new": 0,
    }


def test_five_thousand_nodes_of_twelve_pools_share_eleven_answers() -> None:
    pools = [
        {"nodeSelector": {"matchLabels": {"pool": f"p{pool}"}}, "degradeTimeMinutes": pool + 1} for pool in range(10)
    ]
    data = texts(colocation={"enable": True, "nodeConfigs": pools})
    nodes = [{"pool": f"p{node % 12}", "kubernetes.io/hostname": f"n{node}"} for node in range(5000)]

    strategies = NodeStrategies(read_config_map(None, data).config)
    assert len({id(strategies.colocation(labels, {})) for labels in nodes}) == 11


def test_interference_reaches_the_nodes_only_when_it_is_switched_on() -> None:
    off = read_config_map(None, {"interference-config": json.dumps({"clusterStrategy": {"psi": {"act": True}}})}).config
    assert render_node_slo(off, {}, {}, {"own": 1}).spec["extensions"] == {"own": 1}
    written = {"clusterStrategy": {"enable": True, "psi": {"cpuSome": 30}}}
    on = read_config_map(None, {"interference-config": json.dumps(written)}).config
    extension = render_node_slo(on, {}, {}, {}).spec["extensions"]
    assert isinstance(extension, dict)
    found = extension["interference"]
    assert isinstance(found, dict)
    assert found["psi"] == {
        "cpuSome": 30, "memFull": 5, "ioFull": 10, "enterSamples": 3, "leaveSamples": 3, "act": False,
    }  # fmt: skip
