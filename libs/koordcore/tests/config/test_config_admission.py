"""Every range of protocol spec, 6.3 to 6.7, from both sides, and the selector rules of 6.11."""

from __future__ import annotations

import json
from typing import Any

import pytest
from koordcore.protocol.config.admission import (
    ConfigReview,
    NodeLabels,
    Reason,
    validate_config_map,
    validate_node_labels,
)

Document = dict[str, Any]
INVALID = Reason.CONFIG_PARAM_INVALID

QOS_CLASSES = ("lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot")


def judge(
    data: Document, *, old: Document | None = None, nodes: tuple[NodeLabels, ...] = (), check_names: bool = False
) -> ConfigReview:
    def texts(documents: Document) -> dict[str, str]:
        return {key: value if isinstance(value, str) else json.dumps(value) for key, value in documents.items()}

    return validate_config_map(texts(data), texts(old or {}), nodes, check_names=check_names)


def nested(path: str, value: object) -> Document:
    result: Any = value
    for part in reversed(path.split(".")):
        result = {part: result}
    return result


# key, field path inside the strategy, lowest and highest accepted value (None = unbounded)
RANGES: list[tuple[str, str, float | None, float | None]] = [
    *(
        ("colocation-config", field, 1, None)
        for field in (
            "metricAggregateDurationSeconds",
            "metricReportIntervalSeconds",
            "degradeTimeMinutes",
            "updateTimeThresholdSeconds",
        )
    ),
    *(
        ("colocation-config", field, 0, None)
        for field in (
            "cpuReclaimThresholdPercent",
            "memoryReclaimThresholdPercent",
            "batchCPUThresholdPercent",
            "batchMemoryThresholdPercent",
        )
    ),
    *(
        ("colocation-config", field, 0, 100)
        for field in (
            "midCPUThresholdPercent",
            "midMemoryThresholdPercent",
            "midUnallocatedPercent",
            "midStaticCPUReservedPercent",
            "midStaticMemoryReservedPercent",
        )
    ),
    *(
        ("resource-threshold-config", field, 0, 100)
        for field in (
            "cpuSuppressThresholdPercent",
            "cpuSuppressMinPercent",
            "memoryEvictThresholdPercent",
            "cpuEvictBEUsageThresholdPercent",
            "cpuEvictThresholdPercent",
        )
    ),
    ("resource-threshold-config", "cpuEvictTimeWindowSeconds", 1, None),
    ("resource-threshold-config", "evictEnabledPriorityThreshold", None, None),
    ("resource-threshold-config", "allocatableEvictPriorityThreshold", 0, 7999),
    *(
        ("resource-qos-config", f"{owner}.{field}", low, high)
        for owner in QOS_CLASSES
        for field, low, high in (
            ("cpuQOS.groupIdentity", -1, 2),
            ("cpuQOS.schedIdle", 0, 1),
            ("resctrlQOS.catRangeEndPercent", 0, 100),
            ("resctrlQOS.mbaPercent", 0, 100),
            ("memoryQOS.minLimitPercent", 0, 100),
            ("memoryQOS.lowLimitPercent", 0, 100),
            ("memoryQOS.throttlingPercent", 0, 100),
            ("memoryQOS.wmarkRatio", 0, 100),
            ("memoryQOS.wmarkScalePermill", 1, 1000),
            ("memoryQOS.wmarkMinAdj", -25, 50),
            ("memoryQOS.priorityEnable", 0, 1),
            ("memoryQOS.oomKillGroup", 0, 1),
            ("memoryQOS.priority", 0, 12),
            ("memoryQOS.pageCacheLimitPercent", 0, 100),
            ("networkQOS.ingressRequest", 0, 100),
            ("networkQOS.ingressLimit", 0, 100),
            ("networkQOS.egressRequest", 0, 100),
            ("networkQOS.egressLimit", 0, 100),
        )
    ),
    ("cpu-burst-config", "cpuBurstPercent", 1, 10000),
    ("cpu-burst-config", "cfsQuotaBurstPercent", 100, None),
    ("cpu-burst-config", "cfsQuotaBurstPeriodSeconds", -1, None),
    ("cpu-burst-config", "sharePoolThresholdPercent", 0, 100),
    ("system-config", "minFreeKbytesFactor", 1, None),
    ("system-config", "watermarkScaleFactor", 1, 400),
    ("system-config", "memcgReapBackGround", 0, 1),
    ("system-config", "pageCacheLimitEnabled", 0, 1),
    ("system-config", "schedIdleSaverWmark", None, None),
]


