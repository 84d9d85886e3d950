"""A histogram whose samples lose weight with age, for the recommender and the peak prediction of nodes.

    weight of a sample at t  = w * 2^((t - reference) / half life)
    percentile p             = the end of the bucket in which the running sum of weights reaches p * total

Old samples are not changed; newer ones get a larger weight. When the weight of a new sample would exceed 2^100, the
reference moves and all stored weights are scaled.

    kind of user     cpu: first bucket, range, half life      memory: first bucket, range, half life
    recommender      0.01 core, 1000, 24 h                    1e7 bytes, 1e12, 24 h
    node prediction  0.025 core, 1024, 12 h                   5 MiB, 2 TiB, 24 h

Source: manager spec, 15.3; agent spec, 8.1 and 8.3 (the same rules with other sizes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import msgspec

from koordcore.values.invalid import InvalidInput

# 0001-01-01 UTC in unix seconds. The reference moves in multiples of the half life counted from here.
_YEAR_ONE: Final = -62_135_596_800
_MAX_EXPONENT: Final = 100  # Largest distance between reference and sample, in half lives, before the reference moves
_CHECKPOINT_SCALE: Final = 10_000  # Weight of the heaviest bucket in a checkpoint


@dataclass(frozen=True, kw_only=True)
class LinearBuckets:
    """Division of a value range into buckets of equal size. The last bucket begins at or after `max_value`."""

    max_value: float
    bucket_size: float

    def __post_init__(self) -> None:
        _require(self.max_value > 0, "greater than 0", self.max_value, "max_value")
        _require(self.bucket_size > 0, "greater than 0", self.bucket_size, "bucket_size")

    @cached_property
    def count(self) -> int:
        """Number of buckets: ceil(max / size) + 1."""
        return math.ceil(self.max_value / self.bucket_size) + 1

    def find(self, value: float) -> int:
        """Return the index of the bucket that contains a value: floor(value / size). Values outside the range are in
        the first or the last bucket, NaN is in the first.
        """
        return int(min(value / self.bucket_size, self.count - 1)) if value > 0 else 0

    def start(self, bucket: int) -> float:
        """Return the lower bound of a bucket: bucket * size."""
        return bucket * self.bucket_size


@dataclass(frozen=True, kw_only=True)
class ExponentialBuckets:
    """Division of a value range into buckets that are each `ratio` times as wide as the one before. So the relative
    error of a percentile is the same everywhere.
    """

    max_value: float
    first_bucket_size: float
    ratio: float

    def __post_init__(self) -> None:
        _require(self.max_value > 0, "greater than 0", self.max_value, "max_value")
        _require(self.first_bucket_size > 0, "greater than 0", self.first_bucket_size, "first_bucket_size")
        _require(self.ratio > 1, "greater than 1", self.ratio, "ratio")

    @cached_property
    def count(self) -> int:
        """Number of buckets: ceil(log_ratio(max * (ratio - 1) / first + 1)) + 1."""
        return math.ceil(self._logarithm(self.max_value)) + 1

    def find(self, value: float) -> int:
        """Return the index of the bucket that contains a value, at least 0 and at most the last. It is
        floor(log_ratio(value * (ratio - 1) / first + 1)).
        """
        if not value >= self.first_bucket_size:
            return 0
        return int(min(self._logarithm(value), self.count - 1))

    def start(self, bucket: int) -> float:
        """Return the lower bound of a bucket: first * (ratio^bucket - 1) / (ratio - 1)."""
        return self.first_bucket_size * (self.ratio**bucket - 1) / (self.ratio - 1)

    def _logarithm(self, value: float) -> float:
        return math.log(value * (self.ratio - 1) / self.first_bucket_size + 1) / math.log(self.ratio)


Buckets = LinearBuckets | ExponentialBuckets  # Division of a range of values into numbered buckets


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramOptions:
    """Options of a histogram. Two histograms can be merged only if their options are equal."""

    buckets: Buckets  # Division of the value range
    epsilon: float  # Buckets with a smaller weight are ignored at both ends of the histogram
    half_life_seconds: float | None = None  # Time in which a sample loses half of its weight; None: samples do not age

    def __post_init__(self) -> None:
        _require(self.epsilon > 0, "greater than 0", self.epsilon, "epsilon")
        half_life = self.half_life_seconds
        _require(half_life is None or half_life > 0, "greater than 0, or none", half_life, "half_life_seconds")


class HistogramCheckpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A compact form of a histogram for storage. Weights are relative to the largest, which is 10000."""

    # Unix seconds at which a new sample counts with its own weight; None if unknown or samples do not age.
    reference_timestamp: float | None = None
    total_weight: float = 0.0  # Sum of all weights before they were made relative
    bucket_weights: dict[int, int] = {}  # Bucket -> relative weight. Weights that round to 0 are left out.


