"""Learn the usage of one container, and estimate its requests.

The usage is a histogram of cpu samples, and one of daily memory peaks.

An instance is the container in one pod. Instances come and go, the histograms stay. Each instance adds cpu samples and
one memory peak per day.

The target of a request is a percentile of the samples plus the safety margin. With a confidence of c days, the lower
bound is its percentile times (1 + 0.001 / c)^-2, and the upper bound its percentile times (1 + 1 / c). Each amount is
at least the minimum of a pod divided by the number of its containers. Every step truncates to milli-cores or bytes.

Source:
    manager spec, 15.3, 15.4, 15.5 (estimate)
"""

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from koordcore.events.recommendation import NO_BOUND
from koordcore.values.decaying_histogram import DecayingHistogram, ExponentialBuckets, HistogramOptions

from koord_manager.domain.controllers.recommender.settings import RecommenderSettings

_RATIO = 1.05
_EPSILON = 0.0001
_CPU_FIRST_CORES, _CPU_MAX_CORES = 0.01, 1000.0
_MEMORY_FIRST_BYTES, _MEMORY_MAX_BYTES = 1e7, 1e12
_LIGHTEST_CORES = 0.1
"""Minimum weight of a container's samples."""


def cpu_options(settings: RecommenderSettings) -> HistogramOptions:
    """Return the bucket sizes and the half-life of the cpu histogram; its values are cores."""
    return HistogramOptions(
        buckets=ExponentialBuckets(max_value=_CPU_MAX_CORES, first_bucket_size=_CPU_FIRST_CORES, ratio=_RATIO),
        epsilon=_EPSILON,
        half_life_seconds=settings.cpu_half_life_seconds,
    )


def memory_options(settings: RecommenderSettings) -> HistogramOptions:
    """Return the bucket sizes and the half-life of the memory histogram; its values are bytes."""
    return HistogramOptions(
        buckets=ExponentialBuckets(max_value=_MEMORY_MAX_BYTES, first_bucket_size=_MEMORY_FIRST_BYTES, ratio=_RATIO),
        epsilon=_EPSILON,
        half_life_seconds=settings.memory_half_life_seconds,
    )


class InstanceState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """State of one instance, the container in one pod. Times are Unix seconds, memory is in bytes."""

    last_cpu_at: float | None = None  # Time of the last cpu sample, or None before the first one
    last_memory_at: float | None = None  # Time of the last memory sample, or None before the first one
    window_end: float | None = None  # End of the day whose memory peak is collected, or None before the first sample
    peak: float = 0.0  # Highest usage of that day, or 0 before the first sample
    oom_peak: float = 0.0  # Memory that the instance probably needs since it was killed for memory
    oom_at: float | None = None  # Time of the last kill for memory, or None if there was none


@dataclass(slots=True, kw_only=True)
class ContainerModel:
    """The learned usage of one container: its histograms, and the state of its live instances."""

    settings: RecommenderSettings  # Settings under which samples are learned
    cpu: DecayingHistogram  # Histogram of cpu samples, in cores
    memory: DecayingHistogram  # Histogram of daily memory peaks, in bytes
    # `<uid of the pod>/<container>` -> state.
    instances: dict[str, InstanceState] = field(default_factory=dict[str, InstanceState])
    first_at: float | None = None  # Unix time of the first cpu sample, or None if there is none
    last_at: float | None = None  # Unix time of the last cpu sample, or None if there is none
    count: int = 0  # Number of cpu samples

    @classmethod
    def empty(cls, settings: RecommenderSettings) -> "ContainerModel":
        return cls(
            settings=settings,
            cpu=DecayingHistogram(cpu_options(settings)),
            memory=DecayingHistogram(memory_options(settings)),
        )

    def add_cpu(self, instance: str, cores: float, at: float, *, requested_cores: float) -> bool:
        """Add the average cpu usage of an instance over one report, and return whether the sample was used.

        A negative sample, and one that is not newer than the last sample of the instance, is ignored. `at` is a Unix
        time in seconds. The weight of the sample follows from `requested_cores`.
        """
        state = self.instances.setdefault(instance, InstanceState())
        if not cores >= 0 or (state.last_cpu_at is not None and at <= state.last_cpu_at):
            return False
        state.last_cpu_at = at
        self.cpu.add(cores, max(requested_cores, _LIGHTEST_CORES), at)
        self.first_at = at if self.first_at is None else min(self.first_at, at)
        self.last_at = at if self.last_at is None else max(self.last_at, at)
        self.count += 1
        return True

    def add_memory(self, instance: str, used_bytes: float, at: float) -> bool:
        """Add the memory usage of an instance, and return whether the sample was valid. `at`: Unix time in seconds.

        A negative sample, and one older than the last sample of the instance, is ignored. Of the valid samples, only a
        new peak of the day changes the histogram.
        """
        state = self.instances.setdefault(instance, InstanceState())
        if not used_bytes >= 0 or (state.last_memory_at is not None and at < state.last_memory_at):
            return False
        self._peak(state, used_bytes, at, is_oom=False)
        return True

    def add_oom(self, instance: str, at: float, *, requested_bytes: float) -> bool:
        """Record that an instance was killed for memory at a Unix time, and return whether this was used.

        The needed memory is max(used + oomMinBumpUpBytes, used * oomBumpUpRatio), where used is the larger of request
        and peak. The peaks of earlier kills do not count, so that repeated kills do not add up. A kill more than a day
        older than the last memory sample is ignored. The begin of the day whose peak is collected does not matter: the
        sample after a kill can begin the next one.
        """
        state = self.instances.setdefault(instance, InstanceState())
        interval = self.settings.memory_aggregation_interval_seconds
        if state.last_memory_at is not None and at < state.last_memory_at - interval:
            return False
        used = max(requested_bytes, state.peak)
        needed = max(
            used + self.settings.oom_min_bump_up_bytes, float(math.trunc(used * self.settings.oom_bump_up_ratio))
        )
        self._peak(state, needed, at, is_oom=True)
        return True

    def _peak(self, state: InstanceState, used: float, at: float, *, is_oom: bool) -> None:
        state.last_memory_at = at if state.last_memory_at is None else max(state.last_memory_at, at)
        end = at if state.window_end is None else state.window_end
        if at < end:
            old = max(state.peak, state.oom_peak)
            if old == 0 or used <= old:
                state.window_end = end
                return
            self.memory.subtract(old, 1.0, end)
        else:
            interval = self.settings.memory_aggregation_interval_seconds
            end += (math.floor((at - end) / interval) + 1) * interval
            state.peak = state.oom_peak = 0.0
        self.memory.add(used, 1.0, end)
        state.window_end = end
        if is_oom:
            state.oom_peak = used
        else:
            state.peak = used


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
    """Recommended requests of a container, with the numbers from which they were computed."""

    target: Amounts  # Recommended requests
    lower: Amounts  # Lowest acceptable requests
    upper: Amounts  # Highest acceptable requests
    confidence_days: float  # Days of history
    percentiles: dict[str, Percentiles]  # "target", "lower" and "upper" -> percentiles of the samples
    samples: int  # Number of cpu samples


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
        containers: Number of containers of its pod, among which the minimum of a pod is divided.

    Source: manager spec, 15.5; vectors manager/recommendation.
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
