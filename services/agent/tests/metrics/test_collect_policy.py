"""How a node is measured follows its NodeMetric: read from the desired state, pushed, and never half taken."""

from collections.abc import Mapping
from typing import Any

import pytest
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import SeriesStore
from koord_agent.domain.node.desired import apply_push, view_of
from koord_agent.domain.node.policies import CollectPolicy, collect_policy_of
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin, StoredEvent
from koordcore.events.nodepolicy import NodeMetricPolicyRendered
from koordcore.ports.desired import DesiredNode, Push
from koordcore.protocol.config.sections import MemoryCollectPolicy
from koordcore.values.invalid import InvalidInput

WRITTEN: dict[str, Any] = {
    "reportIntervalSeconds": 10,
    "aggregateDurationSeconds": 900,
    "nodeAggregatePolicy": {"durations": ["1m30s", "2h"]},
    "nodeMemoryCollectPolicy": "usageWithPageCache",
}
EFFECTIVE = CollectPolicy(
    report_interval_seconds=30,
    aggregate_duration_seconds=900,
    durations_seconds=(90, 7200),
    memory=MemoryCollectPolicy.WITH_PAGE_CACHE,
)


def push(spec: Mapping[str, Any]) -> Push:
    ref = AggregateRef("nodepolicy", "n")
    origin = Origin(causation_id="c", correlation_id="c", actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
    draft = Draft(ref=ref, event=NodeMetricPolicyRendered(spec=dict(spec)), expected_last=0)
    (sealed,) = CATALOGUE.seal([draft], origin)
    return Push(StoredEvent(seq=1, ref=ref, headers=sealed.headers, body=sealed.body), 0)


def test_every_field_of_the_policy_is_taken_and_the_rest_has_its_default() -> None:
    assert collect_policy_of(WRITTEN).effective() == EFFECTIVE
    assert collect_policy_of(None) == collect_policy_of({"nodeAggregatePolicy": None}) == CollectPolicy()
    assert collect_policy_of({"nodeAggregatePolicy": {"durations": []}}).durations_seconds == ()


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("reportIntervalSeconds", "60", "reportIntervalSeconds"),
        ("aggregateDurationSeconds", True, "aggregateDurationSeconds"),
        ("nodeAggregatePolicy", ["5m"], "nodeAggregatePolicy"),
        ("nodeAggregatePolicy", {"durations": "5m"}, "nodeAggregatePolicy.durations"),
        ("nodeAggregatePolicy", {"durations": ["5m", "soon"]}, "nodeAggregatePolicy.durations[1]"),
        ("nodeAggregatePolicy", {"durations": ["-5m"]}, "nodeAggregatePolicy.durations[0]"),
        ("nodeMemoryCollectPolicy", "everything", "nodeMemoryCollectPolicy"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(field: str, value: object, path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        collect_policy_of({field: value})
    assert refused.value.path == path


def test_a_rendered_policy_is_in_force_once_pushed_and_kept_on_disk() -> None:
    view = apply_push(view_of(DesiredNode(node="n")), push(WRITTEN))
    assert view is not None
    assert view.collect == EFFECTIVE
    assert view_of(view.desired).collect == EFFECTIVE


def test_a_policy_that_cannot_be_read_leaves_the_last_one_and_is_told() -> None:
    view = view_of(DesiredNode(node="n", metric_policy=WRITTEN))
    after = apply_push(view, push({**WRITTEN, "nodeMemoryCollectPolicy": "everything"}))
    assert after is not None
    assert after.collect == EFFECTIVE
    assert "nodeMemoryCollectPolicy" in after.collect_problem


def test_pods_are_kept_as_long_as_a_report_looks_back() -> None:
    store = SeriesStore(retention_ms=3_600_000, object_retention_ms=600_000)
    for second in range(0, 1_800, 10):
        store.append(Kind.POD_CPU, second * 1000, 1.0, "u")
    assert len(store.between(Kind.POD_CPU, 0, 1_800_000, "u").values) == 60
    for window_ms, kept_ms in ((900_000, 900_000), (7_200_000, 3_600_000), (1, 600_000)):
        store.keep_objects_for(window_ms)
        assert store.object_retention_ms == kept_ms
    store.keep_objects_for(1_200_000)
    for second in range(1_800, 3_600, 10):
        store.append(Kind.POD_CPU, second * 1000, 1.0, "u")
    assert len(store.between(Kind.POD_CPU, 0, 3_600_000, "u").values) == 120
