"""Sampling is an option, is told, is the same on every replay, and never misses the only node there is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.configuration import shipped_configuration
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.config.effective import effective_configuration
from koord_scheduler.domain.engine.decision import UNRESTRICTED, Optimisations, Placed, Restriction, Unschedulable
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.loop.profiles import frameworks_of
from koordcore.events.envelope import BasedOn
from koordcore.events.pod import PlacementExplanation
from support.depth import examples
from support.scheduler.scheduling import node, pod

SHIPPED = shipped_configuration()
TEN_PERCENT = SHIPPED + b"\npercentageOfNodesToScore: 10\n"
NODES = 1500


def cluster_of(configuration: bytes = SHIPPED, *, relaxed: bool = False, roomy: range = range(NODES)) -> Frameworks:
    """Many nodes, of which some have room."""
    optimisations = Optimisations(random_relaxation=relaxed)
    made = frameworks_of(effective_configuration(configuration), optimisations=optimisations)
    for number in range(NODES):
        one = node(f"n{number}", cpu=str(4 + number % 5) if number in roomy else "0", unschedulable=number % 100 == 7)
        made.cluster.put_node(made.cluster.nodes.put(one.metadata.name, node_shape(one))[0], one, node_shape(one))
    return made


def decide(
    made: Frameworks, uid: str, position: int = 7, restriction: Restriction = UNRESTRICTED
) -> Placed | Unschedulable:
    subject = made.cluster.pod_classes.read(pod(uid, {"cpu": "1"})).subject
    return made.first.engine.decide(subject, uid, BasedOn(position, 0), restriction)


def adds_up(explanation: PlacementExplanation) -> bool:
    excluded = sum(each.excluded for each in explanation.exclusions)
    examined = explanation.nodes_considered
    return explanation.nodes_feasible + excluded == examined == NODES - explanation.nodes_unexamined


def test_all_nodes_are_examined_unless_it_is_asked_for() -> None:
    explanation = decide(cluster_of(), "p").explanation
    assert (explanation.nodes_considered, explanation.nodes_unexamined) == (NODES, 0)


def test_percentage_bounds_the_search() -> None:
    explanation = decide(cluster_of(TEN_PERCENT), "p").explanation
    assert 150 <= explanation.nodes_feasible < 450
    assert explanation.nodes_unexamined > 1000
    assert adds_up(explanation)


def test_relaxation_stops_when_better_nodes_stop_turning_up() -> None:
    explanation = decide(cluster_of(relaxed=True), "p").explanation
    assert 100 <= explanation.nodes_feasible < 400
    assert adds_up(explanation)
    assert explanation.top[0].parts["NodeResourcesFit"] == max(
        each.parts["NodeResourcesFit"] for each in explanation.top
    )


@pytest.fixture(scope="module")
def pair() -> tuple[Frameworks, Frameworks]:
    return cluster_of(relaxed=True), cluster_of(relaxed=True)


@settings(max_examples=examples(15))
@given(uid=st.text("abc", min_size=1, max_size=6), position=st.integers(0, 9))
def test_search_begins_where_pod_and_position_say(pair: tuple[Frameworks, Frameworks], uid: str, position: int) -> None:
    one, other = pair
    decide(other, "before")  # what was looked at before does not matter
    assert decide(one, uid, position) == decide(other, uid, position)


def test_the_only_node_with_room_is_found_and_where_there_is_none_all_were_examined() -> None:
    found = decide(cluster_of(relaxed=True, roomy=range(900, 901)), "p")
    assert isinstance(found, Placed)
    assert found.node == "n900"
    refused = decide(cluster_of(relaxed=True, roomy=range(0)), "p")
    assert isinstance(refused, Unschedulable)
    assert adds_up(refused.explanation)
    assert refused.explanation.nodes_unexamined == 0


def test_preferred_nodes_are_always_examined() -> None:
    made = cluster_of(relaxed=True)
    for row in (3, 700, 1400):
        found = decide(made, "p", restriction=Restriction(preferred=(row,)))
        assert isinstance(found, Placed)
        assert found.row == row
        assert adds_up(found.explanation)


def test_it_is_told_from_other_configurations() -> None:
    versions = {cluster_of(relaxed=relaxed).first.engine.policy_version for relaxed in (False, True)}
    assert len(versions) == 2
