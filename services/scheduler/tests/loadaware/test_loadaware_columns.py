"""The columns of load answer as the definition does, whatever happened before, and cost the touched row only."""

from collections.abc import Iterable, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.config.koordinator_args import AggregatedArgs, LoadAwareSchedulingArgs
from koord_scheduler.domain.plugins.loadaware.assigned import AssignedPod, sums_of, used_by_all
from koord_scheduler.domain.plugins.loadaware.columns import LoadColumns
from koord_scheduler.domain.plugins.loadaware.estimate import rounded_ratio
from koord_scheduler.domain.plugins.loadaware.metric import NodeMetric, PodUsage
from koord_scheduler.domain.plugins.loadaware.plugin import describe_node
from koord_scheduler.domain.plugins.loadaware.rules import (
    EXPIRED_REASON,
    MAX_SCORE,
    NodeFacts,
    PodLoad,
    exceeded_reason,
    expiry,
    node_thresholds,
    score_aggregation,
)
from support.depth import examples
from support.reachable import container_sizes

RESOURCES = ("cpu", "memory")
ROWS = 4
NOTHING: dict[str, int] = {}
amounts = st.integers(0, 12_000)
usages = st.fixed_dictionaries({"cpu": amounts, "memory": amounts})
vectors = st.tuples(st.sampled_from((0, 0, 250, 3_000)), st.integers(0, 5_000))
times = st.integers(-400, 400).map(float)
percents = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 100))
types = st.sampled_from(("", "avg", "p95"))
periods = st.sampled_from((0.0, 300.0, 900.0))
weights = st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 5))

arguments = st.builds(
    LoadAwareSchedulingArgs,
    filter_expired_node_metrics=st.booleans(),
    enable_schedule_when_node_metrics_expired=st.booleans(),
    usage_thresholds=percents,
    prod_usage_thresholds=percents,
    prod_usage_include_sys=st.booleans(),
    score_according_prod_usage=st.booleans(),
    dominant_resource_weight=st.integers(0, 3),
    resource_weights=weights,
    aggregated=st.none()
    | st.builds(
        AggregatedArgs,
        usage_thresholds=percents,
        usage_aggregation_type=types,
        usage_aggregated_duration=periods,
        score_aggregation_type=types,
        score_aggregated_duration=periods,
    ),
)
metrics = st.builds(
    NodeMetric,
    updated_at=st.none() | times,
    report_interval_seconds=st.sampled_from((30.0, 60.0)),
    node_usage=st.none() | usages,
    system_usage=usages,
    aggregated=st.dictionaries(st.tuples(st.sampled_from(("avg", "p95")), st.sampled_from((300.0, 900.0))), usages),
    pods=st.dictionaries(
        st.tuples(st.just("default"), st.sampled_from("abcdef")),
        st.builds(
            PodUsage,
            usage=usages | st.just(NOTHING),
            is_prod=st.booleans(),
            uid=st.sampled_from(("", "uid-a", "uid-b")),
        ),
    ),
)
AGGREGATED = (
    '{"aggregatedUsage": {"usageThresholds": {"cpu": 30, "gpu": 1},'
    '"usageAggregationType": "p95", "usageAggregatedDuration": "5m"}}'
)
PARTS = '{"usageThresholds": {"memory": 40}, "prodUsageThresholds": {"cpu": 50}}'
annotations = st.sampled_from(("", "{bad", PARTS, AGGREGATED))
facts = st.builds(
    NodeFacts,
    allocatable=st.fixed_dictionaries({"cpu": st.integers(0, 16_000)}, optional={"memory": st.integers(0, 20_000)}),
    usage_thresholds=annotations,
)


def assigned(name: str, estimate: tuple[int, int], prod: bool, at: float, window: float | None) -> AssignedPod:
    return AssignedPod(
        uid=f"uid-{name}",
        namespace="default",
        name=name,
        is_prod=prod,
        estimate=estimate,
        assigned_at=at,
        window_end=window,
    )


pods = st.builds(assigned, st.sampled_from("abcdef"), vectors, st.booleans(), times, st.none() | times)
rows = st.integers(0, ROWS - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("node"), rows, facts),
        st.tuples(st.just("gone"), rows, st.none()),
        st.tuples(st.just("metric"), rows, metrics),
        st.tuples(st.just("pod"), rows, pods),
        st.tuples(st.just("off"), rows, st.sampled_from("abcdef")),
        st.tuples(st.just("time"), rows, times),
    ),
    max_size=25,
)


