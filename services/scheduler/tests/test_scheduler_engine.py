"""Decisions: choice, ties, explanation; cached views give what judging afresh gives."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.columns import NodeColumns, node_shape
from koord_scheduler.domain.decision import Placed, Unschedulable
from koord_scheduler.domain.engine import Engine
from koord_scheduler.domain.profile import default_profile
from koord_scheduler.domain.templates import Templates
from koord_scheduler.domain.views import Views
from koordcore.events.envelope import BasedOn
from koordcore.protocol.objects import Node, Pod
from scheduling import node, pod

BASED_ON = BasedOn(7, 0)


def engine_over(*nodes: Node) -> Engine:
    columns = NodeColumns(capacity=2)
    for one in nodes:
        columns.put(one.metadata.name, node_shape(one))
    return Engine(columns, default_profile())


def decide(engine: Engine, wanted: Pod) -> Placed | Unschedulable:
    return engine.decide(Templates(engine.nodes).of(wanted), wanted.metadata.uid, BASED_ON)


def test_best_node_wins_and_the_parts_of_its_score_are_told() -> None:
    engine = engine_over(node("full", cpu="2"), node("wide", cpu="16"), node("mid", cpu="4"))
    decision = decide(engine, pod(requests={"cpu": "1", "memory": "1Gi"}))
    assert isinstance(decision, Placed)
    assert decision.node == "wide"
    top = decision.explanation.top
    assert [entry.node for entry in top] == ["wide", "mid", "full"]
    assert top[0].parts == {"TaintToleration": 300, "NodeAffinity": 0, "NodeResourcesFit": (93 + 87) // 2}
    assert all(entry.total == sum(entry.parts.values()) for entry in top)
    assert decision.explanation.based_on == BASED_ON


def test_unschedulable_pod_gets_one_sentence() -> None:
    engine = engine_over(
        node("a", cpu="1"), node("b", cpu="1"), node("c", unschedulable=True), node("d", cpu="1", memory="1")
    )
    decision = decide(engine, pod(requests={"cpu": "2", "memory": "1Gi"}))
    assert isinstance(decision, Unschedulable)
    assert decision.message == (
        "0/4 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, 3 Insufficient cpu."
    )
    assert [(one.plugin, one.excluded) for one in decision.explanation.exclusions] == [
        ("NodeUnschedulable", 1),
        ("NodeResourcesFit", 3),
    ]


def test_empty_cluster_says_so() -> None:
    decision = decide(engine_over(), pod())
    assert isinstance(decision, Unschedulable)
    assert decision.message == "0/0 nodes are available: the cluster has no nodes."


def test_ties_are_spread_and_do_not_depend_on_the_order_of_nodes() -> None:
    names = [f"n{number}" for number in range(20)]
    forward, backward = engine_over(*map(node, names)), engine_over(*map(node, reversed(names)))
    chosen = {uid: decide(forward, pod(uid)) for uid in map(str, range(50))}
    again = {uid: decide(backward, pod(uid)) for uid in chosen}
    nodes = [decision.node for decision in chosen.values() if isinstance(decision, Placed)]
    assert len(set(nodes)) > 10
    assert nodes == [decision.node for decision in again.values() if isinstance(decision, Placed)]


def test_node_that_is_gone_is_not_considered() -> None:
    engine = engine_over(node("a"), node("b"))
    assert isinstance(decide(engine, pod("x")), Placed)
    engine.nodes.remove("a")
    decision = decide(engine, pod("x"))
    assert isinstance(decision, Placed)
    assert (decision.node, decision.explanation.nodes_considered) == ("b", 1)


AMOUNTS = st.integers(0, 6)
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
KEYS = st.sampled_from(["a", "b"])


@st.composite
def some_node(draw: st.DrawFn) -> Node:
    zone = draw(st.sampled_from(["", "a", "b"]))
    return node(
        draw(st.sampled_from([f"n{number}" for number in range(6)])),
        cpu=str(draw(AMOUNTS)),
        memory=f"{draw(AMOUNTS)}Gi",
        pods=str(draw(st.integers(0, 3))),
        labels={"zone": zone} if zone else {},
        taints=[{"key": draw(KEYS), "effect": draw(EFFECTS)} for _ in range(draw(st.integers(0, 2)))],
        unschedulable=draw(st.integers(0, 4)) == 4,
    )


@st.composite
def some_pod(draw: st.DrawFn) -> Pod:
    tolerated = draw(st.sampled_from(["", "a", "b"]))
    preferred = [
        {
            "weight": draw(st.integers(1, 5)),
            "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": [draw(KEYS)]}]},
        }
        for _ in range(draw(st.integers(0, 2)))
    ]
    return pod(
        "p",
        {"cpu": str(draw(st.integers(0, 3))), "memory": f"{draw(st.integers(0, 3))}Gi"},
        nodeSelector={"zone": "a"} if draw(st.booleans()) else {},
        tolerations=[{"key": tolerated, "operator": "Exists"}] if tolerated else [],
        affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
    )


STEPS = st.lists(
    st.tuples(st.just("node"), some_node())
    | st.tuples(st.just("pod"), some_pod())
    | st.tuples(st.just("gone"), some_node()),
    min_size=5,
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_cached_views_equal_fresh_ones_and_counts_add_up(steps: list[tuple[str, Node | Pod]]) -> None:
    engine = engine_over()
    templates = Templates(engine.nodes)
    for step, value in steps:
        if step == "node":
            assert isinstance(value, Node)
            engine.nodes.put(value.metadata.name, node_shape(value))
        elif step == "gone":
            if engine.nodes.row(value.metadata.name) is not None:
                engine.nodes.remove(value.metadata.name)
        else:
            assert isinstance(value, Pod)
            template = templates.of(value)
            decision = engine.decide(template, value.metadata.uid, BASED_ON)
            assert decision == Engine(engine.nodes, engine.profile).decide(template, value.metadata.uid, BASED_ON)
            kept, fresh = engine.views.of(template), Views(engine.nodes, engine.profile).of(template)
            np.testing.assert_array_equal(kept.verdicts, fresh.verdicts)
            np.testing.assert_array_equal(kept.totals, fresh.totals)
            explanation = decision.explanation
            excluded = sum(one.excluded for one in explanation.exclusions)
            assert explanation.nodes_feasible + excluded == explanation.nodes_considered == len(engine.nodes)
            for one in explanation.exclusions:
                assert one.excluded <= sum(one.reasons.values())
            if isinstance(decision, Placed):
                engine.nodes.take(decision.row, template.demand)
                assert (engine.nodes.free[:, decision.row] >= 0).all()
