"""Time series: order, retention, size, aggregates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_agent.domain.metrics.metric_kinds import LABELS, Kind
from koord_agent.domain.metrics.series import (
    Metrics,
    NoSamples,
    Points,
    Sample,
    Series,
    SeriesStore,
    aggregate,
    is_cold,
    percentile_index,
)
from koordcore.values.invalid import InvalidInput

samples = st.lists(st.tuples(st.integers(0, 50_000), st.floats(-1e6, 1e6)), max_size=60)


@given(samples=samples, start=st.integers(0, 50_000), length=st.integers(0, 50_000))
def test_a_query_gives_the_samples_of_its_window_in_time_order(
    samples: list[tuple[int, float]], start: int, length: int
) -> None:
    series = Series(retention_ms=1_000_000)
    kept = [sample for sample in samples if series.append(*sample)]
    points = series.between(start, start + length)
    expected = sorted((at for at, _ in kept if start <= at <= start + length))
    assert list(points.times_ms) == expected
    assert sorted(points.values) == sorted(value for at, value in kept if start <= at <= start + length)


@given(steps=st.lists(st.integers(0, 500), min_size=1, max_size=200), retention=st.integers(1, 5_000))
def test_memory_is_bounded_and_expired_samples_are_never_seen(steps: list[int], retention: int) -> None:
    series, now = Series(retention), 0
    for step in steps:
        now += step
        series.append(now, 1.0)
        assert all(at >= now - retention for at in series.between(0, now).times_ms)
        live = len(series.between(0, now).times_ms)
        assert len(series) <= 2 * live + 8


def test_a_sample_more_than_a_minute_late_is_dropped() -> None:
    series = Series(retention_ms=1_000_000)
    assert series.append(100_000, 1.0)
    assert series.append(40_000, 2.0)
    assert not series.append(39_999, 3.0)
    assert list(series.between(0, 200_000).values) == [2.0, 1.0]


def test_last_takes_the_first_of_equal_times() -> None:
    series = Series(retention_ms=1_000)
    for value in (7.0, 8.0):
        series.append(5, value)
    assert series.last(0, 10) == 7.0
    assert series.last(6, 10) is None


def test_aggregates_of_nothing_are_an_error_except_count() -> None:
    empty = Points(times_ms=(), values=())
    assert aggregate(empty, "count") == 0.0
    for name in ("avg", "p50", "p99", "last", "weird"):
        with pytest.raises(NoSamples):
            aggregate(empty, name)


def test_percentile_index_is_computed_in_single_precision() -> None:
    # in double 0.95 * 20 = 19.0 exactly; f32(0.95) is below 0.95, its product with 20 rounds back up to 19.0
    assert percentile_index(20, 0.95) == 18
    assert percentile_index(100, 0.99) == 98
    assert percentile_index(1, 0.5) == 0


def test_a_window_is_warm_from_half_of_it_on() -> None:
    assert not is_cold(Points(times_ms=(0, 150), values=(1.0, 1.0)), 300)
    assert is_cold(Points(times_ms=(0, 149), values=(1.0, 1.0)), 300)


def test_garbage_collection_drops_silent_series_and_keeps_the_size_cap() -> None:
    store = SeriesStore(retention_ms=10_000, max_bytes=16 * 20)
    store.append(Kind.POD_CPU, 0, 1.0, "gone")
    for at in range(10_000, 10_100):
        store.append(Kind.POD_CPU, at, 1.0, "busy")
    store.collect_garbage(now_ms=11_000)
    assert store.objects(Kind.POD_CPU) == ["busy"]
    assert store.size_bytes <= 16 * 20
    assert store.last(Kind.POD_CPU, 0, 20_000, "busy") == 1.0


def test_forgotten_objects_leave_no_series() -> None:
    store = SeriesStore()
    store.append(Kind.POD_CPU, 1, 1.0, "a")
    store.append(Kind.POD_CPU, 1, 1.0, "b")
    store.forget(["a"])
    assert store.objects(Kind.POD_CPU) == ["b"]


def test_every_kind_says_its_labels() -> None:
    assert set(LABELS) == set(Kind)


@pytest.mark.parametrize(
    ("kind", "of"),
    [(Kind.NODE_CPU, "x"), (Kind.POD_CPU, ""), (Kind.CONTAINER_CPI, "u"), (Kind.CONTAINER_CPI, ("u", "c"))],
)
def test_labels_that_are_not_those_of_the_kind_store_nothing(kind: Kind, of: str | tuple[str, ...]) -> None:
    store = SeriesStore()
    with pytest.raises(InvalidInput):
        store.append_all([Sample(Kind.NODE_MEMORY, 1, 2.0), Sample(kind, 1, 1.0, of)])
    assert len(store) == 0


def test_the_view_of_strategies_answers_for_one_moment() -> None:
    store = SeriesStore()
    for at in range(0, 10_001, 1_000):
        store.append(Kind.POD_CPU, at, at / 1000, "u")
    store.append(Kind.CONTAINER_CPI, 9_000, 30.0, ("u", "c", "cycle"))
    store.append(Kind.CONTAINER_CPI, 9_000, 20.0, ("u", "c", "instruction"))
    view = Metrics(store=store, now_ms=8_000, interval_ms=1_000)
    assert view.last(Kind.POD_CPU, "u") == 8.0
    assert view.average(Kind.POD_CPU, 2_000, "u") == 7.0
    assert view.over(Kind.POD_CPU, "p90", 8_000, "u") == 7.0
    assert view.count(Kind.POD_CPU, 2_000, "u") == 3
    assert view.last(Kind.POD_CPU, "gone") is None
    later = Metrics(store=store, now_ms=13_000, interval_ms=1_000)
    assert later.last(Kind.POD_CPU, "u") is None
    assert later.cycles_per_instruction("u", "c", within_ms=60_000) == 1.5