def filter_node(
    pod: PodLoad,
    node: NodeFacts,
    metric: NodeMetric | None,
    assigned: Iterable[AssignedPod],
    args: LoadAwareSchedulingArgs,
    now: float,
) -> str | None:
    """The definition of the filter: why the node is refused, or None if it passes.

    Args:
        now: Unix seconds.

    Source:
        scheduler-core spec, 7.4, step by step
    """
    resources = args.resources
    if pod.of_daemon_set:
        return None
    thresholds = node_thresholds(node.usage_thresholds, args, resources)
    limits = thresholds.prod if pod.is_prod else thresholds.other
    if not limits.is_set or metric is None:
        return None
    if args.filter_expired_node_metrics and now >= expiry(metric, args):
        return None if args.enable_schedule_when_node_metrics_expired else EXPIRED_REASON
    if metric.node_usage is None:
        return None
    sums = sums_of(metric, assigned, args, resources)
    used = sums.prod if limits.by_prod else used_by_all(metric, sums, resources, limits.aggregation)
    for index, resource in enumerate(resources):
        percent, allocatable = limits.percent[index], node.allocatable.get(resource, 0)
        if percent <= 0 or allocatable <= 0:
            continue
        if rounded_ratio((used[index] + pod.estimate[index]) * 100, allocatable) > percent:
            return exceeded_reason(resource, aggregated=limits.aggregation is not None)
    return None


def score_node(
    pod: PodLoad,
    node: NodeFacts,
    metric: NodeMetric | None,
    assigned: Iterable[AssignedPod],
    args: LoadAwareSchedulingArgs,
    now: float,
) -> int:
    """Return how much of the node would be left, 0..100.

        s(r) = (cap - used - e) * 100 // cap, 0 when over or without cap;  dominant = min(100, min over all resources)
        score = (sum of w * s + dominant * D) // (sum of w + D)

    An expired metric scores 0 even where it passes the filter (spec, 16 no. 14).

    Args:
        now: Unix seconds.

    Source:
        scheduler-core spec, 7.5
    """
    if metric is None or metric.node_usage is None or now >= expiry(metric, args):
        return 0
    resources = args.resources
    sums = sums_of(metric, assigned, args, resources)
    by_prod = args.score_according_prod_usage and pod.is_prod
    used = sums.prod if by_prod else used_by_all(metric, sums, resources, score_aggregation(args))
    scores = [
        _left(node.allocatable.get(resource, 0), used[index] + pod.estimate[index])
        for index, resource in enumerate(resources)
    ]
    return weighted_score(scores, resources, args)


def weighted_score(scores: Sequence[int], resources: Sequence[str], args: LoadAwareSchedulingArgs) -> int:
    """Return the weighted mean of the scores of all considered resources; 0 if all weights are 0."""
    dominant_weight = args.dominant_resource_weight
    weights = args.resource_weights
    total = sum(weights.values()) + dominant_weight
    if total == 0:
        return 0
    weighted = sum(score * weights.get(resource, 0) for score, resource in zip(scores, resources, strict=True))
    return (weighted + min(MAX_SCORE, *scores) * dominant_weight) // total


def _left(capacity: int, used: int) -> int:
    return (capacity - used) * MAX_SCORE // capacity if capacity > 0 and used <= capacity else 0


class Model:
    """What happened, in the plainest form."""

    def __init__(self, args: LoadAwareSchedulingArgs, columns: LoadColumns) -> None:
        self.args, self.columns, self.now = args, columns, -1_000.0
        self.nodes: dict[int, NodeFacts] = {}
        self.metrics: dict[int, NodeMetric] = {}
        self.pods: dict[str, tuple[int, AssignedPod]] = {}
        columns.advance(self.now)

    def apply(self, kind: str, row: int, value: object) -> None:
        columns = self.columns
        match kind, value:
            case "node", NodeFacts():
                self.nodes[row] = value
                columns.on_node(row, value)
            case "gone", None:
                self.nodes.pop(row, None)
                self.metrics.pop(row, None)
                self.pods = {uid: entry for uid, entry in self.pods.items() if entry[0] != row}
                columns.off_node(row)
            case "metric", NodeMetric() if row in self.nodes:
                self.metrics[row] = value
                columns.on_metric(row, value)
            case "pod", AssignedPod() if row in self.nodes:
                self.pods[value.uid] = (row, value)
                columns.on_pod(row, value)
            case "off", str():
                self.pods.pop(f"uid-{value}", None)
                columns.off_pod(f"uid-{value}")
            case "time", float():
                self.now = max(self.now, value)
                columns.advance(self.now)
            case _:
                pass

    def on(self, row: int) -> list[AssignedPod]:
        return [pod for at, pod in self.pods.values() if at == row]

    def reason(self, load: PodLoad, row: int) -> str | None:
        return filter_node(load, self.nodes[row], self.metrics.get(row), self.on(row), self.args, self.now)

    def score(self, load: PodLoad, row: int) -> int:
        return score_node(load, self.nodes[row], self.metrics.get(row), self.on(row), self.args, self.now)