@dataclass(slots=True)
class DecayingHistogram:
    """A histogram of samples that lose weight with age. Only one task may use an instance."""

    options: HistogramOptions  # Buckets and half life
    weights: dict[int, float] = field(default_factory=dict[int, float])  # Bucket -> weight; zeros are left out
    total: float = 0.0  # Sum of all added weights minus all subtracted ones
    # Unix seconds at which a new sample counts with exactly its own weight. Later samples count more.
    reference: float = _YEAR_ONE

    def add(self, value: float, weight: float, at: float) -> None:
        """Add a sample.

        Args:
            value: Measured value, in the unit of the buckets.
            weight: Weight of the sample without age.
            at: Unix seconds at which the sample was taken.
        """
        aged = weight * self._factor(at)
        bucket = self.options.buckets.find(value)
        self.weights[bucket] = self.weights.get(bucket, 0.0) + aged
        self.total += aged

    def subtract(self, value: float, weight: float, at: float) -> None:
        """Remove a sample that was added with these arguments. A bucket with a weight below epsilon becomes empty."""
        aged = weight * self._factor(at)
        bucket = self.options.buckets.find(value)
        left = self._floored(self.weights.get(bucket, 0.0) - aged)
        if left:
            self.weights[bucket] = left
        else:
            self.weights.pop(bucket, None)
        self.total = self._floored(self.total - aged)

    @property
    def is_empty(self) -> bool:
        """Whether no bucket has a weight of at least epsilon."""
        return not self._used()

    def percentile(self, fraction: float) -> float:
        """Return the value below which `fraction` of the weight lies: the end of the bucket where that sum is reached.
        `fraction`: 0 to 1. 0 gives the end of the first used bucket.

        Returns:
            The upper bound of the bucket in the unit of the values; 0 if the histogram is empty. The last bucket has no
            upper bound, so its start is returned.
        """
        used = self._used()
        if not used:
            return 0.0
        threshold = fraction * self.total
        running = 0.0
        found = used[-1]
        for bucket in used[:-1]:
            running += self.weights[bucket]
            if running >= threshold:
                found = bucket
                break
        buckets = self.options.buckets
        return buckets.start(found + 1 if found < buckets.count - 1 else found)

    def merge(self, other: DecayingHistogram) -> None:
        """Add the weights of another histogram to this one. The later reference of both is used.

        Raises:
            ValueError: The options differ.
        """
        if other.options != self.options:
            raise ValueError("histograms of different options cannot be merged")
        scale = 1.0
        if other.reference > self.reference:
            self._shift(other.reference)
        elif self.reference > other.reference:
            scale = self._shift_factor(other.reference, self._rounded(self.reference))
        for bucket, weight in other.weights.items():
            self.weights[bucket] = self.weights.get(bucket, 0.0) + weight * scale
        self.total += other.total * scale

    def checkpoint(self) -> HistogramCheckpoint:
        """Return a compact form from which `load` restores nearly the same percentiles."""
        used = self._used()
        heaviest = max((self.weights[bucket] for bucket in used), default=0.0)
        scaled = {
            bucket: math.floor(self.weights[bucket] * _CHECKPOINT_SCALE / heaviest + 0.5) for bucket in used if heaviest
        }
        return HistogramCheckpoint(
            reference_timestamp=self.reference if self.options.half_life_seconds else None,
            total_weight=self.total,
            bucket_weights={bucket: weight for bucket, weight in scaled.items() if weight},
        )

    def load(self, checkpoint: HistogramCheckpoint) -> None:
        """Add a checkpoint to this histogram. Its relative weights are scaled so that their sum is `total_weight`.

        Raises:
            InvalidInput: A bucket does not exist in this histogram, or a weight is invalid.
        """
        count = self.options.buckets.count
        for bucket, weight in checkpoint.bucket_weights.items():
            _require(0 <= bucket < count, f"a bucket from 0 to {count - 1}", bucket, "bucketWeights")
            _require(weight >= 0, "not negative", weight, f"bucketWeights.{bucket}")
        total = checkpoint.total_weight
        _require(total >= 0 and math.isfinite(total), "a weight of at least 0", total, "totalWeight")
        stored = sum(checkpoint.bucket_weights.values())
        if stored == 0:
            return
        reference = checkpoint.reference_timestamp if self.options.half_life_seconds else None
        loaded = DecayingHistogram(
            self.options,
            {bucket: weight * total / stored for bucket, weight in checkpoint.bucket_weights.items() if weight},
            total,
            self.reference if reference is None else reference,
        )
        if self.weights:
            self.merge(loaded)
        else:
            self.weights, self.total, self.reference = loaded.weights, loaded.total, loaded.reference

    def _used(self) -> list[int]:
        """Return the buckets between the first and the last with a weight of at least epsilon, ascending."""
        epsilon = self.options.epsilon
        buckets = sorted(self.weights)
        low, high = 0, len(buckets)
        while low < high and self.weights[buckets[low]] < epsilon:
            low += 1
        while high > low and self.weights[buckets[high - 1]] < epsilon:
            high -= 1
        return buckets[low:high]

    def _floored(self, weight: float) -> float:
        return 0.0 if weight < self.options.epsilon else weight

    def _factor(self, at: float) -> float:
        half_life = self.options.half_life_seconds
        if half_life is None:
            return 1.0
        if at > self.reference + _MAX_EXPONENT * half_life:
            self._shift(at)
        return 2.0 ** ((at - self.reference) / half_life)

    def _shift(self, at: float) -> None:
        """Move the reference to `at`, rounded to a multiple of the half life."""
        reference = self._rounded(at)
        factor = self._shift_factor(self.reference, reference)
        self.weights = {bucket: scaled for bucket, weight in self.weights.items() if (scaled := weight * factor)}
        self.total *= factor
        self.reference = reference

    def _rounded(self, at: float) -> float:
        half_life = self.options.half_life_seconds
        if half_life is None:
            return at
        return math.floor((at - _YEAR_ONE) / half_life + 0.5) * half_life + _YEAR_ONE

    def _shift_factor(self, old: float, new: float) -> float:
        half_life = self.options.half_life_seconds
        if half_life is None:
            return 1.0
        half_lives = (old - new) / half_life
        return 2.0 ** math.copysign(math.floor(abs(half_lives) + 0.5), half_lives)


def _require(holds: bool, rule: str, value: object, path: str) -> None:
    if not holds:
        raise InvalidInput(rule, value, path)
