"""How many nodes are examined."""

from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.evaluate.sampling import MIN_FEASIBLE_NODES, feasible_nodes_to_find, next_start_index

counts = st.integers(0, 100_000)


@given(counts, st.integers(0, 100))
def test_the_search_never_wants_more_than_there_are_nor_less_than_the_minimum(nodes: int, percentage: int) -> None:
    wanted = feasible_nodes_to_find(nodes, percentage)
    assert min(nodes, MIN_FEASIBLE_NODES) <= wanted <= nodes


@given(st.integers(1, 10_000), st.integers(0, 10_000), st.lists(st.integers(0, 10_000), max_size=20))
def test_the_start_rotates_by_what_was_examined(nodes: int, start: int, examined: list[int]) -> None:
    at = start
    for count in examined:
        at = next_start_index(at, count, nodes)
    assert at % nodes == (start + sum(examined)) % nodes


def test_there_is_a_start_without_nodes() -> None:
    assert next_start_index(7, 3, 0) == 0