@settings(max_examples=examples(300))
@given(arguments, steps, vectors, st.booleans(), st.booleans())
def test_columns_answer_as_the_definition_after_any_history(
    args: LoadAwareSchedulingArgs,
    history: list[tuple[str, int, object]],
    estimate: tuple[int, int],
    prod: bool,
    daemon: bool,
) -> None:
    columns = LoadColumns(args, capacity=2)
    model = Model(args, columns)
    load = PodLoad(estimate=estimate, is_prod=prod, of_daemon_set=daemon)
    for index, (kind, row, value) in enumerate(history):
        before = columns.touched.position
        answers = {at: (model.reason(load, at), model.score(load, at)) for at in model.nodes}
        model.apply(kind, row, value)
        touched = columns.touched.since(before)
        for at, answer in answers.items():
            if at in model.nodes and (model.reason(load, at), model.score(load, at)) != answer:
                assert touched is not None
                assert at in touched
        if index % 3 == 0 or index == len(history) - 1:
            agree(model, columns, load)


def code_of(columns: LoadColumns, load: PodLoad, row: int) -> int:
    function = columns.row_filter(load)
    return 0 if function is None else function(row)


def score_of(columns: LoadColumns, load: PodLoad, row: int) -> int:
    function = columns.row_score(load)
    return 0 if function is None else function(row)


def agree(model: Model, columns: LoadColumns, load: PodLoad) -> None:
    there = np.array(sorted(model.nodes), np.intp)
    codes, scores = columns.filter_codes(load, there), columns.scores(load, there)
    for place, row in enumerate(sorted(model.nodes)):
        code = 0 if codes is None else int(codes[place])
        assert code == code_of(columns, load, row)
        assert (columns.reason(code) if code else None) == model.reason(load, row)
        assert scores[place] == score_of(columns, load, row) == model.score(load, row)


hostile = st.sampled_from((0, 1, -1, 1 << 52, -(1 << 52), (1 << 63) - 1, -(1 << 63), 10**30)) | st.integers(
    -(1 << 63), 1 << 63
)
hostile_usages = st.fixed_dictionaries({"cpu": hostile, "memory": hostile})
hostile_facts = st.builds(
    NodeFacts, allocatable=st.fixed_dictionaries({"cpu": st.integers(0, 16_000) | hostile, "memory": hostile})
)


@settings(max_examples=examples(300))
@given(arguments, hostile_facts, st.lists(hostile_usages, min_size=4, max_size=4), vectors, st.booleans())
def test_scores_stay_within_their_bounds_whatever_is_reported(
    args: LoadAwareSchedulingArgs,
    node: NodeFacts,
    reported: list[dict[str, int]],
    estimate: tuple[int, int],
    prod: bool,
) -> None:
    usage, system, percentile, of_pod = reported
    columns = LoadColumns(args)
    columns.advance(0)
    columns.on_node(0, node)
    columns.on_pod(0, assigned("a", (400, 400), True, 0, None))
    columns.on_metric(
        0,
        NodeMetric(
            updated_at=0,
            node_usage=usage,
            system_usage=system,
            aggregated={(kind, 300.0): percentile for kind in ("avg", "p95")},
            pods={("default", "a"): PodUsage(usage=of_pod, is_prod=True)},
        ),
    )
    load = PodLoad(estimate=estimate, is_prod=prod)
    first = np.array([0], np.intp)
    score, codes = int(columns.scores(load, first)[0]), columns.filter_codes(load, first)
    assert 0 <= score <= MAX_SCORE
    assert score == score_of(columns, load, 0)
    assert (0 if codes is None else int(codes[0])) == code_of(columns, load, 0)


def test_a_node_with_negative_usage_draws_no_pods() -> None:
    columns = one_node(LoadAwareSchedulingArgs())
    columns.on_metric(3, NodeMetric(updated_at=0, node_usage={"cpu": 0, "memory": 0}))
    idle = score_of(columns, LARGE, 3)
    columns.on_metric(3, NodeMetric(updated_at=0, node_usage={"cpu": -(1 << 62), "memory": -(1 << 62)}))
    assert score_of(columns, LARGE, 3) == columns.scores(LARGE)[3] == idle


def one_node(args: LoadAwareSchedulingArgs) -> LoadColumns:
    columns = LoadColumns(args)
    columns.advance(0)
    columns.on_node(3, NodeFacts(allocatable={"cpu": 10_000, "memory": 10_000}))
    columns.on_metric(3, NodeMetric(updated_at=0, node_usage={"cpu": 6_000, "memory": 0}))
    return columns


LARGE = PodLoad(estimate=(1_000, 0))


