"""Recommendations as they are shown, from the moment on that their object exists."""

from koordcore.state.aggregates import RecommendationState
from koordctl.commands.recommend import recommendation_lines, recommendation_rows


def test_an_object_of_which_nothing_has_been_learned_is_shown_beside_the_others() -> None:
    rows = recommendation_rows({("a", "young"): None, ("b", "old"): RecommendationState(seq=3, target="pods app=web")})

    assert [(row[1], row[2], row[-1]) for row in rows] == [
        ("young", "-", "nothing has been learned yet"),
        ("old", "pods app=web", "-"),
    ]
    assert len({len(row) for row in rows}) == 1
    assert recommendation_lines("a", "young", None) == ["Recommendation a/young: nothing has been learned yet"]
