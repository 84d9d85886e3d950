"""Asks the Vertical Pod Autoscaler and ours about the same cases, and counts."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isclose, log2
from typing import Any, Final, cast

from koordcore.events.recommendation import ContainerRecommendation, RecommendedAmounts
from support.oracle.lines import Document
from support.oracle.recommending import histograms, histories, ours
from support.oracle.recommending.program import Amounts, Answer, Recommended, Recommender, Shape
from support.oracle.shrinking import reproduction

LAST_BIT: Final = 1e-7
"""By so much of an amount, and by a byte or a milli-core, the last bit of a power can change what is truncated: Go's
powers differ from C's. `Tally.rounded` counts it.
"""


@dataclass
class Tally:
    """What was compared, and what differed."""

    cases: int = 0
    verdicts: int = 0  # Eight amounts of each container, and each number of a histogram
    rounded: int = 0  # Amounts that differ by a last bit
    learned: int = 0  # Targets that samples decide, neither the minimum of a pod nor a cap
    differences: list[str] = field(default_factory=list[str])


def compare(recommender: Recommender, case: Document, tally: Tally) -> None:
    """Add a case to a tally. An exception of ours is a difference."""
    tally.cases += 1
    case = _complete(case)
    theirs = recommender.ask(case)
    try:
        tally.differences += [*(_of_histogram if "histogram" in case else _of_history)(case, theirs, tally)]
    except Exception as error:  # noqa: BLE001 - the seed reproduces it
        tally.differences.append(f"ours fails: {error!r}")


def case_of(seed: int) -> Document:
    return histograms.case(seed) if seed % 4 == 0 else histories.case(seed)


def compare_seed(recommender: Recommender, seed: int, tally: Tally) -> str:
    """Add the case of a seed to a tally. Returns JSON that reproduces its differences; "" if there are none."""
    before, case = len(tally.differences), case_of(seed)
    compare(recommender, case, tally)
    return reproduction(seed, case, tally.differences[before:], lambda smaller: differences(recommender, smaller))


def differences(recommender: Recommender, case: Document) -> list[str]:
    tally = Tally()
    compare(recommender, case, tally)
    return tally.differences


def _complete(case: Document) -> Document:
    """A case with all settings. What was left out to make it small has its default."""
    if "history" not in case:
        return case
    given = cast("Document", case["history"])
    settings: dict[str, float] = {**histories.DEFAULTS, **given.get("settings", {})}
    return {"history": {"policies": [], "events": [], **given, "settings": settings}}


def _of_history(case: Document, theirs: Answer, tally: Tally) -> Iterator[str]:
    history = case["history"]
    least = Amounts(
        int(history["settings"]["podMinCPUMillicores"]), int(history["settings"]["podMinMemoryMb"] * histories.MIB)
    )
    for number, (given, found) in enumerate(zip(theirs.statuses, ours.statuses(history), strict=True)):
        for name in sorted({*given, *found}):
            there, here = _amounts_there(given.get(name)), _amounts_here(found.get(name))
            for what, amount in there.items():
                own = here[what]
                tally.verdicts += 1
                tally.rounded += amount != own
                if abs(amount - own) > max(1, LAST_BIT * amount):
                    yield f"ask {number}: {name}: {what}: {amount} there, {own} in ours"
            tally.learned += least.cpu_milli < there["cpu of target"] == there["cpu of uncapped"]
            tally.learned += least.memory_bytes < there["memory of target"] == there["memory of uncapped"]


def _amounts_there(given: Recommended | None) -> dict[str, int]:
    """Their amounts, without those of a resource without samples (`differences.UNSAMPLED`)."""
    if given is None:
        return _named(*[RecommendedAmounts()] * 4)
    return _named(
        *(
            RecommendedAmounts(each.cpu_milli if given.has_cpu else 0, each.memory_bytes if given.has_memory else 0)
            for each in (given.target, given.lower, given.upper, given.uncapped)
        )
    )


def _amounts_here(found: ContainerRecommendation | None) -> dict[str, int]:
    if found is None:
        return _named(*[RecommendedAmounts()] * 4)
    return _named(found.target, found.lower_bound, found.upper_bound, found.uncapped_target)


def _named(*amounts: RecommendedAmounts) -> dict[str, int]:
    return {
        f"{resource} of {what}": amount
        for what, each in zip(("target", "lower", "upper", "uncapped"), amounts, strict=True)
        for resource, amount in (("cpu", each.cpu_milli), ("memory", each.memory_bytes))
    }


def _of_histogram(case: Document, theirs: Answer, tally: Tally) -> Iterator[str]:
    asked = case["histogram"]
    # What is left of a large total after subtractions is rounding.
    has_total = not any("subtract" in each for each in asked["operations"])
    for number, (given, found) in enumerate(zip(theirs.shapes, histograms.shapes(asked), strict=True)):
        for what, expected, own in _values(given, found, has_total=has_total):
            tally.verdicts += 1
            if not isclose(expected, own, rel_tol=1e-9, abs_tol=1 if what.startswith("weight of") else 1e-9):
                yield f"ask {number}: {what}: {expected} there, {own} in ours"


def _values(given: Shape, found: Shape, *, has_total: bool) -> Iterator[tuple[str, Any, Any]]:
    yield "buckets", given.buckets, found.buckets
    yield "empty", given.is_empty, found.is_empty
    for number, values in enumerate(zip(given.percentiles, found.percentiles, strict=True)):
        yield f"percentile {number}", *values
    there, here = given.checkpoint, found.checkpoint
    if has_total and there.total_weight and here.total_weight:
        # To load an empty checkpoint leaves the reference of ours alone: then all weights differ by a power of two.
        halvings = log2(there.total_weight / here.total_weight)
        yield "halvings of the total weight", halvings, round(halvings)
    for bucket in sorted({*there.bucket_weights, *here.bucket_weights}):
        weights = there.bucket_weights.get(bucket, 0), here.bucket_weights.get(bucket, 0)
        yield f"weight of bucket {bucket}", *weights
