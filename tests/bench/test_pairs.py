"""The ratio that `python -m tests.bench pairs` reports."""

import pytest
from bench.pairs import ratio_interval


def test_interval_of_ratios_is_symmetric_on_a_log_scale() -> None:
    found = ratio_interval([0.5, 2.0])
    assert found.mean == pytest.approx(1.0)
    assert found.low * found.high == pytest.approx(1.0)
    assert found.low < 0.5


def test_equal_ratios_leave_no_doubt() -> None:
    assert str(ratio_interval([1.02] * 5)) == "1.0200 (1.0200 to 1.0200)"