def in_cluster(key: str, strategy: Document) -> tuple[Document, str]:
    return (strategy, "") if key == "colocation-config" else ({"clusterStrategy": strategy}, "clusterStrategy.")


def in_entry(key: str, strategy: Document) -> tuple[Document, str]:
    entries = "nodeConfigs" if key == "colocation-config" else "nodeStrategies"
    return {entries: [{"nodeSelector": {"matchLabels": {"a": "b"}}, **strategy}]}, f"{entries}[0]."


@pytest.mark.parametrize(("key", "field", "low", "high"), RANGES)
@pytest.mark.parametrize("place", [in_cluster, in_entry])
def test_range(key: str, field: str, low: float | None, high: float | None, place: Any) -> None:
    for edge, step in ((low, -1), (high, 1)):
        if edge is None:
            document, _ = place(key, nested(field, step * 1_000_000))
            assert judge({key: document}).allowed
            continue
        document, prefix = place(key, nested(field, edge))
        assert judge({key: document}).allowed
        document, prefix = place(key, nested(field, edge + step))
        verdict = judge({key: document})
        assert (verdict.allowed, verdict.reason, verdict.field) == (False, INVALID, f"{key}.{prefix}{field}")
        assert (verdict.value, bool(verdict.rule)) == (edge + step, True)
        assert verdict.field in verdict.message


@pytest.mark.parametrize(("value", "allowed"), [(1e-9, True), (1, True), (0, False), (1.001, False), (-1, False)])
def test_resource_diff_threshold_is_above_zero_and_at_most_one(value: float, allowed: bool) -> None:
    assert judge({"colocation-config": {"resourceDiffThreshold": value}}).allowed is allowed


def threshold(**fields: int) -> ConfigReview:
    return judge({"resource-threshold-config": {"clusterStrategy": fields}})


# upper, lower, may the upper stand alone, highest value of the lower
PAIRS = [
    ("memoryEvictThresholdPercent", "memoryEvictLowerPercent", True),
    ("cpuEvictThresholdPercent", "cpuEvictLowerPercent", True),
    ("memoryAllocatableEvictThresholdPercent", "memoryAllocatableEvictLowerPercent", False),
    ("cpuAllocatableEvictThresholdPercent", "cpuAllocatableEvictLowerPercent", False),
    ("cpuEvictBESatisfactionUpperPercent", "cpuEvictBESatisfactionLowerPercent", False),
]


@pytest.mark.parametrize(("upper", "lower", "alone"), PAIRS)
def test_pair_of_bounds(upper: str, lower: str, alone: bool) -> None:
    assert threshold(**{upper: 60, lower: 59}).allowed
    assert threshold(**{upper: 60}).allowed is alone
    for bad in ({upper: 60, lower: 60}, {upper: 60, lower: 61}, {lower: 59}, {upper: -1, lower: -2}):
        assert (threshold(**bad).allowed, threshold(**bad).reason) == (False, INVALID)
    above = threshold(**{upper: 110, lower: 101})
    assert above.allowed is ("Allocatable" in upper)


def test_reference_rule_for_pairs_refuses_every_lone_bound() -> None:
    for upper, lower, _ in PAIRS:
        for document in ({upper: 60}, {lower: 60}):
            data = {"resource-threshold-config": json.dumps({"clusterStrategy": document})}
            assert not validate_config_map(data, {}, (), check_names=False, require_both_bounds=True).allowed


@pytest.mark.parametrize(
    ("start", "end", "allowed"),
    [
        (0, 1, True),
        (99, 100, True),
        (30, 30, False),
        (31, 30, False),
        (5, None, False),
        (None, 5, True),
        (-1, 5, False),
    ],
)
def test_cache_range_start_is_below_its_end(start: int | None, end: int | None, allowed: bool) -> None:
    resctrl = {"catRangeStartPercent": start, "catRangeEndPercent": end}
    verdict = judge({"resource-qos-config": {"clusterStrategy": {"beClass": {"resctrlQOS": resctrl}}}})
    assert verdict.allowed is allowed


