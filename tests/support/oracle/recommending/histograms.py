"""Random operations on a histogram whose samples lose weight, and what ours is after them."""

from typing import Final

from koordcore.values.decaying_histogram import (
    DecayingHistogram,
    ExponentialBuckets,
    HistogramOptions,
    LinearBuckets,
)
from support.oracle.drawing.dice import Dice
from support.oracle.lines import Document
from support.oracle.recommending.histories import BEGIN, DAY, HOUR
from support.oracle.recommending.program import Checkpoint, Shape

PERCENTILES: Final = (0, 0.05, 0.5, 0.7, 0.9, 0.95, 0.98, 0.99, 0.999)


def case(seed: int) -> Document:
    dice = Dice(seed)
    half_life = dice.one((60, HOUR, 12 * HOUR, DAY))
    asked: Document = {
        "epsilon": dice.one((1e-6, 1e-5, 1e-4, 1e-3)),
        "halfLifeSeconds": half_life,
        "percentiles": PERCENTILES,
        **(
            {"maxValue": dice.one((1, 10, 99.5)), "bucketSize": dice.one((0.1, 1, 3))}
            if dice.chance(0.3)
            else {
                "maxValue": dice.one((10, 1000, 1e12)),
                "firstBucketSize": dice.one((0.01, 0.025, 1, 1e7)),
                "ratio": dice.one((1.01, 1.05, 1.3, 2)),
            }
        ),
    }
    at = BEGIN + dice.number(0, DAY)
    subtracts = dice.chance(0.4)  # not from much larger weights, or only rounding is left
    added: list[Document] = []
    operations: list[Document] = []

    def sample() -> Document:
        nonlocal at
        # Never equal or doubled weights: then the last bit decides at which bucket a percentile is reached.
        at += dice.number(1, dice.one((5, half_life // 7, half_life)))
        if not subtracts and dice.has("gaps", 0.03):
            at += half_life * dice.number(20, 250)
        value = dice.one((0, 0.009, 0.01, 0.5, 1, 2, asked["maxValue"], 2 * asked["maxValue"]))
        if dice.chance(0.6):
            value = 10 ** (dice.number(-30, 120) / 10)
        earlier = dice.number(0, 3 * half_life) if dice.has("late", 0.1) else 0
        return {"value": value, "weight": dice.one((0.1, 1, 1, 4)), "at": at - earlier}

    for _ in range(dice.number(1, dice.one((4, 15, 20 if subtracts else 60)))):
        if subtracts and added and dice.chance(0.3):
            operations.append({"subtract": added.pop(dice.number(0, len(added) - 1))})
        elif dice.has("merges", 0.1):
            operations.append({"merge": [sample() for _ in range(dice.number(1, 5))]})
        elif dice.has("reloads", 0.1):
            operations.append({"reload": True})
            added = []
        else:
            added.append(sample())
            operations.append({"add": added[-1]})
        if dice.chance(0.2):
            operations.append({"ask": True})
    return {"histogram": {**asked, "operations": [*operations, {"ask": True}]}}


def shapes(asked: Document) -> list[Shape]:
    """What ours is, at each operation that asks."""
    buckets = (
        LinearBuckets(max_value=asked["maxValue"], bucket_size=asked["bucketSize"])
        if "bucketSize" in asked
        else ExponentialBuckets(
            max_value=asked["maxValue"], first_bucket_size=asked["firstBucketSize"], ratio=asked["ratio"]
        )
    )
    options = HistogramOptions(buckets=buckets, epsilon=asked["epsilon"], half_life_seconds=asked["halfLifeSeconds"])
    histogram = DecayingHistogram(options)
    found: list[Shape] = []
    for operation in asked["operations"]:
        if sample := operation.get("add"):
            histogram.add(sample["value"], sample["weight"], sample["at"])
        elif sample := operation.get("subtract"):
            histogram.subtract(sample["value"], sample["weight"], sample["at"])
        elif samples := operation.get("merge"):
            other = DecayingHistogram(options)
            for sample in samples:
                other.add(sample["value"], sample["weight"], sample["at"])
            histogram.merge(other)
        elif operation.get("reload"):
            checkpoint = histogram.checkpoint()
            histogram = DecayingHistogram(options)
            histogram.load(checkpoint)
        else:
            kept = histogram.checkpoint()
            percentiles = [histogram.percentile(each) for each in asked.get("percentiles", ())]
            stored = Checkpoint(kept.total_weight, kept.bucket_weights)
            found.append(Shape(buckets.count, histogram.is_empty, stored, percentiles))
    return found
