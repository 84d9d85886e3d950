"""Reading one ConfigMap key: leniency in spelling, strictness in types (protocol spec, 1.2 and 6.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from koordcore.protocol.config.parse import parse_section
from koordcore.protocol.config.sections import SECTIONS, SectionName
from koordcore.protocol.config.strategy import read_section
from koordcore.values.invalid import InvalidInput

# Fragments of JSON documents, as a user types them.
Document = dict[str, Any]

COLOCATION = SectionName.COLOCATION
THRESHOLD = SectionName.RESOURCE_THRESHOLD
SYSTEM = SectionName.SYSTEM


def cluster_of(name: SectionName, document: Document) -> dict[str, object]:
    return dict(parse_section(SECTIONS[name], json.dumps(document)).cluster)


def rejected(name: SectionName, text: str) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        read_section(name, text)
    return caught.value


def test_key_is_the_section_with_a_suffix() -> None:
    assert [name.key for name in SectionName] == [
        "colocation-config",
        "resource-threshold-config",
        "resource-qos-config",
        "cpu-burst-config",
        "system-config",
        "host-application-config",
        "cpu-normalization-config",
        "resource-amplification-config",
        "slo-adjust-config",
        "interference-config",
    ]


def test_keys_match_without_regard_to_case() -> None:
    document = {"CLUSTERSTRATEGY": {"Enable": True, "cpusuppressthresholdpercent": 7}}
    assert cluster_of(THRESHOLD, document) == {"enable": True, "cpuSuppressThresholdPercent": 7}


@pytest.mark.parametrize(
    "text",
    [
        '{"degradeTimeMinutes": 1, "DEGRADETIMEMINUTES": 2}',
        '{"DEGRADETIMEMINUTES": 2, "degradeTimeMinutes": 1}',
        '{"degradeTimeMinutes": 3, "degradeTimeMinutes": 1}',
    ],
)
def test_exact_spelling_wins_and_then_the_last(text: str) -> None:
    assert parse_section(SECTIONS[COLOCATION], text).cluster == {"degradeTimeMinutes": 1}


def test_selector_and_entry_keys_match_without_regard_to_case() -> None:
    document = {"NodeConfigs": [{"NAME": "a", "NODESELECTOR": {"MatchLabels": {"Pool": "x"}}, "ENABLE": True}]}
    (entry,) = parse_section(SECTIONS[COLOCATION], json.dumps(document)).entries
    assert (entry.name, entry.strategy) == ("a", {"enable": True})
    assert entry.selector is not None
    assert entry.selector.matches({"Pool": "x"})
    assert not entry.selector.matches({"pool": "x"})


def test_null_empty_text_and_unknown_keys_are_not_set() -> None:
    document = {"enable": None, "cpuCalculatePolicy": "", "metricAggregatePolicy": None, "unknown": {"deep": [1]}}
    assert cluster_of(COLOCATION, document) == {}


def test_nested_null_is_not_set_and_explicit_zero_and_false_are() -> None:
    document = {"clusterStrategy": {"beClass": {"cpuQOS": {"enable": False, "groupIdentity": 0, "schedIdle": None}}}}
    assert cluster_of(SectionName.RESOURCE_QOS, document) == {
        "beClass": {"cpuQOS": {"enable": False, "groupIdentity": 0}}
    }


@pytest.mark.parametrize("name", list(SectionName))
def test_whole_document_may_be_null_or_empty_object(name: SectionName) -> None:
    assert read_section(name, "null").cluster == read_section(name, None).cluster
    assert read_section(name, "{}").cluster == read_section(name, None).cluster


@pytest.mark.parametrize("name", [name for name in SectionName if name is not COLOCATION])
def test_empty_text_is_a_parse_error_except_for_colocation(name: SectionName) -> None:
    rejected(name, "")
    assert read_section(COLOCATION, "") == read_section(COLOCATION, None)


@pytest.mark.parametrize("name", list(SectionName))
@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", "3", '"x"', "true", "{a: 1}", '{"enable": true,}', '{"enable": true} // yes', "{'enable': true}",
        '{"x": NaN}', '{"x": Infinity}', "{} {}", " ", '{"x": ' + "1" * 5000 + "}", "[" * 100_000,
    ],
)  # fmt: skip
def test_texts_that_are_no_json_object(name: SectionName, text: str) -> None:
    assert rejected(name, text).rule


NO_INTEGER: tuple[object, ...] = ("5", 15.0, 1.5, True, [], {}, 2**63, -(2**63) - 1)
NO_BOOLEAN: tuple[object, ...] = ("true", 1, 0, [], {})
NO_NUMBER: tuple[object, ...] = ("0.1", True, [])
NO_TEXT: tuple[object, ...] = (1, True, [])
NO_BANDWIDTH: tuple[object, ...] = (True, 1.5, [], 2**31)

WRONG: list[tuple[SectionName, Document, str]] = [
    *(
        (COLOCATION, {name: value}, name)
        for name in ("metricAggregateDurationSeconds", "cpuReclaimThresholdPercent", "batchMemoryThresholdPercent")
        for value in NO_INTEGER
    ),
    *((COLOCATION, {"enable": value}, "enable") for value in NO_BOOLEAN),
    *((COLOCATION, {"resourceDiffThreshold": value}, "resourceDiffThreshold") for value in NO_NUMBER),
    *((COLOCATION, {"midReclaimMode": value}, "midReclaimMode") for value in NO_TEXT),
    (COLOCATION, {"metricAggregatePolicy": []}, "metricAggregatePolicy"),
    (COLOCATION, {"metricAggregatePolicy": {"durations": "5m"}}, "metricAggregatePolicy.durations"),
    *(
        (COLOCATION, {"metricAggregatePolicy": {"durations": ["1m", value]}}, "metricAggregatePolicy.durations[1]")
        for value in (300, "", "5", "5 m", "5d", None)
    ),
    (COLOCATION, {"extensions": []}, "extensions"),
    (COLOCATION, {"nodeConfigs": {}}, "nodeConfigs"),
    (COLOCATION, {"nodeConfigs": ["a"]}, "nodeConfigs[0]"),
    (COLOCATION, {"nodeConfigs": [{"name": 1}]}, "nodeConfigs[0].name"),
    (COLOCATION, {"nodeConfigs": [{"nodeSelector": "a=b"}]}, "nodeConfigs[0].nodeSelector"),
    (COLOCATION, {"nodeConfigs": [{"nodeSelector": {"matchLabels": []}}]}, "nodeConfigs[0].nodeSelector.matchLabels"),
    (
        COLOCATION,
        {"nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": 1}}}]},
        "nodeConfigs[0].nodeSelector.matchLabels.a",
    ),
    (
        COLOCATION,
        {"nodeConfigs": [{"nodeSelector": {"matchExpressions": [{"values": "v"}]}}]},
        "nodeConfigs[0].nodeSelector.matchExpressions[0].values",
    ),
    (COLOCATION, {"nodeConfigs": [{"enable": 1}]}, "nodeConfigs[0].enable"),
    (THRESHOLD, {"clusterStrategy": []}, "clusterStrategy"),
    (THRESHOLD, {"nodeStrategies": {}}, "nodeStrategies"),
    (
        THRESHOLD,
        {"clusterStrategy": {"evictEnabledPriorityThreshold": 2**31}},
        "clusterStrategy.evictEnabledPriorityThreshold",
    ),
    (THRESHOLD, {"nodeStrategies": [{"enable": "x"}]}, "nodeStrategies[0].enable"),
    (SYSTEM, {"clusterStrategy": {"totalNetworkBandwidth": "fast"}}, "clusterStrategy.totalNetworkBandwidth"),
    (SYSTEM, {"clusterStrategy": {"totalNetworkBandwidth": True}}, "clusterStrategy.totalNetworkBandwidth"),
    (SYSTEM, {"clusterStrategy": {"schedFeatures": {"A": 1}}}, "clusterStrategy.schedFeatures.A"),
    (SYSTEM, {"clusterStrategy": {"schedFeatures": []}}, "clusterStrategy.schedFeatures"),
    *(
        (
            SectionName.RESOURCE_QOS,
            {"clusterStrategy": {"lsClass": {"networkQOS": {"ingressLimit": value}}}},
            "clusterStrategy.lsClass.networkQOS.ingressLimit",
        )
        for value in NO_BANDWIDTH
    ),
    (
        SectionName.RESOURCE_QOS,
        {"clusterStrategy": {"beClass": {"blkioQOS": {"blocks": [{}, {"ioCfg": {"readBPS": "1k"}}]}}}},
        "clusterStrategy.beClass.blkioQOS.blocks[1].ioCfg.readBPS",
    ),
    (SectionName.HOST_APPLICATION, {"applications": {}}, "applications"),
    (SectionName.HOST_APPLICATION, {"applications": [{"cgroupPath": "x"}]}, "applications[0].cgroupPath"),
    (SectionName.CPU_NORMALIZATION, {"ratioModel": {"M": {"baseRatio": "1.5"}}}, "ratioModel.M.baseRatio"),
    (
        SectionName.RESOURCE_AMPLIFICATION,
        {"resourceAmplificationRatio": {"cpu": "2"}},
        "resourceAmplificationRatio.cpu",
    ),
    (SectionName.SLO_ADJUST, {"signals": {"cpuUtil": {"warn": "70"}}}, "signals.cpuUtil.warn"),
]


@pytest.mark.parametrize(("name", "document", "path"), WRONG)
def test_wrong_type_rejects_the_section_and_names_the_field(name: SectionName, document: Document, path: str) -> None:
    error = rejected(name, json.dumps(document))
    assert error.path == path
    assert error.rule


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_numbers_beyond_float64_are_refused(number: str) -> None:
    assert rejected(COLOCATION, f'{{"resourceDiffThreshold": {number}}}').path == "resourceDiffThreshold"
    assert rejected(COLOCATION, f'{{"extensions": {{"a": [{number}]}}}}').path == "extensions"


def test_texts_are_readable_when_written_again() -> None:
    section = read_section(COLOCATION, '{"midReclaimMode": "\\ud800", "extensions": {"\\udfff": "\\ud83d\\ude00"}}')
    assert section.cluster["midReclaimMode"] == "\ufffd"
    assert section.cluster["extensions"] == {"\ufffd": "\U0001f600"}
    json.dumps(dict(section.cluster), ensure_ascii=False).encode()


def test_durations_and_quantities_take_their_output_form() -> None:
    assert cluster_of(COLOCATION, {"metricAggregatePolicy": {"durations": ["90s", "1h5m", "0"]}}) == {
        "metricAggregatePolicy": {"durations": ["1m30s", "1h5m0s", "0s"]}
    }
    for written, expected in ((1000, "1k"), ("10G", "10G"), (1.5, "1500m")):
        assert cluster_of(SYSTEM, {"clusterStrategy": {"totalNetworkBandwidth": written}}) == {
            "totalNetworkBandwidth": expected
        }


def test_integer_beyond_32_bits_fits_an_int64_field() -> None:
    document = {"clusterStrategy": {"beClass": {"memoryQOS": {"pageCacheLimitSize": 2**40}}}}
    assert cluster_of(SectionName.RESOURCE_QOS, document) == {"beClass": {"memoryQOS": {"pageCacheLimitSize": 2**40}}}


SELECTORS: list[tuple[Document, str]] = [
    ({"matchExpressions": [{"key": "k", "operator": "out", "values": ["v"]}]}, "matchExpressions[0].operator"),
    ({"matchExpressions": [{"key": "k", "operator": "In"}]}, "matchExpressions[0].values"),
    ({"matchExpressions": [{"key": "k", "operator": "NotIn", "values": []}]}, "matchExpressions[0].values"),
    ({"matchExpressions": [{"key": "k", "operator": "Exists", "values": ["v"]}]}, "matchExpressions[0].values"),
    (
        {"matchExpressions": [{"key": "k", "operator": "DoesNotExist", "values": ["v"]}]},
        "matchExpressions[0].values",
    ),
    ({"matchLabels": {"a b": "v"}}, "matchLabels[a b].key"),
    ({"matchLabels": {"a": "v v"}}, "matchLabels[a].values"),
]


@pytest.mark.parametrize(("selector", "path"), SELECTORS)
def test_invalid_selector_is_the_fault_of_its_entry_only(selector: Document, path: str) -> None:
    document = {"nodeConfigs": [{"nodeSelector": selector, "enable": True}]}
    (entry,) = parse_section(SECTIONS[COLOCATION], json.dumps(document)).entries
    assert entry.selector is None
    assert entry.selector_fault is not None
    assert entry.selector_fault.path == f"nodeConfigs[0].nodeSelector.{path}"
    assert read_section(COLOCATION, json.dumps(document)).entries == ()


def test_null_label_of_a_selector_is_the_empty_text() -> None:
    document = {"nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": None}, "matchExpressions": None}}]}
    (entry,) = parse_section(SECTIONS[COLOCATION], json.dumps(document)).entries
    assert entry.selector is not None
    assert entry.selector.matches({"a": ""})
    assert not entry.selector.matches({})


def test_null_entry_is_an_entry_without_selector() -> None:
    (entry,) = parse_section(SECTIONS[COLOCATION], '{"nodeConfigs": [null]}').entries
    assert (entry.name, entry.selector, entry.selector_fault, entry.strategy) == ("", None, None, {})