def network(requests: list[tuple[str, str, object]], system: Document | None = None) -> ConfigReview:
    strategy: Document = {}
    for owner, field, value in requests:
        strategy.setdefault(owner, {"networkQOS": {}})["networkQOS"][field] = value
    data: Document = {"resource-qos-config": {"clusterStrategy": strategy}}
    return judge(data if system is None else {**data, "system-config": system})


TENG: Document = {"clusterStrategy": {"totalNetworkBandwidth": "10G"}}
NETWORK: list[tuple[list[tuple[str, str, object]], Document | None, bool]] = [
    ([("lsrClass", "ingressRequest", 50), ("lsClass", "ingressRequest", 50)], None, True),
    ([("lsrClass", "ingressRequest", 50), ("lsClass", "ingressRequest", 51)], None, False),
    ([("lsrClass", "ingressRequest", 50), ("lsClass", "egressRequest", 51)], None, True),
    (
        [("lsrClass", "egressRequest", 50), ("lsClass", "egressRequest", 30), ("beClass", "egressRequest", 21)],
        None,
        False,
    ),
    ([("systemClass", "ingressRequest", 80), ("lsClass", "ingressRequest", 80)], None, True),
    ([("lsrClass", "ingressLimit", 80), ("lsClass", "ingressLimit", 80)], None, True),
    ([("lsrClass", "ingressRequest", 50), ("lsClass", "ingressRequest", "1M")], None, False),
    ([("lsrClass", "ingressRequest", 50), ("lsClass", "egressRequest", "1M")], None, False),
    ([("lsrClass", "ingressRequest", 50), ("lsClass", "ingressLimit", "1M")], None, True),
    ([("lsrClass", "ingressRequest", "9G"), ("lsClass", "ingressRequest", "9G")], None, True),
    ([("lsrClass", "ingressRequest", "9G"), ("lsClass", "ingressRequest", "1G")], TENG, True),
    ([("lsrClass", "ingressRequest", "9G"), ("lsClass", "ingressRequest", "1001M")], TENG, False),
    ([("lsrClass", "ingressRequest", "9G"), ("lsClass", "egressRequest", "9G")], TENG, True),
    ([("lsrClass", "ingressRequest", "99G")], {"clusterStrategy": {"totalNetworkBandwidth": "0"}}, True),
    ([("lsrClass", "ingressRequest", 100)], {"clusterStrategy": {"totalNetworkBandwidth": "10"}}, True),
    ([("lsrClass", "ingressRequest", "50a")], None, False),
    ([("beClass", "egressLimit", "")], None, False),
]


@pytest.mark.parametrize(("requests", "system", "allowed"), NETWORK)
def test_network_requests(requests: list[tuple[str, str, object]], system: Document | None, allowed: bool) -> None:
    verdict = network(requests, system)
    assert (verdict.allowed, verdict.reason) == (allowed, None if allowed else INVALID)


def test_unreadable_unchanged_system_section_counts_as_empty() -> None:
    qos = {"clusterStrategy": {"lsClass": {"networkQOS": {"ingressRequest": "9G"}}}}
    assert judge({"resource-qos-config": qos, "system-config": "{"}, old={"system-config": "{"}).allowed


@pytest.mark.parametrize(
    ("label", "bandwidth", "allowed"), [("x", "1G", False), ("x", "2G", True), ("other", "1G", True), ("x", None, True)]
)
def test_bandwidth_of_an_entry_is_that_of_the_equal_selector(label: str, bandwidth: str | None, allowed: bool) -> None:
    qos = {"nodeSelector": {"matchLabels": {"p": "x"}}, "lsClass": {"networkQOS": {"ingressRequest": "2G"}}}
    system = {"nodeSelector": {"matchLabels": {"p": label}}, "totalNetworkBandwidth": bandwidth}
    data: Document = {
        "resource-qos-config": {"nodeStrategies": [qos]},
        "system-config": {"clusterStrategy": {"totalNetworkBandwidth": "5G"}, "nodeStrategies": [system]},
    }
    assert judge(data).allowed is allowed


