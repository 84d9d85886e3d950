"""Laws of the histogram with decay; its numbers are pinned by the vectors of the manager and the agent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.values import codec
from koordcore.values.decaying_histogram import (
    DecayingHistogram,
    ExponentialBuckets,
    HistogramCheckpoint,
    HistogramOptions,
    LinearBuckets,
)
from koordcore.values.invalid import InvalidInput

DAY = 86_400
NOW = 1_767_225_600

CPU = HistogramOptions(
    buckets=ExponentialBuckets(max_value=1000.0, first_bucket_size=0.01, ratio=1.05),
    epsilon=0.0001,
    half_life_seconds=DAY,
)
NODE_CPU = HistogramOptions(
    buckets=ExponentialBuckets(max_value=1024.0, first_bucket_size=0.025, ratio=1.05),
    epsilon=0.0001,
    half_life_seconds=DAY / 2,
)

samples = st.lists(
    st.tuples(
        st.floats(min_value=0, max_value=2000),
        st.floats(min_value=0.1, max_value=16),
        st.integers(min_value=NOW, max_value=NOW + 300 * DAY),
    ),
    max_size=40,
)


def filled(*added: tuple[float, float, float], options: HistogramOptions = CPU) -> DecayingHistogram:
    histogram = DecayingHistogram(options)
    for value, weight, at in added:
        histogram.add(value, weight, at)
    return histogram


@given(st.floats(min_value=0, max_value=5000))
def test_a_value_lies_in_its_bucket(value: float) -> None:
    buckets = CPU.buckets
    found = buckets.find(value)
    assert 0 <= found < buckets.count
    assert buckets.start(found) <= value * (1 + 1e-9)
    if found < buckets.count - 1:
        assert value < buckets.start(found + 1) * (1 + 1e-9)


@given(samples, st.lists(st.floats(min_value=0, max_value=1), min_size=2))
def test_percentiles_grow_with_their_fraction(added: list[tuple[float, float, int]], fractions: list[float]) -> None:
    histogram = filled(*added)
    found = [histogram.percentile(fraction) for fraction in sorted(fractions)]
    assert found == sorted(found)


@given(samples)
def test_the_reference_never_lets_a_weight_overflow(added: list[tuple[float, float, int]]) -> None:
    histogram = filled(*added)
    assert all(0 < weight < 2.0**101 * 16 * 40 for weight in histogram.weights.values())


@given(samples, samples)
def test_merging_counts_every_sample_of_both(
    ours: list[tuple[float, float, int]], theirs: list[tuple[float, float, int]]
) -> None:
    merged, other = filled(*ours), filled(*theirs)
    before = (dict(other.weights), other.total, other.reference)
    merged.merge(other)
    together = filled(*ours, *theirs)
    for bucket, weight in together.weights.items():  # the references may differ, the shares do not
        share = merged.weights.get(bucket, 0.0) / merged.total
        assert share == pytest.approx(weight / together.total, rel=1e-9, abs=1e-12)
    assert (other.weights, other.total, other.reference) == before


@given(samples)
def test_a_checkpoint_survives_its_wire_form_and_a_second_round(added: list[tuple[float, float, int]]) -> None:
    checkpoint = filled(*added).checkpoint()
    read = codec.decode(codec.encode(checkpoint), HistogramCheckpoint)
    assert read == checkpoint
    loaded = DecayingHistogram(CPU)
    loaded.load(read)
    if loaded.checkpoint().bucket_weights:
        assert loaded.checkpoint().bucket_weights == checkpoint.bucket_weights
        assert loaded.total == pytest.approx(checkpoint.total_weight)


def test_a_sample_a_half_life_old_weighs_half() -> None:
    histogram = filled((1.0, 1.0, NOW), (8.0, 1.0, NOW + DAY))
    old, new = (histogram.weights[CPU.buckets.find(value)] for value in (1.0, 8.0))
    assert new == 2 * old


def test_what_was_added_can_be_taken_back() -> None:
    histogram = filled((1.0, 2.0, NOW), (3.0, 1.0, NOW))
    histogram.subtract(3.0, 1.0, NOW)
    assert histogram.weights == filled((1.0, 2.0, NOW)).weights
    histogram.subtract(1.0, 2.0, NOW)
    assert histogram.is_empty
    assert histogram.total == 0


def test_a_checkpoint_is_added_to_what_is_there_under_the_newer_reference() -> None:
    histogram = filled((1.0, 1.0, NOW + 365 * DAY))
    histogram.load(filled((8.0, 1.0, NOW)).checkpoint())
    assert histogram.percentile(0.999) == CPU.buckets.start(CPU.buckets.find(1.0) + 1)


def test_an_empty_checkpoint_changes_nothing() -> None:
    histogram = filled((1.0, 1.0, NOW))
    histogram.load(HistogramCheckpoint(reference_timestamp=NOW + 365 * DAY, total_weight=7.0))
    assert histogram == filled((1.0, 1.0, NOW))


def test_one_zero_sample_predicts_the_end_of_the_first_bucket() -> None:
    assert filled((0.0, 1.0, NOW), options=NODE_CPU).percentile(0.95) == 0.025


def test_infinity_and_what_is_no_number_stay_within_the_range() -> None:
    linear = LinearBuckets(max_value=10.0, bucket_size=1.0)
    for buckets in (linear, CPU.buckets):
        assert buckets.find(float("inf")) == buckets.count - 1
        assert buckets.find(float("nan")) == 0
        assert buckets.find(-1.0) == 0


def test_histograms_of_other_options_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match="different options"):
        DecayingHistogram(CPU).merge(DecayingHistogram(NODE_CPU))


@pytest.mark.parametrize(
    ("checkpoint", "field"),
    [
        (HistogramCheckpoint(total_weight=1.0, bucket_weights={999: 1}), "bucketWeights"),
        (HistogramCheckpoint(total_weight=1.0, bucket_weights={1: -1}), "bucketWeights.1"),
        (HistogramCheckpoint(total_weight=float("inf"), bucket_weights={1: 1}), "totalWeight"),
    ],
)
def test_a_checkpoint_of_another_histogram_is_refused(checkpoint: HistogramCheckpoint, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        DecayingHistogram(CPU).load(checkpoint)
    assert refused.value.path == field


def test_options_that_cut_nothing_are_refused() -> None:
    for build in (
        lambda: ExponentialBuckets(max_value=1.0, first_bucket_size=0.1, ratio=1.0),
        lambda: LinearBuckets(max_value=1.0, bucket_size=0.0),
        lambda: HistogramOptions(buckets=CPU.buckets, epsilon=0.0),
    ):
        with pytest.raises(InvalidInput):
            build()
