"""One way to write amounts, durations and times."""

import pytest
from koordctl.units import amount_text, amounts_text, cfs_quota_text, duration_text, sentence_in_cores, time_text


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 56900, "56.9"), ("kubernetes.io/batch-cpu", 1394, "1.394"), ("kubernetes.io/mid-cpu", 2000, "2"),
        ("memory", 3 << 29, "1.5Gi"), ("kubernetes.io/batch-memory", 1 << 28, "0.25Gi"), ("memory", 0, "0.0Gi"),
        ("ephemeral-storage", 1 << 33, "8.0Gi"), ("hugepages-2Mi", 1 << 31, "2.0Gi"), ("pods", 110, "110"),
        ("cpu", 12_345_678, "12345.678"), ("nvidia.com/gpu", 8, "8"),
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
    [(0.0299, "30 ms"), (26.448, "26.4 s"), (185, "3 min 5 s"), (600, "10 min"), (7450, "2 h 4 min")],
)
def test_durations_have_the_unit_that_fits(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_times_are_to_the_millisecond() -> None:
    assert time_text("2026-01-01T00:00:09.123456Z") == "2026-01-01 00:00:09.123"
    assert time_text("2026-01-01T00:00:30Z") == "2026-01-01 00:00:30"
    assert time_text("") == "-"