def test_block_lists_are_not_looked_into() -> None:
    blocks = [{"ioCfg": {"ioWeightPercent": 0, "modelReadBPS": -1}}]
    assert judge({"resource-qos-config": {"clusterStrategy": {"beClass": {"blkioQOS": {"blocks": blocks}}}}}).allowed


KEYS = ["colocation-config", "resource-threshold-config", "resource-qos-config", "cpu-burst-config", "system-config"]


@pytest.mark.parametrize("key", KEYS)
def test_malformed_text_is_a_parse_failure_unless_it_was_there_before(key: str) -> None:
    for text in ("{", "[]", '{"nodeStrategies": 1, "nodeConfigs": 1}'):
        verdict = judge({key: text})
        assert (verdict.allowed, verdict.reason) == (False, Reason.PARSE_CONFIG_FAIL)
        assert verdict.field.startswith(key)
        assert judge({key: text}, old={key: text}).allowed
    assert judge({key: ""}).allowed
    assert judge({}, old={key: "{"}).allowed


@pytest.mark.parametrize(
    "key", ["host-application-config", "cpu-normalization-config", "resource-amplification-config", "anything"]
)
def test_other_keys_are_not_checked(key: str) -> None:
    assert judge({key: "{"}).allowed


def test_first_failing_key_in_the_order_of_the_checks_decides() -> None:
    data: Document = {"cpu-burst-config": "{", "system-config": {"clusterStrategy": {"minFreeKbytesFactor": 0}}}
    assert judge(data).field.startswith("system-config")


def entry(selector: Document | None, name: str = "") -> Document:
    return {"name": name, **({} if selector is None else {"nodeSelector": selector})}


NO_SELECTORS: list[Document | None] = [
    None,
    {},
    {"matchLabels": {}},
    {"matchLabels": {}, "matchExpressions": []},
    {"matchExpressions": [{"key": "k", "operator": "out", "values": ["v"]}]},
    {"matchExpressions": [{"key": "k", "operator": "In"}]},
    {"matchExpressions": [{"key": "k", "operator": "Exists", "values": ["v"]}]},
    {"matchExpressions": [{"operator": "Exists"}]},
    {"matchLabels": {"a b": "c"}},
]


@pytest.mark.parametrize("selector", NO_SELECTORS)
@pytest.mark.parametrize("key", KEYS)
def test_every_entry_needs_a_usable_selector(key: str, selector: Document | None) -> None:
    entries = "nodeConfigs" if key == "colocation-config" else "nodeStrategies"
    verdict = judge({key: {entries: [entry(selector)]}})
    assert (verdict.allowed, verdict.reason) == (False, INVALID)
    assert verdict.field.startswith(f"{key}.{entries}[0].nodeSelector")


@pytest.mark.parametrize(
    ("names", "allowed"), [(["a", "b"], True), (["a", "a"], False), (["a", ""], False), (["a", "A"], True)]
)
def test_names_are_checked_only_when_asked_for(names: list[str], allowed: bool) -> None:
    entries = [entry({"matchLabels": {"p": str(index)}}, name) for index, name in enumerate(names)]
    data = {"cpu-burst-config": {"nodeStrategies": entries}}
    assert judge(data).allowed
    verdict = judge(data, check_names=True)
    assert (verdict.allowed, verdict.reason) == (allowed, None if allowed else INVALID)


def labels(**pairs: str) -> Document:
    return {"matchLabels": pairs}


def expression(key: str, operator: str, *values: str) -> Document:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def expressions(*items: Document) -> Document:
    return {"matchExpressions": list(items)}


