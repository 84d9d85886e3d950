"""One way to write amounts, durations and times."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordctl.access.clock import parse_moment
from koordctl.render.units import (
    age_text,
    amount_text,
    amounts_text,
    cfs_quota_text,
    duration_text,
    seconds_between,
    sentence_in_cores,
    time_text,
)


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 56900, "56.9"), ("kubernetes.io/batch-cpu", 1394, "1.394"), ("kubernetes.io/mid-cpu", 2000, "2"),
        ("memory", 3 << 29, "1.5Gi"), ("kubernetes.io/batch-memory", 1 << 28, "0.25Gi"), ("memory", 0, "0.0Gi"),
        ("ephemeral-storage", 1 << 33, "8.0Gi"), ("hugepages-2Mi", 1 << 31, "2.0Gi"), ("pods", 110, "110"),
        ("cpu", 12_345_678, "12345.678"), ("nvidia.com/gpu", 8, "8"), ("memory", 1, "0.0Gi"),
    ],
)  # fmt: skip
def test_cpu_is_in_cores_memory_in_gibibytes_the_rest_plain(resource: str, amount: int, text: str) -> None:
    assert amount_text(resource, amount) == text


def test_lists_are_in_the_order_of_their_names() -> None:
    assert amounts_text({"memory": 1 << 33, "cpu": 4000}) == "cpu 4, memory 8.0Gi"
    assert amounts_text({}) == "-"


def test_quota_is_said_in_cores() -> None:
    assert (cfs_quota_text(-1), cfs_quota_text(250_000)) == ("unlimited", "2.5 cores")


def test_milli_cores_in_a_sentence_become_cores() -> None:
    sentence = "gets its min 4 + 19100m by weight 12000m/24000m of 16000m, node-1m stays"
    assert sentence_in_cores(sentence) == "gets its min 4 + 19.1 by weight 12/24 of 16, node-1m stays"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0299, "30 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (26.448, "26.4 s"),
        (59.96, "1 min"),
        (185, "3 min 5 s"),
        (600, "10 min"),
        (3599.7, "1 h"),
        (7199, "2 h"),
        (7450, "2 h 4 min"),
        (90_000, "25 h"),
    ],
)
def test_durations_have_the_unit_that_fits(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.integers(0, 10**7), st.integers(0, 10**6))
def test_a_duration_is_the_difference_of_the_times_that_are_shown(begin_us: int, passed_us: int) -> None:
    begin, end = (f"2026-01-01T00:00:{us // 10**6:02}.{us % 10**6:06}Z" for us in (begin_us, begin_us + passed_us))
    shown = [parse_moment(time_text(text)) for text in (begin, end)]
    milliseconds = (shown[1] - shown[0]) // timedelta(milliseconds=1)
    assert seconds_between(begin, end) == milliseconds / 1000
    if milliseconds < 1000:
        assert duration_text(seconds_between(begin, end)) == f"{milliseconds} ms"


def test_clocks_that_disagree_let_no_time_pass_backwards() -> None:
    assert seconds_between("2026-01-01T00:00:09.5Z", "2026-01-01T00:00:09.1Z") == 0


def test_times_are_to_the_millisecond() -> None:
    assert time_text("2026-01-01T00:00:09.123456Z") == "2026-01-01 00:00:09.123 UTC"
    assert time_text("2026-01-01T00:00:30Z") == "2026-01-01 00:00:30 UTC"
    assert time_text("") == "-"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"), (-1, "0s"), (1, "1s"), (70, "70s"), (119, "119s"), (120, "2m"), (190, "3m10s"), (599, "9m59s"),
        (600, "10m"), (47 * 60, "47m"), (3 * 3600 - 1, "179m"), (3 * 3600, "3h"), (4 * 3600 + 1800, "4h30m"),
        (8 * 3600, "8h"), (47 * 3600, "47h"), (48 * 3600, "2d"), (50 * 3600, "2d2h"), (192 * 3600, "8d"),
        (365 * 86400, "365d"), (730 * 86400, "2y"), (768 * 86400, "2y38d"), (8 * 365 * 86400, "8y"),
        (10 * 365 * 86400 + 86400, "10y"),
    ],
)  # fmt: skip
def test_an_age_is_that_of_kubectl(seconds: int, shown: str) -> None:
    """The cases are of TestHumanDuration of apimachinery, and its bounds."""
    now = datetime(2026, 11, 29, tzinfo=UTC)
    assert age_text((now - timedelta(seconds=seconds)).isoformat(), now) == shown


def test_an_age_without_a_begin_or_an_end_is_unknown() -> None:
    assert age_text("", datetime.now(UTC)) is age_text("2026-11-29T00:00:00Z", None) is None
