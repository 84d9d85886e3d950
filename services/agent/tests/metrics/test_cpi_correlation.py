"""Correlation of a suspect's usage with a victim's CPI: missing points and suspects that did nothing."""

import pytest
from koord_agent.domain.metrics.cpi import correlation


def test_minutes_without_a_cpi_of_the_victim_do_not_dilute_the_correlation() -> None:
    complete = correlation(1.0, [2.0, 2.0], [1.0, 1.0])
    assert complete == pytest.approx(0.5)
    assert correlation(1.0, [2.0, None, 2.0, None], [1.0, 9.0, 1.0, 9.0]) == pytest.approx(complete)


def test_a_suspect_that_was_idle_while_cpi_was_measured_has_no_correlation() -> None:
    assert correlation(1.0, [2.0, None], [0.0, 5.0]) == 0.0
    assert correlation(1.0, [2.0, 3.0], [0.0, 0.0]) == 0.0
    assert correlation(1.0, [None, None], [1.0, 1.0]) == 0.0