OVERLAPS: list[tuple[Document, Document, bool]] = [
    (labels(x="1"), labels(x="1"), True),
    (labels(x="1"), labels(x="2"), False),
    (labels(x="1"), labels(x="1", y="2"), True),
    (labels(x="1"), labels(y="1"), False),
    (expressions(expression("x", "In", "1", "2")), labels(x="2"), True),
    (expressions(expression("x", "In", "1", "2")), labels(x="3"), False),
    (expressions(expression("x", "Exists")), labels(x="3"), True),
    (expressions(expression("x", "DoesNotExist")), labels(x="3"), False),
    (expressions(expression("x", "NotIn", "3")), labels(x="4"), True),
    # node i takes value i mod count of each: (1,a) (2,b) (1,c) (2,a) (1,b) (2,c)
    (
        expressions(expression("x", "In", "1", "2"), expression("y", "In", "a", "b", "c")),
        labels(x="1", y="c"),
        True,
    ),
    # not among the first entry's own nodes (1,a) (2,b), but the second entry's node is matched by both
    (expressions(expression("x", "In", "1", "2"), expression("y", "In", "a", "b")), labels(x="1", y="b"), True),
]


@pytest.mark.parametrize(("first", "second", "overlap"), OVERLAPS)
def test_selectors_that_can_claim_the_same_node(first: Document, second: Document, overlap: bool) -> None:
    data = {"colocation-config": {"nodeConfigs": [entry(first, "a"), entry(second, "b")]}}
    verdict = judge(data)
    assert verdict.allowed is not overlap
    if overlap:
        assert verdict.reason is Reason.NODE_STRATEGIES_OVERLAP
        assert json.loads(verdict.message) == {"config": "colocation-config", "strategies": ["a", "b"]}


def test_virtual_nodes_pair_equal_positions_of_equally_long_lists() -> None:
    first = expressions(expression("x", "In", "1", "2"), expression("y", "In", "a", "b"))
    second = expressions(expression("x", "In", "1"), expression("y", "In", "b"), expression("z", "DoesNotExist"))
    third = expressions(expression("x", "In", "3"))
    data: Document = {"cpu-burst-config": {"nodeStrategies": [entry(first, "a"), entry(third, "c")]}}
    assert judge(data).allowed
    # seen from the second entry, its only node (x=1, y=b) is matched by both
    data = {"cpu-burst-config": {"nodeStrategies": [entry(first, "a"), entry(second, "b")]}}
    assert judge(data).reason is Reason.NODE_STRATEGIES_OVERLAP


TWO: Document = {"cpu-burst-config": {"nodeStrategies": [entry(labels(x="1"), "a"), entry(labels(y="1"), "b")]}}


def test_existing_node_claimed_twice() -> None:
    quiet = NodeLabels(name="n0", labels={"x": "1"})
    torn = NodeLabels(name="n1", labels={"x": "1", "y": "1"})
    assert judge(TWO, nodes=(quiet,)).allowed
    verdict = judge(TWO, nodes=(quiet, torn))
    assert (verdict.allowed, verdict.reason) == (False, Reason.EXIST_NODE_CONFLICT)
    assert json.loads(verdict.message) == {
        "config": "cpu-burst-config",
        "strategies": ["a", "b"],
        "exampleNodes": ["n1"],
    }
    assert verdict.http_message().startswith('___{"reason":"ExistNodeConfict","message":')
    assert json.loads(verdict.http_message().strip("_"))["message"] == verdict.message
    assert judge(TWO, old=TWO, nodes=(torn,)).allowed


def test_two_keys_never_conflict_with_each_other() -> None:
    data: Document = {
        "cpu-burst-config": {"nodeStrategies": [entry(labels(x="1"), "a")]},
        "system-config": {"nodeStrategies": [entry(labels(x="1"), "a")]},
    }
    assert judge(data, nodes=(NodeLabels(name="n", labels={"x": "1"}),)).allowed


def test_node_whose_labels_changed() -> None:
    data = {key: json.dumps(value) for key, value in TWO.items()} | {"system-config": "{"}
    assert validate_node_labels(data, NodeLabels(name="n", labels={"x": "1"})).allowed
    verdict = validate_node_labels(data, NodeLabels(name="n", labels={"x": "1", "y": "1"}))
    assert verdict.reason is Reason.EXIST_NODE_CONFLICT


def test_allowed_verdict_has_nothing_to_say() -> None:
    verdict = judge({})
    assert (verdict.allowed, verdict.reason, verdict.message, verdict.http_message()) == (True, None, "", "")
