"""Correlation of a suspect's usage with a victim's CPI: missing points and suspects that did nothing."""

import pytest
from koord_agent.domain.metrics.cpi import CpiSample, correlation, is_outlier, learn_baseline


def test_minutes_without_a_cpi_of_the_victim_do_not_dilute_the_correlation() -> None:
    complete = correlation(1.0, [2.0, 2.0], [1.0, 1.0])
    assert complete == pytest.approx(0.5)
    assert correlation(1.0, [2.0, None, 2.0, None], [1.0, 9.0, 1.0, 9.0]) == pytest.approx(complete)


def test_a_suspect_that_was_idle_while_cpi_was_measured_has_no_correlation() -> None:
    assert correlation(1.0, [2.0, None], [0.0, 5.0]) == 0.0
    assert correlation(1.0, [2.0, 3.0], [0.0, 0.0]) == 0.0
    assert correlation(1.0, [None, None], [1.0, 1.0]) == 0.0


def test_minutes_without_a_usage_of_the_suspect_are_left_out() -> None:
    complete = correlation(1.0, [2.0, 4.0], [1.0, 3.0])
    assert correlation(1.0, [2.0, 9.0, 4.0, None], [1.0, None, 3.0, None]) == pytest.approx(complete)
    assert correlation(1.0, [2.0, 3.0], [None, None]) == 0.0


def test_samples_that_were_not_measured_are_in_no_baseline_and_no_outliers() -> None:
    samples = [CpiSample(age_days=0, task=task, cpi=cpi) for task, cpi in (("a", 1.0), ("a", None), ("b", 3.0))]
    learnt = learn_baseline(samples, min_tasks=2, min_samples_per_task=1)
    assert learnt is not None
    assert (learnt.mean, learnt.stddev, learnt.robust) == (2.0, 1.0, True)
    assert learn_baseline(samples[1:2]) is None
    learnt = learn_baseline(samples, min_tasks=1, min_samples_per_task=2)
    assert learnt is not None
    assert not learnt.robust, "task a has one sample"
    assert not is_outlier(9.0, None, 2.0)
