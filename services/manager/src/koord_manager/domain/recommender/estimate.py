"""Compute the recommended requests of a container and their bounds from its histograms.

The target is a percentile of the samples plus the safety margin. With a confidence of c days, the lower bound is its
percentile times (1 + 0.001 / c)^-2, and the upper bound its percentile times (1 + 1 / c). Each amount is at least the
minimum of a pod divided by the number of its containers. Every step truncates to milli-cores or bytes.

Source:
    manager spec, 15.5
"""

import math
from typing import Final, NamedTuple

from koordcore.events.recommendation import NO_BOUND

from koord_manager.domain.recommender.model import ContainerModel
from koord_manager.domain.recommender.settings import RecommenderSettings

_DAY_SECONDS: Final = 86400
_SAMPLES_A_DAY: Final = 1440
_MIB: Final = 1 << 20
CONFIDENT_DAYS: Final = 1.0
"""Days of history below which a recommendation is not carried out."""


class Amounts(NamedTuple):
    """Amounts of a recommendation: cpu in milli-cores, memory in bytes."""

    cpu_milli: int
    memory_bytes: int


class Percentiles(NamedTuple):
    """Percentiles of the usage samples, without margin and bounds: cpu in cores, memory in bytes."""

    cpu_cores: float
    memory_bytes: float


class Estimate(NamedTuple):
    """Recommended requests of a container, with the numbers from which they were computed.

    Attributes:
        target: Recommended requests.
        lower: Lowest acceptable requests.
        upper: Highest acceptable requests.
        confidence_days: Days of history.
        percentiles: "target", "lower" and "upper" -> percentiles of the samples.
        samples: Number of cpu samples.
    """

    target: Amounts
    lower: Amounts
    upper: Amounts
    confidence_days: float
    percentiles: dict[str, Percentiles]
    samples: int


def confidence_days(model: ContainerModel) -> float:
    """Return the days of history, or 0 without samples.

    They are the days between first and last sample, but at most the number of samples divided by 1440.
    """
    if model.first_at is None or model.last_at is None:
        return 0.0
    return min((model.last_at - model.first_at) / _DAY_SECONDS, model.count / _SAMPLES_A_DAY)


def estimate(model: ContainerModel, containers: int) -> Estimate:
    """Compute the recommended requests of a container from its histograms.

    Args:
        model: The histograms of the container.
        containers: Number of containers of its pod, among which the minimum of a pod is divided.

    Source:
        manager spec, 15.5; vectors manager/recommendation
    """
    settings = model.settings
    confidence = confidence_days(model)
    found = {
        "target": _percentiles(model, settings.target_cpu_percentile, settings.target_memory_percentile),
        "lower": _percentiles(model, settings.lower_bound_percentile, settings.lower_bound_percentile),
        "upper": _percentiles(model, settings.upper_bound_percentile, settings.upper_bound_percentile),
    }
    base = {name: _base(percentiles, settings) for name, percentiles in found.items()}
    least = Amounts(
        math.trunc(settings.pod_min_cpu_millicores / containers),
        math.trunc(settings.pod_min_memory_mb * _MIB / containers),
    )
    return Estimate(
        _at_least(base["target"], least),
        _at_least(Amounts(*(_lowered(amount, confidence) for amount in base["lower"])), least),
        _at_least(Amounts(*(_raised(amount, confidence) for amount in base["upper"])), least),
        confidence,
        found,
        model.count,
    )


def _percentiles(model: ContainerModel, cpu: float, memory: float) -> Percentiles:
    return Percentiles(model.cpu.percentile(cpu), model.memory.percentile(memory))


def _base(percentiles: Percentiles, settings: RecommenderSettings) -> Amounts:
    amounts = Amounts(_amount(percentiles.cpu_cores * 1000), _amount(percentiles.memory_bytes))
    return Amounts(*(amount + _amount(amount * settings.safety_margin_fraction) for amount in amounts))


def _amount(value: float) -> int:
    """Return a value truncated to an integer from 0 to 1e14; 0 for NaN."""
    if not value > 0:
        return 0
    return int(min(value, NO_BOUND))


def _lowered(amount: int, confidence: float) -> int:
    return _amount(amount * (1 + 0.001 / confidence) ** -2) if confidence > 0 else 0


def _raised(amount: int, confidence: float) -> int:
    if confidence > 0:
        return _amount(amount * (1 + 1 / confidence))
    return NO_BOUND if amount else 0


def _at_least(amounts: Amounts, least: Amounts) -> Amounts:
    return Amounts(max(amounts.cpu_milli, least.cpu_milli), max(amounts.memory_bytes, least.memory_bytes))
