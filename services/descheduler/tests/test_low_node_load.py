"""LowNodeLoad: what the vectors do not pin."""

from typing import Any

import pytest
from koord_descheduler.domain.plugins.low_node_load.anomaly import (
    OK,
    AnomalyCondition,
    Detectors,
    UsageKind,
    elapsed,
    observed,
)
from koord_descheduler.domain.plugins.low_node_load.arguments import DEFAULT_POOL, NodePoolArgs, check, decode
from koord_descheduler.domain.plugins.low_node_load.load import (
    NodeClass,
    classes_of,
    hottest_first,
    measured,
    node_capacity,
)
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeMetric
from support.descheduler.views import node_view_from_json

CONDITION = AnomalyCondition(abnormalities=2)


def test_arguments_in_normal_form_are_decoded_to_themselves() -> None:
    raw: dict[str, Any] = {
        "lowThresholds": {"cpu": 10.0},
        "nodePools": [{"name": "x", "highThresholds": {"cpu": 20.0}}],
    }
    once = decode(raw)
    assert [pool.name for pool in once.node_pools] == [DEFAULT_POOL, "x"]
    assert decode(once.as_json()) == once


def test_a_pool_is_checked_with_what_it_takes_from_the_top_level() -> None:
    raw: dict[str, Any] = {
        "lowThresholds": {"cpu": 30.0},
        "nodePools": [{"name": "x", "highThresholds": {"cpu": 20.0}}],
    }
    problems = [str(each) for each in check(decode(raw))]
    assert problems == ["nodePools[1].lowThresholds.cpu: must be at most highThresholds (20), got 30.0"]


def test_resources_that_are_not_amplified_keep_their_allocatable() -> None:
    raw = {
        "metadata": {"name": "n", "annotations": {"node.koordinator.sh/raw-allocatable": '{"cpu": "4"}'}},
        "status": {"allocatable": {"cpu": "8", "memory": "100"}},
    }
    assert node_capacity(node_view_from_json(raw)) == {"cpu": 4000, "memory": 100}


def test_amounts_of_more_than_64_bits_are_measured() -> None:
    nodes = [
        node_view_from_json({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "1Gi"}}})
        for name, cpu in (("huge", "20E"), ("plain", "4"))
    ]
    metrics = {
        "huge": NodeMetric(updated=0.0, system={"cpu": 1000}),
        "plain": NodeMetric(updated=0.0, system={"cpu": 10**30}),
    }
    pool = NodePoolArgs(low_thresholds={"cpu": 20.0}, high_thresholds={"cpu": 50.0})
    load = measured(pool, nodes, ClusterView(now=0.0, nodes=tuple(nodes), pods=(), metrics=metrics), 180.0)
    assert classes_of(load) == [NodeClass.BOTH_LOW, NodeClass.HIGH]
    assert hottest_first(load, [0, 1], {"cpu": 1}, prod=False) == [1, 0]


def test_a_detector_is_kept_from_its_last_abnormal_observation_on() -> None:
    detectors = Detectors()
    detectors.mark_abnormal(UsageKind.NODE, "n", 100.0, CONDITION)
    detectors.mark_normal(UsageKind.NODE, "n", 150.0, CONDITION)
    detectors.forget_older(160.0, 60.0)
    assert (UsageKind.NODE, "n") in detectors.states
    detectors.forget_older(160.5, 60.0)
    assert not detectors.states


def test_an_observation_without_heat_does_not_end_an_anomaly() -> None:
    detectors = Detectors()
    for now in (0.0, 10.0, 20.0):
        detectors.mark_abnormal(UsageKind.NODE, "n", now, CONDITION)
    detectors.reset_if_ok(UsageKind.NODE, "n")
    assert detectors.is_anomalous(UsageKind.NODE, "n", 80.0, CONDITION)
    assert not detectors.is_anomalous(UsageKind.NODE, "n", 80.1, CONDITION)


def test_an_anomaly_without_a_timeout_lasts_a_minute() -> None:
    condition = AnomalyCondition(abnormalities=1, timeout=0.0)
    detector = OK
    for now in (1.0, 2.0):
        detector = observed(detector, now, condition, is_abnormal=True)
    assert elapsed(detector, 62.0, condition).is_anomalous
    assert not elapsed(detector, 62.1, condition).is_anomalous


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"highThresholds": {"cpu": 75.0}}, "nodePools[0].lowThresholds.cpu"),
        (
            {"highThresholds": {"cpu": 75.0}, "lowThresholds": {"cpu": 5.0, "memory": 50.0}},
            "nodePools[0].highThresholds.memory",
        ),
        (
            {"lowThresholds": {"cpu": 5.0}, "nodePools": [{"name": "x", "highThresholds": {"cpu": 9.0, "pods": 9.0}}]},
            "nodePools[1].lowThresholds.pods",
        ),
    ],
)
def test_a_resource_needs_both_thresholds(raw: dict[str, Any], path: str) -> None:
    assert [each.path for each in check(decode(raw))] == [path]


def test_pools_may_complete_the_thresholds_of_the_top_level() -> None:
    raw = {"lowThresholds": {"cpu": 5.0}, "nodePools": [{"name": "x", "highThresholds": {"cpu": 9.0}}]}
    assert not list(check(decode(raw)))
