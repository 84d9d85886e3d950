"""How many nodes are examined."""

from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.engine.sampled import MIN_FEASIBLE_NODES, feasible_nodes_to_find

counts = st.integers(0, 100_000)


@given(counts, st.integers(0, 100))
def test_the_search_never_wants_more_than_there_are_nor_less_than_the_minimum(nodes: int, percentage: int) -> None:
    wanted = feasible_nodes_to_find(nodes, percentage)
    assert min(nodes, MIN_FEASIBLE_NODES) <= wanted <= nodes
