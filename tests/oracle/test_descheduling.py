"""Random clusters and policies: which pods each plugin evicts, as the Kubernetes descheduler's own code has it.

`make test-oracle` tries some, KOORD_FUZZ=deep all. A failure prints JSON with a small case that shows it; a file with
it is tried again by `PYTHONPATH=tests .venv/bin/python -m support.oracle.descheduling --case FILE`.
"""

import json

import pytest
from koord_descheduler.domain.plugins.upstream.default_evictor import DefaultEvictor
from support.depth import repeats
from support.oracle.descheduling.program import Descheduler
from support.oracle.descheduling.trying import Tally, compare_seed

pytestmark = pytest.mark.oracle

CASES_IN_A_TEST = 500


@pytest.mark.parametrize("first", range(0, repeats(20_000, 2_000), CASES_IN_A_TEST))
def test_the_pods_are_evicted_that_the_kubernetes_descheduler_evicts(descheduler: Descheduler, first: int) -> None:
    tally = Tally()
    for seed in range(first, first + CASES_IN_A_TEST):
        reproduced = compare_seed(descheduler, seed, tally)
        assert not reproduced, reproduced
    assert all(tally.by_plugin.values()), "a plugin evicts nothing: the comparison says little of it"
    assert tally.evicted > tally.pods * 0.03


def test_an_evictor_that_forgets_its_rules_is_found_with_a_small_case(
    descheduler: Descheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DefaultEvictor, "refusals", _none)
    found = (compare_seed(descheduler, seed, Tally()) for seed in range(100))
    case = json.loads(next(reproduced for reproduced in found if reproduced))["case"]
    assert len(case["pods"]) == 1
    assert len(json.dumps(case)) < 1000


def _none(*_: object) -> tuple[str, ...]:
    return ()
