"""LowNodeLoad: what the vectors do not pin."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
    PoolLoad,
    classes_of,
    hottest_first,
    measured,
    node_capacity,
)
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeMetric
from support.depth import examples
from support.descheduler.views import node_view_from_json, pod_view_from_json

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


HOSTILE = st.sampled_from((-1, 1 << 52, -(1 << 52), (1 << 63) - 1, -(1 << 63), 10**30)) | st.integers(
    -(1 << 63), 1 << 63
)


def of_nodes(
    pool: NodePoolArgs, used: Sequence[int], pods: Sequence[int] = (), *, cpu: str = "4", prod: bool = True
) -> PoolLoad:
    """The measured load of nodes that report these amounts of cpu and memory outside of pods, and in one pod each."""
    raw = {"status": {"allocatable": {"cpu": cpu, "memory": "4Ki"}}}
    nodes = [node_view_from_json({**raw, "metadata": {"name": f"n{index}"}}) for index in range(len(used))]
    running = [
        pod_view_from_json(
            {
                "metadata": {
                    "name": f"p{index}",
                    "namespace": "d",
                    "uid": f"p{index}",
                    "labels": {"koordinator.sh/priority-class": "koord-prod" if prod else "koord-batch"},
                },
                "spec": {"nodeName": f"n{index}", "containers": [{"name": "c"}]},
            }
        )
        for index in range(len(pods))
    ]
    metrics = {
        f"n{index}": NodeMetric(
            updated=0.0,
            system={"cpu": amount, "memory": amount},
            pods={f"d/p{index}": {"cpu": pods[index], "memory": pods[index]}} if index < len(pods) else {},
        )
        for index, amount in enumerate(used)
    }
    return measured(pool, nodes, ClusterView(now=0.0, nodes=tuple(nodes), pods=tuple(running), metrics=metrics), 180.0)


@settings(max_examples=examples(200))
@given(st.lists(HOSTILE, min_size=2, max_size=4), st.lists(HOSTILE, max_size=2), st.booleans(), st.booleans())
def test_whatever_nodes_report_is_measured_within_bounds(
    used: list[int], pods: list[int], deviation: bool, prod: bool
) -> None:
    pool = NodePoolArgs(
        low_thresholds={"cpu": 20.0, "memory": 20.0},
        high_thresholds={"cpu": 50.0, "memory": 50.0},
        prod_low_thresholds={"cpu": 20.0},
        prod_high_thresholds={"cpu": 50.0},
        use_deviation_thresholds=deviation,
    )
    load = of_nodes(pool, used, pods, prod=prod)
    assert (load.usage >= 0).all()
    assert (load.prod_usage >= 0).all()
    for limits in (load.limits, load.prod_limits):
        assert (limits.low >= 0).all()
        assert (limits.high <= load.capacity[:, : load.compared]).all()
    assert len(classes_of(load)) == len(used)
    for rows in (False, True):
        assert sorted(hottest_first(load, range(len(used)), {"cpu": 1}, prod=rows)) == list(range(len(used)))


@pytest.mark.parametrize("lie", [-(1 << 62), 1 << 62])
def test_the_lie_of_one_node_does_not_move_the_mean_beyond_what_it_can_use(lie: int) -> None:
    pool = NodePoolArgs(low_thresholds={"cpu": 20.0}, high_thresholds={"cpu": 20.0}, use_deviation_thresholds=True)
    others = [2000] * 9
    load = of_nodes(pool, [*others, lie])
    assert NodeClass.HIGH not in classes_of(load)[:9]
    honest = of_nodes(pool, [*others, 0 if lie < 0 else 4000])
    assert (load.limits.high == honest.limits.high).all()
    assert (load.limits.low == honest.limits.low).all()


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
