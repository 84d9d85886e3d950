"""A simulated day: LowNodeLoad cools the nodes with few evictions, and every evicted pod finds a place."""

import pytest
from support.descheduler.simulated_day import LOAD, UPSTREAM, new_day, run_day

pytestmark = pytest.mark.slow

NODES, MINUTES = 6, 360


def test_nodes_are_rarely_hot_and_few_pods_are_evicted() -> None:
    without = run_day(new_day(NODES), None, minutes=MINUTES)
    load = run_day(new_day(NODES), LOAD, minutes=MINUTES)
    upstream = run_day(new_day(NODES), UPSTREAM, minutes=MINUTES)
    assert without.hot_minutes > 200
    assert load.hot_minutes <= 0.25 * without.hot_minutes
    assert 0 < load.evictions <= upstream.evictions / 3
    assert load.homeless == 0
