"""Histories of usage and kills: which requests are recommended, as the Vertical Pod Autoscaler's own code has it.

`make test-oracle` tries some random ones, KOORD_FUZZ=deep all, and each recorded one. A failure prints JSON with a
small case that shows it; a file with it is tried again by
`PYTHONPATH=tests .venv/bin/python -m support.oracle.recommending --case FILE`.
"""

import json

import pytest
from koord_manager.domain.controllers.recommender.model import ContainerModel
from support.depth import repeats
from support.oracle.recommending.differences import WANTED, Wanted
from support.oracle.recommending.histories import DAY, HOUR, MINUTE
from support.oracle.recommending.program import Recommender
from support.oracle.recommending.recorded import recorded
from support.oracle.recommending.trying import Tally, compare, compare_seed, differences

pytestmark = pytest.mark.oracle

CASES_IN_A_TEST = 500


@pytest.mark.parametrize("first", range(0, repeats(20_000, 2_000), CASES_IN_A_TEST))
def test_the_requests_are_recommended_that_the_autoscaler_recommends(recommender: Recommender, first: int) -> None:
    tally = Tally()
    for seed in range(first, first + CASES_IN_A_TEST):
        reproduced = compare_seed(recommender, seed, tally)
        assert not reproduced, reproduced
    assert tally.learned > tally.verdicts * 0.05, "hardly a target comes from samples: the comparison says little"
    assert tally.rounded < tally.verdicts * 0.01


@pytest.mark.parametrize("step", [MINUTE, 10 * MINUTE, HOUR, DAY])
def test_recorded_usage_is_judged_as_by_the_autoscaler(recommender: Recommender, step: int) -> None:
    tally = Tally()
    compare(recommender, recorded(step), tally)
    assert not tally.differences
    assert tally.learned > 100


@pytest.mark.parametrize("wanted", WANTED, ids=[each.name for each in WANTED])
def test_a_wanted_difference_is_still_one(recommender: Recommender, wanted: Wanted) -> None:
    assert differences(recommender, wanted.history)


def test_a_recommender_that_hears_of_no_kill_is_found_with_a_small_case(
    recommender: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ContainerModel, "add_oom", _deaf)
    found = (compare_seed(recommender, seed, Tally()) for seed in range(100))
    case = json.loads(next(reproduced for reproduced in found if reproduced))["case"]
    assert len(case["history"]["events"]) <= 4
    assert len(json.dumps(case)) < 1000


def _deaf(*_: object, requested_bytes: float) -> bool:
    return False
