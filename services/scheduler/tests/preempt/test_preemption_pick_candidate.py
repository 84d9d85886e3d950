"""Which node a preemptor takes."""

from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.loop.preempt.dry_run import Candidate, VictimCost, pick_candidate

victims = st.builds(VictimCost, st.integers(-100, 100), st.integers(0, 10).map(float))
candidates = st.dictionaries(
    st.sampled_from("abcdef"), st.builds(Candidate, st.lists(victims, min_size=1, max_size=4), st.integers(0, 2))
)


@given(candidates)
def test_no_other_candidate_violates_fewer_budgets_or_spares_a_higher_priority(given_: dict[str, Candidate]) -> None:
    node = pick_candidate(given_)
    if node is None:
        assert not given_
        return
    taken = given_[node]
    for other in given_.values():
        assert taken.pdb_violations <= other.pdb_violations
        if taken.pdb_violations == other.pdb_violations:
            assert max(v.priority for v in taken.victims) <= max(v.priority for v in other.victims)


def test_equal_candidates_give_the_first() -> None:
    same = Candidate([VictimCost(1, 5.0)])
    assert pick_candidate({"b": same, "a": same}) == "b"


def test_a_node_without_victims_is_taken_at_once() -> None:
    assert pick_candidate({"a": Candidate([VictimCost(-5, 1.0)]), "b": Candidate([])}) == "b"
