"""Random clusters and pods: each filter and score of the default profile, as kube-scheduler's own code has them.

`make test-oracle` tries some, KOORD_FUZZ=deep all. A failure prints JSON with a small case that shows it; a file with
it is tried again by `PYTHONPATH=tests .venv/bin/python -m support.oracle --case FILE`.
"""

import json

import pytest
from koord_scheduler.domain.plugins.affinity.node_ports import NodePorts
from support.depth import repeats
from support.oracle.program import Oracle
from support.oracle.trying import Tally, compare_seed

pytestmark = pytest.mark.oracle

CASES_IN_A_TEST = 250


@pytest.mark.parametrize("first", range(0, repeats(25_000, 3_000), CASES_IN_A_TEST))
def test_filters_and_scores_are_those_of_kube_scheduler(oracle: Oracle, first: int) -> None:
    tally = Tally()
    for seed in range(first, first + CASES_IN_A_TEST):
        reproduced = compare_seed(oracle, seed, tally)
        assert not reproduced, reproduced
    assert tally.accepted > tally.verdicts * 0.25, "too few pods fit: the comparison says little"


def test_a_plugin_that_forgets_its_rule_is_found_with_a_small_case(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("filter", "row_filter"):
        monkeypatch.setattr(NodePorts, name, _accepts_all)
    found = (compare_seed(oracle, seed, Tally()) for seed in range(100))
    case = json.loads(next(reproduced for reproduced in found if reproduced))["case"]
    assert len(case["nodes"]) == 1
    assert len(json.dumps(case)) < 1000


def _accepts_all(*_: object) -> None:
    return None
