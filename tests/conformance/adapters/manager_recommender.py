"""Vectors of the recommender: histograms."""

from __future__ import annotations

from conformance.registry import Json, adapter
from koordcore.values.decaying_histogram import (
    Buckets,
    DecayingHistogram,
    ExponentialBuckets,
    HistogramCheckpoint,
    HistogramOptions,
    LinearBuckets,
)


def _options(written: dict[str, Json]) -> HistogramOptions:
    buckets: Buckets = (
        LinearBuckets(max_value=written["max_value"], bucket_size=written["bucket_size"])
        if written["type"] == "linear"
        else ExponentialBuckets(
            max_value=written["max_value"], first_bucket_size=written["first_bucket_size"], ratio=written["ratio"]
        )
    )
    return HistogramOptions(
        buckets=buckets, epsilon=written["epsilon"], half_life_seconds=written.get("half_life_seconds")
    )


def _operate(histogram: DecayingHistogram, step: dict[str, Json]) -> None:
    match step["op"]:
        case "add":
            histogram.add(step["value"], step.get("weight", 1.0), step.get("time", 0))
        case "subtract":
            histogram.subtract(step["value"], step.get("weight", 1.0), step.get("time", 0))
        case "series":
            values: list[float] = step["values"]
            for number in range(step["count"]):
                at = step["start"] + number * step["step"]
                histogram.add(values[number % len(values)], step.get("weight", 1.0), at)
        case "merge":
            other = DecayingHistogram(histogram.options)
            for sample in step["samples"]:
                other.add(sample["value"], sample.get("weight", 1.0), sample.get("time", 0))
            histogram.merge(other)
        case "load_checkpoint":
            written: dict[str, Json] = step["checkpoint"]
            weights: dict[str, int] = written.get("bucket_weights") or {}
            histogram.load(
                HistogramCheckpoint(
                    reference_timestamp=written.get("reference_timestamp"),
                    total_weight=written.get("total_weight", 0.0),
                    bucket_weights={int(bucket): weight for bucket, weight in weights.items()},
                )
            )
        case unknown:
            raise AssertionError(f"no operation {unknown!r}")


@adapter("manager.histogram", whole=("bucket_weights",))
def histogram(given: dict[str, Json]) -> dict[str, Json]:
    built = DecayingHistogram(_options(given["options"]))
    for step in given["operations"]:
        _operate(built, step)
    weights = built.checkpoint().bucket_weights
    return {
        "num_buckets": built.options.buckets.count,
        "empty": built.is_empty,
        "percentiles": {text: built.percentile(float(text)) for text in given["percentiles"]},
        "bucket_weights": {str(bucket): weight for bucket, weight in weights.items()},
    }
