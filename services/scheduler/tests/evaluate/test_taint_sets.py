"""Ids of sets of taints: equal sets have equal ids, and the id of a set that no node has is used again."""

import hypothesis.strategies as st
from hypothesis import given
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.columns.node_shape import TaintSets, node_shape
from koord_scheduler.domain.engine.decision import Unschedulable
from koord_scheduler.domain.engine.frameworks import Frameworks
from koordcore.events.envelope import BasedOn
from koordcore.protocol.objects import Pod, Taint
from support.scheduler.scheduling import frameworks, node, pod

ROWS = 4
SETS = st.lists(st.builds(Taint, key=st.sampled_from("ab"), effect=st.just("NoSchedule")), max_size=2).map(tuple)


@given(st.lists(st.tuples(st.integers(0, ROWS - 1), SETS)))
def test_ids_stand_for_the_present_sets(changes: list[tuple[int, tuple[Taint, ...]]]) -> None:
    sets, ids, expected = TaintSets(), [0] * ROWS, [tuple[Taint, ...]()] * ROWS
    for row, taints in changes:
        before, ids[row], expected[row] = ids[row], sets.take(taints), taints
        sets.give(before)
        assert [sets.sets[id_] for id_ in ids] == expected
        assert all((ids[a] == ids[b]) == (expected[a] == expected[b]) for a in range(ROWS) for b in range(ROWS))
    assert len(sets.sets) <= ROWS + 2  # a new set may need an id before that of the former one is free


def test_taints_with_a_time_as_value_need_no_id_each() -> None:
    """The cluster autoscaler adds such a taint to each node that it is about to delete."""
    nodes = NodeColumns()
    for life in range(1000):
        taints = [{"key": "ToBeDeletedByClusterAutoscaler", "value": f"{life}", "effect": "NoSchedule"}]
        nodes.put(f"node-{life}", node_shape(node(f"node-{life}", taints=taints)))
        nodes.remove(f"node-{life}")
    assert len(nodes.taint_sets.sets) == 2


def test_explanation_names_the_present_taint_although_its_id_is_that_of_a_former_one() -> None:
    made, wanted = frameworks(), pod()
    for value in ("first", "second", "third"):
        put(made, value)
        if value != "second":  # nobody asks while the node has the second taint, so the id of the first is free again
            assert reasons(made, wanted) == {f"node(s) had untolerated taint {{key: {value}}}": 1}


def put(made: Frameworks, value: str) -> None:
    known = node("n", taints=[{"key": "key", "value": value, "effect": "NoSchedule"}])
    shape = node_shape(known)
    row, _ = made.cluster.nodes.put("n", shape)
    made.cluster.put_node(row, known, shape)


def reasons(made: Frameworks, wanted: Pod) -> dict[str, int]:
    subject = made.cluster.pod_classes.read(wanted).subject
    decision = made.first.engine.decide(subject, wanted.metadata.uid, BasedOn(7, 0))
    assert isinstance(decision, Unschedulable)
    (exclusion,) = decision.explanation.exclusions
    return dict(exclusion.reasons)
