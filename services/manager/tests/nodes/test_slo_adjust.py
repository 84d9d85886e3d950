"""Nodes are judged by what is measured of them; the worst are lowered, never all at once, and everybody recovers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_manager.domain.controllers.configuration import slo_adjust_policy
from koord_manager.domain.controllers.node_resources.decide import overcommit
from koord_manager.domain.controllers.slo_adjust.assessment import (
    FULL_WEIGHT,
    HealthState,
    Level,
    NodeWeight,
    Offsets,
    Thresholds,
    assess,
    effective_thresholds,
    guard_weights,
)
from koord_manager.domain.controllers.slo_adjust.controller import LOOKS_AT_ONCE, HealthController
from koord_manager.domain.controllers.slo_adjust.facts import reset_drafts
from koordcore.events.envelope import AggregateRef
from koordcore.events.nodepolicy import MassAbnormalityChanged, NodeHealthAssessed, NodeSloRendered
from koordcore.events.objects import NodeSpecDeleted
from koordcore.protocol.config.sections import SectionName
from koordcore.protocol.config.strategy import default_section
from support.manager.world import ManagerWorld

POLICY = slo_adjust_policy(default_section(SectionName.SLO_ADJUST).cluster)
COLOCATION = {"enable": True, "cpuReclaimThresholdPercent": 60, "memoryReclaimThresholdPercent": 60}


def world(nodes: int = 5, *, enable: bool = True, **settings: float) -> ManagerWorld:
    """`nodes` quiet nodes of 10 cores."""
    made = ManagerWorld()
    made.configure(
        colocation=COLOCATION,
        resource_threshold={"clusterStrategy": {"enable": True}},
        slo_adjust={"enable": enable} | settings,
    )
    for number in range(nodes):
        made.plain_node(f"n{number}")
    return made


def rounds(made: ManagerWorld, health: HealthController, count: int, **cpu_milli: int) -> list[NodeHealthAssessed]:
    """That many rounds a minute apart, every node using 1 core but those named; what was said."""
    said: list[NodeHealthAssessed] = []
    for _ in range(count):
        made.pass_time(60)
        for token in made.view.nodes():
            made.report(token, cpu_milli=cpu_milli.get(token, 1000))
        events = made.take(health.drafts(made.policies, made.view, made.now))
        said.extend(event for event in events if isinstance(event, NodeHealthAssessed))
    return said


def test_nothing_is_said_while_it_is_off() -> None:
    made = world(enable=False)
    assert rounds(made, HealthController(), 5, n0=9900) == []


def test_nothing_is_said_of_healthy_nodes() -> None:
    made = world()
    assert rounds(made, HealthController(), 10) == []


def test_a_hot_node_loses_weight_and_its_water_levels_fall_until_it_recovers() -> None:
    made = world()
    health = HealthController()
    first, *_ = rounds(made, health, 1, n0=9900)
    assert (first.level, first.weight, first.reported_weight, first.cause) == ("Critical", 10, 10, "level")
    assert first.offsets == {"cpu": -5, "memory": 0}
    assert first.reasons[0] == "cpuUtil"
    assert '"weight":10' in first.annotation

    rounds(made, health, 9, n0=9900)
    policy = made.view.policy("n0")
    assert policy is not None
    assert policy.health is not None
    assert policy.health.offsets["cpu"] == -20, "maxDrop"
    assert policy.health.effective["cpuReclaimThresholdPercent"] == 40

    # both the batch resources and the NodeSLO follow
    (slo,) = made.decided(NodeSloRendered, "n0")
    assert slo.event.spec["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 45  # type: ignore[attr-defined]
    made.report("n0", cpu_milli=0)
    found = overcommit(made.inputs("n0"))
    assert found.batch is not None
    assert found.batch.terms["cpu"].margin == 6000

    rounds(made, health, 60)
    policy = made.view.policy("n0")
    assert policy is not None
    assert policy.health is not None
    assert (policy.health.level, policy.health.reported_weight, policy.health.offsets["cpu"]) == ("Healthy", 100, 0)


def test_a_restart_resumes_where_the_log_stands() -> None:
    one, two = world(), world()
    health = HealthController()
    for number in range(6):
        load = {"n0": 9900 if number < 3 else 1000}
        rounds(one, health, 1, **load)
        rounds(two, HealthController(), 1, **load)
    assert one.view.policy("n0") == two.view.policy("n0")


def test_when_most_nodes_look_abnormal_only_the_cap_is_lowered_and_somebody_is_told() -> None:
    made = world(nodes=10)
    health = HealthController()
    made.pass_time(60)
    for token in made.view.nodes():
        made.report(token, cpu_milli=9900)
    events = made.take(health.drafts(made.policies, made.view, made.now))
    said = [event for event in events if isinstance(event, NodeHealthAssessed)]
    assert sum(event.reported_weight < FULL_WEIGHT for event in said) == 2
    assert all(event.offsets["cpu"] == -5 for event in said), "each protects itself all the same"
    (mass,) = [event for event in events if isinstance(event, MassAbnormalityChanged)]
    assert (mass.active, mass.abnormal, mass.cap, mass.nodes) == (True, 10, 2, 10)

    made.pass_time(60)
    for token in made.view.nodes():
        made.report(token, cpu_milli=1000)
    for _ in range(20):
        made.pass_time(60)
        for token in made.view.nodes():
            made.report(token, cpu_milli=1000)
        events = made.take(health.drafts(made.policies, made.view, made.now))
        if any(isinstance(event, MassAbnormalityChanged) and not event.active for event in events):
            return
    raise AssertionError("nobody was told that it is over")


def test_a_large_cluster_is_looked_at_in_parts_and_judged_as_a_whole() -> None:
    made = world(nodes=LOOKS_AT_ONCE + 1)
    health = HealthController()
    for token in made.view.nodes():
        made.report(token, cpu_milli=9900)
    assert health.drafts(made.policies, made.view, made.now) == []
    events = made.take(health.drafts(made.policies, made.view, made.now))
    said = [event for event in events if isinstance(event, NodeHealthAssessed)]
    assert len(said) == LOOKS_AT_ONCE + 1
    assert sum(event.reported_weight < FULL_WEIGHT for event in said) == 41


def test_a_node_that_opts_out_is_left_alone_and_one_that_opts_out_later_is_restored() -> None:
    made = world()
    made.plain_node("shy", **{"node.koordinator.sh/slo-adjust": "false"})
    health = HealthController()
    said = rounds(made, health, 2, shy=9900, n0=9900)
    assert all(event.weight < FULL_WEIGHT for event in said)
    assert made.view.policy("shy") is None

    made.plain_node("n0", **{"node.koordinator.sh/slo-adjust": "false"})
    (restored,) = rounds(made, health, 1, n0=9900)
    assert (restored.cause, restored.reported_weight, restored.offsets) == ("off", 100, {"cpu": 0, "memory": 0})


def test_switched_off_everybody_stands_as_configured() -> None:
    made = world()
    health = HealthController()
    rounds(made, health, 2, n0=9900)
    made.configure(colocation=COLOCATION)
    (restored,) = rounds(made, health, 1, n0=9900)
    assert (restored.cause, restored.reported_weight) == ("off", 100)
    assert rounds(made, health, 3, n0=9900) == []


def test_what_the_log_refused_when_it_was_switched_off_is_said_in_the_next_cycle() -> None:
    made = world()
    health = HealthController()
    rounds(made, health, 2, n0=9900)
    made.configure(colocation=COLOCATION)
    assert len(health.drafts(made.policies, made.view, made.now)) == 1  # and then the log does not take it
    (restored,) = made.take(health.drafts(made.policies, made.view, made.now))
    assert isinstance(restored, NodeHealthAssessed)
    assert (restored.cause, restored.reported_weight) == ("off", 100)
    assert health.drafts(made.policies, made.view, made.now) == []


def test_what_another_leader_lowered_is_reset_by_an_instance_that_leads_again() -> None:
    made = world(enable=False)
    first = HealthController()
    assert rounds(made, first, 1) == []
    made.configure(colocation=COLOCATION, slo_adjust={"enable": True})
    rounds(made, HealthController(), 2, n0=9900)
    made.configure(colocation=COLOCATION)
    (restored,) = rounds(made, first, 1)
    assert (restored.cause, restored.reported_weight) == ("off", 100)


def replaced(made: ManagerWorld, name: str) -> None:
    """Another node has the name of a node that was deleted."""
    made.fact(AggregateRef("nodespec", name), NodeSpecDeleted(name=name))
    made.plain_node(name)


@pytest.mark.parametrize("enable", [True, False])
def test_a_node_does_not_inherit_the_health_of_a_deleted_one(*, enable: bool) -> None:
    made = world()
    health = HealthController()
    rounds(made, health, 3, n0=9900)
    replaced(made, "n0")
    if not enable:
        made.configure(colocation=COLOCATION)
    made.restart()
    (reset,) = made.take(reset_drafts(made.view, "n0"))
    assert isinstance(reset, NodeHealthAssessed)
    assert (reset.cause, reset.previous_level, reset.level, reset.reported_weight, reset.offsets) == (
        "off",
        "Critical",
        "Healthy",
        100,
        {"cpu": 0, "memory": 0},
    )
    assert '"weight":100' in reset.annotation
    assert reset_drafts(made.view, "n0") == []
    assert rounds(made, health, 3) == []


def test_the_first_assessment_of_a_node_does_not_continue_that_of_a_deleted_one() -> None:
    made, fresh = world(), world()
    health = HealthController()
    rounds(made, health, 1, n0=6_800)
    rounds(made, health, 1, n0=7_500)
    policy = made.view.policy("n0")
    assert policy is not None
    assert policy.health is not None
    assert policy.health.level == "Healthy"
    assert policy.health.abnormality > 0
    replaced(made, "n0")
    assert reset_drafts(made.view, "n0") == [], "its weight and thresholds are those of a healthy node"
    made.pass_time(60)
    fresh.pass_time(180)
    again, first = (rounds(each, HealthController(), 1, n0=9_900) for each in (made, fresh))
    assert [each.abnormality for each in again] == [each.abnormality for each in first] == [1.0]


def test_a_node_that_reports_nothing_loses_weight_and_keeps_its_water_levels() -> None:
    made = world(nodes=5)
    health = HealthController()
    for _ in range(20):
        made.pass_time(60)
        for token in made.view.nodes():
            if token != "n0":
                made.report(token, cpu_milli=1000)
        made.take(health.drafts(made.policies, made.view, made.now))
    policy = made.view.policy("n0")
    assert policy is not None
    assert policy.health is not None
    assert (policy.health.level, policy.health.offsets) == ("Critical", {"cpu": 0, "memory": 0})
    assert policy.health.reasons == ["stale"]


states = st.builds(
    HealthState,
    st.floats(0, 1),
    st.sampled_from(Level),
    st.builds(Offsets, st.integers(-20, 0), st.integers(-20, 0)),
    st.integers(0, 100),
)
readings = st.dictionaries(st.sampled_from(sorted(POLICY.signals)), st.floats(-10, 1000), max_size=7)
percents = st.integers(0, 100)


@given(states, readings, st.booleans())
def test_weights_and_offsets_stay_within_their_bounds(
    before: HealthState, signals: dict[str, float], stale: bool
) -> None:
    found = assess(POLICY, before, signals, stale=stale)
    assert POLICY.min_weight <= found.weight <= FULL_WEIGHT
    assert 0 <= found.state.abnormality <= 1
    assert all(-POLICY.max_drop <= offset <= 0 for offset in found.state.offsets)
    if stale:
        assert all(after >= old for after, old in zip(found.state.offsets, before.offsets, strict=True))


@given(
    st.builds(Offsets, st.integers(-20, 0), st.integers(-20, 0)),
    st.builds(Thresholds, percents, percents, percents, percents),
)
def test_water_levels_never_rise_above_what_is_configured(offsets: Offsets, base: Thresholds) -> None:
    levels = effective_thresholds(POLICY, offsets, base)
    assert all(0 <= level <= configured for level, configured in zip(levels, base, strict=True))


@given(
    st.floats(0, 1),
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.tuples(st.floats(0, 1), st.integers(10, 100)), max_size=20
    ),
)
def test_the_guard_lowers_no_more_nodes_than_the_cap(ratio: float, nodes: dict[str, tuple[float, int]]) -> None:
    guarded = guard_weights(ratio, [NodeWeight(name, *entry) for name, entry in nodes.items()])
    assert sum(weight < FULL_WEIGHT for weight in guarded.weights.values()) <= guarded.cap
    assert guarded.weights.keys() == nodes.keys()