def test_a_pod_counts_until_the_report_contains_it() -> None:
    columns = one_node(LoadAwareSchedulingArgs())
    assert code_of(columns, LARGE, 3)
    assert columns.reason(code_of(columns, LARGE, 3)) == "node(s) cpu usage exceed threshold"
    assert not code_of(columns, PodLoad(estimate=(549, 0)), 3)
    columns.on_pod(3, assigned("a", (400, 0), True, 10, None))
    assert code_of(columns, PodLoad(estimate=(549, 0)), 3)
    measured = {("default", "a"): PodUsage(usage={"cpu": 100})}
    columns.on_metric(3, NodeMetric(updated_at=71, node_usage={"cpu": 6_000}, pods=measured))
    assert not code_of(columns, PodLoad(estimate=(549, 0)), 3)


def test_expiry_comes_with_time_alone_and_names_the_row() -> None:
    columns = one_node(LoadAwareSchedulingArgs())
    assert columns.next_expiry() == 180
    assert columns.advance(179) == []
    assert score_of(columns, LARGE, 3) > 0
    assert columns.advance(180) == [3]
    assert score_of(columns, LARGE, 3) == 0
    assert columns.reason(code_of(columns, PodLoad(estimate=(0, 0)), 3)) == "node(s) nodeMetric expired"
    columns.on_metric(3, NodeMetric(updated_at=170, node_usage={"cpu": 0}))
    assert code_of(columns, PodLoad(estimate=(0, 0)), 3) == 0
    assert columns.advance(349) == []
    assert columns.advance(350) == [3]


def test_thresholds_of_zero_cost_nothing_and_refuse_nothing() -> None:
    columns = one_node(LoadAwareSchedulingArgs(usage_thresholds={"cpu": 0}))
    columns.advance(10_000)
    assert columns.filter_codes(LARGE) is None


def test_a_pod_that_moves_leaves_its_old_node() -> None:
    columns = one_node(LoadAwareSchedulingArgs())
    columns.on_node(5, NodeFacts(allocatable={"cpu": 1}))
    columns.on_pod(3, assigned("a", (400, 0), True, 10, None))
    columns.on_pod(5, assigned("a", (400, 0), True, 10, None))
    left, now = columns.node_load(3), columns.node_load(5)
    assert left is not None
    assert now is not None
    assert left.pods == ()
    assert [pod.uid for pod in now.pods] == ["uid-a"]
    columns.off_node(5)
    columns.off_pod("uid-a")
    assert 5 not in columns


def test_all_rows_are_judged_without_a_choice() -> None:
    columns = one_node(LoadAwareSchedulingArgs())
    codes, scores = columns.filter_codes(LARGE), columns.scores(LARGE)
    assert codes is not None
    assert codes.shape == scores.shape == (64,)
    assert np.flatnonzero(codes).tolist() == np.flatnonzero(scores).tolist() == [3]


def test_a_person_is_told_what_is_believed_of_a_node() -> None:
    columns = one_node(LoadAwareSchedulingArgs())
    columns.on_pod(3, assigned("b", (400, 0), True, 10, None))
    columns.on_pod(3, assigned("a", (300, 5), False, 5, None))
    columns.on_pod(3, assigned("c", (0, 0), True, 1, None))
    assert describe_node(columns.node_load(3), columns.args) == {
        "pods": [
            {"timestamp": at, "pod": {"namespace": "default", "name": name, "uid": f"uid-{name}"}}
            for name, at in (("c", 1), ("a", 5), ("b", 10))
        ],
        "prodUsage": {"cpu": "0", "memory": "0"},
        "nodeDelta": {"cpu": "700m", "memory": "5"},
        "prodDelta": {"cpu": "400m", "memory": "0"},
        "nodeEstimated": {"cpu": "700m", "memory": "5"},
        "nodeDeltaPods": ["default/a", "default/b"],
        "prodDeltaPods": ["default/b"],
        "nodeEstimatedPods": ["default/a", "default/b"],
    }
    assert describe_node(columns.node_load(7), columns.args) == {}
    columns.on_node(5, NodeFacts(allocatable={"cpu": 1}))
    columns.on_pod(5, assigned("d", (0, 0), True, 1, None))
    assert list(describe_node(columns.node_load(5), columns.args)) == ["pods"], "it has no report"


def test_expiries_of_nodes_that_left_are_forgotten_although_no_time_passes() -> None:
    columns = LoadColumns(LoadAwareSchedulingArgs())
    for life in range(5_000):
        columns.on_node(0, NodeFacts(allocatable={"cpu": 1}))
        columns.on_metric(0, NodeMetric(updated_at=life, node_usage={"cpu": 0}))
        columns.off_node(0)
    columns.on_node(0, NodeFacts(allocatable={"cpu": 1}))
    columns.on_metric(0, NodeMetric(updated_at=9_000, node_usage={"cpu": 0}))
    assert container_sizes(columns)["._expiries"] <= 1024
    assert columns.advance(1e9) == [0]
