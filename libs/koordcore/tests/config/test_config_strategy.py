"""Defaults, runtime validity and the merge to a node's effective strategy (protocol spec, 6.2 to 6.9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from koordcore.protocol.config.config_map import read_config_map
from koordcore.protocol.config.node_slo import complete_strategy
from koordcore.protocol.config.sections import SectionName
from koordcore.protocol.config.strategy import ratio_percent, read_section
from koordcore.values.invalid import InvalidInput

Document = dict[str, Any]

COLOCATION = SectionName.COLOCATION
QOS = SectionName.RESOURCE_QOS

DEFAULTS: dict[SectionName, Document] = {
    SectionName.COLOCATION: {
        "enable": False,
        "metricAggregateDurationSeconds": 300,
        "metricReportIntervalSeconds": 60,
        "metricAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
        "metricMemoryCollectPolicy": "usageWithoutPageCache",
        "cpuReclaimThresholdPercent": 60,
        "cpuCalculatePolicy": "usage",
        "memoryReclaimThresholdPercent": 65,
        "memoryCalculatePolicy": "usage",
        "degradeTimeMinutes": 15,
        "updateTimeThresholdSeconds": 300,
        "resourceDiffThreshold": 0.1,
        "midCPUThresholdPercent": 100,
        "midMemoryThresholdPercent": 100,
        "midUnallocatedPercent": 0,
        "midStaticCPUReservedPercent": 0,
        "midStaticMemoryReservedPercent": 0,
    },
    SectionName.RESOURCE_THRESHOLD: {
        "enable": False,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70,
        "cpuEvictPolicy": "evictByRealLimit",
    },
    SectionName.RESOURCE_QOS: {},
    SectionName.CPU_BURST: {
        "policy": "none",
        "cpuBurstPercent": 1000,
        "cfsQuotaBurstPercent": 300,
        "cfsQuotaBurstPeriodSeconds": -1,
        "sharePoolThresholdPercent": 50,
    },
    SectionName.SYSTEM: {"totalNetworkBandwidth": "0"},
    SectionName.HOST_APPLICATION: {"applications": []},
    SectionName.CPU_NORMALIZATION: {"enable": False},
    SectionName.RESOURCE_AMPLIFICATION: {"enable": False},
    SectionName.SLO_ADJUST: {
        "enable": False,
        "intervalSeconds": 60,
        "smoothingFactor": 0.3,
        "warnLevel": 0.5,
        "criticalLevel": 0.8,
        "recoverLevel": 0.3,
        "minWeight": 10,
        "stepDown": 5,
        "stepUp": 1,
        "maxDrop": 20,
        "healthyRoundsBeforeRaise": 5,
        "suppressFloorPercent": 40,
        "memoryEvictFloorPercent": 50,
        "maxAbnormalRatio": 0.2,
        "signals": {
            "cpuUtil": {"warn": 70, "critical": 85},
            "memoryUtil": {"warn": 75, "critical": 90},
            "cpuPressure": {"warn": 20, "critical": 60},
            "memoryPressure": {"warn": 5, "critical": 20},
            "cpuThrottled": {"warn": 10, "critical": 40},
            "cpuSuppressed": {"warn": 50, "critical": 90},
            "beEvictions": {"warn": 0, "critical": 5},
        },
    },
    SectionName.INTERFERENCE: {
        "enable": False,
        "psi": {"cpuSome": 20, "memFull": 5, "ioFull": 10, "enterSamples": 3, "leaveSamples": 3, "act": False},
        "cpi": {
            "enable": False,
            "sigma": 2,
            "minUsage": 0.25,
            "outliers": 3,
            "windowSeconds": 300,
            "correlationSeconds": 600,
            "correlation": 0.35,
            "capSeconds": 300,
        },
        "schedDelayMs": 5,
        "memAllocRatio": 0.1,
    },
}


def effective(
    name: SectionName,
    document: Document,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Document:
    reading = read_config_map(None, {name.key: json.dumps(document)})
    assert reading.rejections == ()
    strategy = reading.config.strategy_for(name, labels or {}, annotations or {})
    assert strategy is not None
    return dict(strategy)


@pytest.mark.parametrize("name", list(SectionName))
def test_defaults(name: SectionName) -> None:
    assert read_section(name, None).cluster == DEFAULTS[name]


# field, lowest and highest value that the merged strategy may have (None = no bound), one step outside
RUNTIME: list[tuple[str, float | None, float | None, float]] = [
    ("metricAggregateDurationSeconds", 1, None, 1),
    ("metricReportIntervalSeconds", 1, None, 1),
    ("cpuReclaimThresholdPercent", 0, None, 1),
    ("memoryReclaimThresholdPercent", 0, None, 1),
    ("degradeTimeMinutes", 1, None, 1),
    ("updateTimeThresholdSeconds", 1, None, 1),
    ("resourceDiffThreshold", 1e-9, None, 1e-9),
    ("midCPUThresholdPercent", 0, 100, 1),
    ("midMemoryThresholdPercent", 0, 100, 1),
    ("midUnallocatedPercent", 0, 100, 1),
    ("midStaticCPUReservedPercent", 0, None, 1),
    ("midStaticMemoryReservedPercent", 0, None, 1),
    ("batchCPUThresholdPercent", 0, None, 1),
    ("batchMemoryThresholdPercent", 0, None, 1),
]


@pytest.mark.parametrize(("field", "low", "high", "step"), RUNTIME)
def test_runtime_range_of_the_cluster_and_of_an_entry(
    field: str, low: float | None, high: float | None, step: float
) -> None:
    for edge, outside in ((low, -step), (high, step)):
        if edge is None:
            assert effective(COLOCATION, {field: 1_000_000})[field] == 1_000_000
            continue
        assert effective(COLOCATION, {field: edge})[field] == edge
        with pytest.raises(InvalidInput) as caught:
            read_section(COLOCATION, json.dumps({field: edge + outside}))
        assert (caught.value.path, caught.value.value) == (field, edge + outside)
        # an entry that becomes invalid stands for the cluster strategy, with all its other fields
        entry: Document = {"nodeSelector": {}, field: edge + outside, "enable": False}
        cluster: Document = {"enable": True, field: edge}
        assert effective(COLOCATION, {**cluster, "nodeConfigs": [entry]}) == effective(COLOCATION, cluster)


def test_other_sections_have_no_runtime_range() -> None:
    document = {"clusterStrategy": {"cpuSuppressThresholdPercent": -5, "memoryEvictLowerPercent": 900}}
    strategy = effective(SectionName.RESOURCE_THRESHOLD, document)
    assert (strategy["cpuSuppressThresholdPercent"], strategy["memoryEvictLowerPercent"]) == (-5, 900)


def test_invalid_cluster_strategy_is_named_by_its_path() -> None:
    with pytest.raises(InvalidInput, match="degradeTimeMinutes: must be > 0, got 0"):
        read_section(COLOCATION, '{"degradeTimeMinutes": 0}')


def test_first_matching_entry_answers_and_later_ones_are_not_stacked() -> None:
    entries: list[Document] = [
        {"nodeSelector": {"matchLabels": {"no": "match"}}, "degradeTimeMinutes": 1},
        {"degradeTimeMinutes": 2},
        {"nodeSelector": None, "degradeTimeMinutes": 3},
        {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}, "degradeTimeMinutes": 4},
        {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}, "enable": True},
        {"nodeSelector": {}, "degradeTimeMinutes": 6, "midUnallocatedPercent": 6},
    ]
    document = {"degradeTimeMinutes": 20, "nodeConfigs": entries}
    with_label = effective(COLOCATION, document, {"a": ""})
    assert (with_label["enable"], with_label["degradeTimeMinutes"], with_label["midUnallocatedPercent"]) == (
        True,
        20,
        0,
    )
    without = effective(COLOCATION, document)
    assert (without["enable"], without["degradeTimeMinutes"], without["midUnallocatedPercent"]) == (False, 6, 6)


def test_lists_replace_and_objects_merge() -> None:
    cluster = {"beClass": {"cpuQOS": {"enable": True}, "blkioQOS": {"enable": True, "blocks": [{"name": "a"}]}}}
    entry = {"nodeSelector": {}, "beClass": {"blkioQOS": {"blocks": [{"type": "device"}, {"name": "c"}]}}}
    assert effective(QOS, {"clusterStrategy": cluster, "nodeStrategies": [entry]})["beClass"] == {
        "cpuQOS": {"enable": True},
        "blkioQOS": {"enable": True, "blocks": [{"type": "device"}, {"name": "c"}]},
    }


def test_empty_list_replaces_and_absent_list_inherits() -> None:
    cluster = {"beClass": {"blkioQOS": {"blocks": [{"name": "a"}]}}}
    written: list[tuple[Document, list[Document]]] = [({"blocks": []}, []), ({"enable": True}, [{"name": "a"}])]
    for entry, blocks in written:
        document: Document = {
            "clusterStrategy": cluster,
            "nodeStrategies": [{"nodeSelector": {}, "beClass": {"blkioQOS": entry}}],
        }
        assert effective(QOS, document)["beClass"]["blkioQOS"]["blocks"] == blocks


@pytest.mark.parametrize("field", ["metricMemoryCollectPolicy", "cpuCalculatePolicy", "memoryCalculatePolicy"])
def test_empty_policy_keeps_the_value_of_the_cluster(field: str) -> None:
    document: Document = {field: "x", "nodeConfigs": [{"nodeSelector": {}, field: ""}]}
    assert effective(COLOCATION, document)[field] == "x"


def test_extensions_merge_by_key_and_replace_each_value() -> None:
    document: Document = {
        "extensions": {"a": {"x": 1, "y": 2}, "b": 1},
        "nodeConfigs": [{"nodeSelector": {}, "extensions": {"a": {"x": 3}}}],
    }
    assert effective(COLOCATION, document)["extensions"] == {"a": {"x": 3}, "b": 1}


def test_bandwidth_of_the_cluster_is_inherited_by_an_entry_without_one() -> None:
    document: Document = {
        "clusterStrategy": {"totalNetworkBandwidth": "10G"},
        "nodeStrategies": [{"nodeSelector": {}, "minFreeKbytesFactor": 3}],
    }
    assert effective(SectionName.SYSTEM, document) == {"totalNetworkBandwidth": "10G", "minFreeKbytesFactor": 3}


@pytest.mark.parametrize("text", ["", "fast", "10 G", "1GB"])
def test_malformed_bandwidth_annotation_unsets_the_section_for_the_node(text: str) -> None:
    with pytest.raises(InvalidInput, match="network-bandwidth"):
        effective(SectionName.SYSTEM, {}, annotations={"node.koordinator.sh/network-bandwidth": text})


def test_applications_of_an_entry_replace_those_of_the_cluster() -> None:
    document = {"applications": [{"name": "a"}], "nodeConfigs": [{"nodeSelector": {"matchLabels": {"x": "y"}}}]}
    assert effective(SectionName.HOST_APPLICATION, document)["applications"] == [{"name": "a"}]
    assert effective(SectionName.HOST_APPLICATION, document, {"x": "y"})["applications"] == []


ANNOTATION = "node.koordinator.sh/colocation-strategy"


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '"x"', '{"enable": "yes"}', '{"degradeTimeMinutes": 1.0}'])
def test_malformed_annotation_is_ignored(text: str) -> None:
    document = {"degradeTimeMinutes": 7}
    assert effective(COLOCATION, document, annotations={ANNOTATION: text}) == effective(COLOCATION, document)


def test_annotation_is_merged_and_not_validated() -> None:
    text = '{"DegradeTimeMinutes": -3, "metricAggregatePolicy": {"durations": ["1m"]}, "nodeConfigs": 5}'
    strategy = effective(COLOCATION, {"enable": True}, annotations={ANNOTATION: text})
    assert strategy["degradeTimeMinutes"] == -3
    assert strategy["metricAggregatePolicy"] == {"durations": ["1m0s"]}
    assert strategy["enable"] is True


@pytest.mark.parametrize(
    ("label", "field"),
    [
        ("cpu-reclaim-ratio", "cpuReclaimThresholdPercent"),
        ("memory-reclaim-ratio", "memoryReclaimThresholdPercent"),
        ("mid-static-cpu-reserved-ratio", "midStaticCPUReservedPercent"),
        ("mid-static-memory-reserved-ratio", "midStaticMemoryReservedPercent"),
    ],
)
def test_ratio_labels_win_over_the_annotation(label: str, field: str) -> None:
    key = f"node.koordinator.sh/{label}"
    annotations = {ANNOTATION: json.dumps({field: 11})}
    assert effective(COLOCATION, {field: 5}, {key: "0.29"}, annotations)[field] == 28
    assert effective(COLOCATION, {field: 5}, {key: "-0.29"}, annotations)[field] == 11
    assert effective(COLOCATION, {field: 5}, {key: "many"})[field] == 5


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        ("0.57", 56), ("0.29", 28), ("0.8", 80), ("1.2", 120), ("0", 0), ("-0", 0), ("+.5", 50), ("1.", 100),
        ("5e-1", 50), ("1e3", 100_000), ("0.001", 0), ("-0.01", None), ("-1", None), ("", None), (" 1", None),
        ("1 ", None), ("1_0", None), ("nan", None), ("inf", None), ("1e308", None), ("1e999", None), ("0x1p-2", None),
        ("80%", None), ("٣", None),
    ],
)  # fmt: skip
def test_ratio_is_truncated_after_the_float_product(text: str, percent: int | None) -> None:
    assert ratio_percent(text) == percent


@pytest.mark.parametrize(
    "name", [SectionName.RESOURCE_THRESHOLD, SectionName.CPU_BURST, SectionName.SYSTEM, SectionName.COLOCATION]
)
def test_agent_fills_in_the_defaults(name: SectionName) -> None:
    assert complete_strategy(name, None) == DEFAULTS[name]
    assert complete_strategy(name, {"enable": None, "unknown": 1}) == DEFAULTS[name]


CPU = ("groupIdentity", "schedIdle", "coreExpeller")
RESCTRL = ("catRangeStartPercent", "catRangeEndPercent", "mbaPercent")
MEMORY = (
    "minLimitPercent", "lowLimitPercent", "throttlingPercent", "wmarkRatio", "wmarkScalePermill", "wmarkMinAdj",
    "priorityEnable", "oomKillGroup", "priority",
)  # fmt: skip
QOS_TABLE: list[tuple[str, tuple[str, ...], dict[str, tuple[object, ...]]]] = [
    ("cpuQOS", CPU, {"lsrClass": (2, 0, True), "lsClass": (2, 0, True), "beClass": (-1, 0, False)}),
    ("resctrlQOS", RESCTRL, {"lsrClass": (0, 100, 100), "lsClass": (0, 100, 100), "beClass": (0, 30, 100)}),
    (
        "memoryQOS",
        MEMORY,
        {
            "lsrClass": (0, 0, 0, 95, 20, -25, 0, 0, 0),
            "lsClass": (0, 0, 0, 95, 20, -25, 0, 0, 0),
            "beClass": (0, 0, 0, 95, 20, 50, 0, 0, 0),
        },
    ),
]
OFF: dict[str, tuple[object, ...]] = {
    "cpuQOS": (0, 0, False),
    "resctrlQOS": (0, 100, 100),
    "memoryQOS": (0, 0, 0, 0, 50, 0, 0, 0, 0),
}


@pytest.mark.parametrize(("feature", "fields", "values"), QOS_TABLE)
@pytest.mark.parametrize("owner", ["lsrClass", "lsClass", "beClass"])
def test_agent_completes_enabled_features_and_resets_disabled_ones(
    feature: str, fields: tuple[str, ...], values: dict[str, tuple[object, ...]], owner: str
) -> None:
    def completed(received: Document) -> Document:
        strategy: Any = complete_strategy(QOS, {owner: {feature: received}})
        return strategy[owner][feature]

    assert completed({"enable": True}) == {"enable": True, **dict(zip(fields, values[owner], strict=True))}
    off = {"enable": False, **dict(zip(fields, OFF[feature], strict=True))}
    for received in ({}, {"enable": False}, {fields[0]: 1, "pageCacheEnable": True}):
        assert completed(received) == off


def test_agent_keeps_what_was_written_where_nothing_is_reset() -> None:
    received: Document = {
        "policies": {"cpuPolicy": "coreSched"},
        "systemClass": {"cpuQOS": {"groupIdentity": 1}},
        "cgroupRoot": {"blkioQOS": {"blocks": [{"name": "x"}]}},
        "beClass": {"networkQOS": {"ingressLimit": "50M"}, "blkioQOS": {"blocks": [{"name": "y"}]}},
        "lsClass": {"memoryQOS": {"enable": True, "pageCacheEnable": True}},
    }
    strategy: Any = complete_strategy(QOS, received)
    assert strategy["policies"] == {"cpuPolicy": "coreSched", "netQOSPolicy": "tc"}
    assert strategy["systemClass"]["cpuQOS"] == {
        "enable": False, "groupIdentity": 1, "schedIdle": 0, "coreExpeller": False
    }  # fmt: skip
    assert strategy["systemClass"]["memoryQOS"]["wmarkScalePermill"] == 50
    assert strategy["cgroupRoot"] == {"blkioQOS": {"enable": False, "blocks": [{"name": "x"}]}}
    assert strategy["beClass"]["networkQOS"] == {
        "enable": False, "ingressRequest": 0, "ingressLimit": "50M", "egressRequest": 0, "egressLimit": 0
    }  # fmt: skip
    assert strategy["beClass"]["blkioQOS"] == {"enable": False, "blocks": [{"name": "y"}]}
    assert strategy["lsClass"]["memoryQOS"]["pageCacheEnable"] is True
