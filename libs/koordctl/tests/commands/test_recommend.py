"""Recommendations as they are shown, from the moment on that their object exists."""

import re

import pytest
from koord_manager.domain.controllers.recommender.settings import DEFAULT_SETTINGS
from koord_manager.domain.what_if.recommendations import RecommendationFate
from koord_manager.domain.what_if.recording import Tally
from koordcore.events.recommendation import ContainerRecommendation, RecommendedAmounts
from koordcore.state.aggregates import RecommendationState
from koordctl.recommend import recommendation_lines, recommendation_rows
from koordctl.replay.recommendations import RecommendationComparison, show_recommendations


def test_an_object_of_which_nothing_has_been_learned_is_shown_beside_the_others() -> None:
    rows = recommendation_rows({("a", "young"): None, ("b", "old"): RecommendationState(seq=3, target="pods app=web")})

    assert [(row[1], row[2], row[-1]) for row in rows] == [
        ("young", "-", "nothing has been learned yet"),
        ("old", "pods app=web", "-"),
    ]
    assert len({len(row) for row in rows}) == 1
    assert recommendation_lines("a", "young", None) == ["Recommendation a/young: nothing has been learned yet"]


def recommended(cpu_milli: int, memory_bytes: int) -> RecommendedAmounts:
    return RecommendedAmounts(cpu_milli=cpu_milli, memory_bytes=memory_bytes)


@pytest.mark.parametrize(
    ("upper", "shown"),
    [
        (recommended(2000, 3 << 30), ("2", "3.0Gi")),
        (recommended(10**14, 10**14), ("-", "-")),
        (recommended(25, 10**14), ("0.025", "-")),
    ],
)
def test_an_upper_bound_that_does_not_exist_yet_is_not_shown_as_an_amount(
    upper: RecommendedAmounts, shown: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    low = recommended(100, 1 << 30)
    container = ContainerRecommendation(
        name="main", target=low, lower_bound=low, upper_bound=upper, uncapped_target=low
    )
    state = RecommendationState(seq=3, target="pods app=web", containers=[container])

    found = [line.strip() for line in recommendation_lines("a", "web", state)]
    assert f"leave alone from cpu 0.1, memory 1.0Gi to cpu {shown[0]}, memory {shown[1]}" in found
    fate = RecommendationFate(id="a=web", recorded=None, rerun=state, outdated=(0, 0))
    tally = Tally(recorded=1, rerun=1)
    show_recommendations(
        RecommendationComparison(tally=tally, in_force=DEFAULT_SETTINGS, settings=DEFAULT_SETTINGS, fates=[fate])
    )
    assert re.search(f"0.1, 1.0Gi +{', '.join(shown)} +0", capsys.readouterr().out)
