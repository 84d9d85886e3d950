"""Vectors of the recommender: histograms and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.registry import Json, adapter
from koord_manager.domain.controllers.recommender.model import CONFIDENT_DAYS, ContainerModel, estimate
from koord_manager.domain.controllers.recommender.settings import RecommenderSettings
from koordcore.values import codec
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


def _series(written: list[dict[str, Json]], order: int) -> Iterator[tuple[float, int, str, dict[str, Json], float]]:
    for series in written:
        values: list[float] = series["values"]
        for number in range(series["count"]):
            at = series["start"] + number * series["step"]
            yield at, order, series["instance"], series, values[number % len(values)]


@adapter("manager.recommendation")
def recommendation(given: dict[str, Json]) -> dict[str, Json]:
    settings = codec.convert(given.get("config_overrides") or {}, RecommenderSettings)
    model = ContainerModel.empty(settings)
    kills: list[dict[str, Json]] = given.get("oom_events") or []
    samples = [*_series(given.get("cpu_series") or [], 0), *_series(given.get("memory_series") or [], 1)]
    samples += [(event["time"], 2, event["instance"], event, 0.0) for event in kills]
    for at, order, instance, source, value in sorted(samples, key=lambda sample: sample[:3]):
        match order:
            case 0:
                model.add_cpu(instance, value, at, requested_cores=source.get("request_cores") or 0.0)
            case 1:
                model.add_memory(instance, value, at)
            case _:
                model.add_oom(instance, at, requested_bytes=source.get("request_bytes") or 0)
    found = estimate(model, given["containers_per_pod"])
    return {
        "confidence_days": found.confidence_days,
        "target": found.target._asdict(),
        "lower_bound": found.lower._asdict(),
        "upper_bound": found.upper._asdict(),
        "low_confidence": found.confidence_days < CONFIDENT_DAYS,
    }
