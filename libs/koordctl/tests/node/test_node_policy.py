"""The lines that `koord explain node` and `koord recommend` show: every number with where it came from."""

from koordcore.events.nodepolicy import MidTerms, OvercommitTerms, ZoneOvercommit
from koordcore.events.recommendation import (
    ContainerRecommendation,
    RecommendationCondition,
    RecommendedAmounts,
    UsagePercentiles,
)
from koordcore.state.aggregates import NodeHealth, NodePolicyState, RecommendationState
from koordctl.node.lines import formula_line, health_line, mid_line, other_lines, overcommit_lines, promised_lines
from koordctl.recommend import recommendation_lines

GIB = 1 << 30


def terms(**changed: int | str | None) -> OvercommitTerms:
    given = {
        "capacity": 10_000,
        "margin": 4000,
        "system_used": 100,
        "reserved": 500,
        "high_priority_used": 1500,
        "high_priority_request": 4000,
        "result": 4000,
        "policy": "usage",
    }
    return OvercommitTerms(**given | changed)  # type: ignore[arg-type]


def test_the_formula_is_shown_with_its_numbers() -> None:
    line = formula_line("cpu", terms())
    assert "batch cpu 4 = capacity 10 - margin 4 - max(system 0.1, reserved 0.5) - used 1.5" in line


def test_by_request_the_system_does_not_count_and_a_cap_is_named() -> None:
    line = formula_line("cpu", terms(policy="request", result=1000, cap=1000))
    assert "- reserved 0.5 - requested 4, at most 1" in line


def test_a_negative_margin_says_that_more_is_lent_than_there_is() -> None:
    policy = NodePolicyState(seq=1, batch_cpu_milli=9000, terms={"cpu": terms(margin=-2000, result=9000)})
    assert "the node may lend 2 more than it has" in "\n".join(overcommit_lines(policy))


def test_what_is_published_shows_normalization_and_third_parties() -> None:
    policy = NodePolicyState(
        seq=1,
        batch_cpu_milli=3800,
        batch_memory_bytes=GIB,
        terms={"cpu": terms()},
        normalization="1.20",
        origin={"kubernetes.io/batch-cpu": 4800, "kubernetes.io/batch-memory": GIB},
        third_party={"kubernetes.io/batch-cpu": 1000},
        zones={"node-0": ZoneOvercommit(2400, GIB)},
    )
    text = "\n".join(overcommit_lines(policy))
    assert "batch cpu 4.8 = 4 * normalization 1.20" in text
    assert "kubernetes.io/batch-cpu 3.8 = 4.8 - 1 held by third parties" in text
    assert "zone 0: batch cpu 2.4, memory 1.0Gi" in text


def test_a_node_that_shows_more_than_was_computed_says_why() -> None:
    policy = NodePolicyState(seq=1, batch_cpu_milli=600, computed_at="2026-01-01T00:00:00Z")
    shown = {"kubernetes.io/batch-cpu": 5000, "kubernetes.io/batch-memory": GIB, "cpu": 16_000}
    assert list(promised_lines(policy, shown)) == [
        "  the Node shows kubernetes.io/batch-cpu 5, and 0.6 was computed: it shows what its pods request",
        "  the Node shows kubernetes.io/batch-memory 1.0Gi, and 0.0Gi was computed: it shows what its pods request",
    ]
    assert list(promised_lines(policy, {"kubernetes.io/batch-cpu": 600})) == []


def test_mid_resources_show_prediction_or_ratio() -> None:
    dynamic = MidTerms(
        mode="dynamic",
        capacity=10_000,
        prod_reclaimable=3000,
        unused=5000,
        system_or_reserved=500,
        prod_request=4000,
        unallocated_share=550,
        cap=10_000,
        result=3550,
    )
    line = mid_line("cpu", dynamic)
    assert "mid cpu 3.55 = max(min(reclaimable 3, unused 5), 0) + share 0.55" in line
    static = MidTerms(mode="static", capacity=10_000, static_share=1000, cap=500, result=500)
    assert mid_line("cpu", static) == "mid cpu 0.5 = 1 by ratio, at most 0.5   (static)"


def test_health_says_why_and_what_it_does() -> None:
    health = NodeHealth(
        level="Warning",
        abnormality=0.6,
        weight=40,
        reported_weight=100,
        offsets={"cpu": -5, "memory": 0},
        reasons=["cpuUtil"],
    )
    line = health_line(health)
    assert "health Warning (abnormality 0.60: cpuUtil), weight 100 (own 40: too many nodes look abnormal)" in line
    assert line.endswith("threshold offsets cpu -5")


def test_only_what_was_decided_is_listed() -> None:
    assert list(other_lines(NodePolicyState(seq=1))) == []
    policy = NodePolicyState(
        seq=1, ratios_computed=True, amplification='{"cpu":1.20}', ratio_faults={"normalization": "no model"}
    )
    assert list(other_lines(policy)) == [
        'cpu normalization none, amplification {"cpu":1.20}',
        "  normalization: no model",
    ]


def test_a_recommendation_shows_its_samples_and_percentiles() -> None:
    container = ContainerRecommendation(
        name="app",
        target=RecommendedAmounts(500, GIB),
        uncapped_target=RecommendedAmounts(700, GIB),
        lower_bound=RecommendedAmounts(400, GIB),
        upper_bound=RecommendedAmounts(900, 2 * GIB),
        percentiles={"target": UsagePercentiles(0.6, GIB)},
        samples=1441,
        first_sample_at="2026-01-01T00:00:00.000000Z",
        last_sample_at="2026-01-02T00:00:00.000000Z",
        confidence_days=1.0,
    )
    state = RecommendationState(
        seq=3,
        target="Deployment/web",
        mode="Initial",
        containers=[container],
        conditions=[RecommendationCondition(type="LowConfidence", status="False", reason="EnoughHistory")],
        pods=2,
        updated_at="2026-01-02T00:01:00.000000Z",
    )
    text = "\n".join(recommendation_lines("shop", "web", state))
    assert "Recommendation shop/web: Deployment/web, mode Initial, 2 pods" in text
    assert "request cpu 0.5, memory 1.0Gi   (before the policy's caps cpu 0.7, memory 1.0Gi)" in text
    assert "1441 samples from 2026-01-01T00:00:00 to 2026-01-02T00:00:00, confidence 1.00 days" in text
    assert "percentile of target: cpu 0.6 cores, memory 1.0Gi" in text
