"""Cycles per instruction (CPI): scaling of counters, baselines of workloads, outliers, and suspects.

These are the rules of interference detection as in the paper CPI2.

Source: agent spec, 6.7, 18.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.protocol.priority import PriorityBand

AGE_WEIGHT: Final = 0.9
MIN_TASKS: Final = 5
MIN_SAMPLES_PER_TASK: Final = 100
SIGMA: Final = 2.0
MIN_USAGE_CORES: Final = 0.25
ANOMALY_OUTLIERS: Final = 3
WINDOW_SECONDS: Final = 300
MIN_CORRELATION: Final = 0.35
CAP_SECONDS: Final = 300
CAP_QUOTA_US: Final[Mapping[str, int]] = {PriorityBand.BATCH: 10_000, PriorityBand.FREE: 1_000}
"""Priority class -> quota of a capped pod. Pods of other classes are not capped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCounters:
    """Hardware counters of a container on one CPU, as the kernel reports them."""

    cycles: float | None  # Cycles while the counter was active; None if the CPU has no such counter
    instructions: float | None  # Instructions while the counter was active; None if the CPU has no such counter
    time_enabled_ns: int  # Time for which the counter was switched on
    time_running_ns: int  # Time for which it really counted; less if counters share the hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Cycles and instructions of a container in one measuring window.

    They are summed over CPUs, and scaled up for the time in which a counter was not active.
    """

    cycles: float
    instructions: float

    @property
    def cpi(self) -> float | None:
        """Cycles per instruction; None if no instruction was counted."""
        return self.cycles / self.instructions if self.instructions else None


def scale_counters(per_cpu: Iterable[CpuCounters]) -> Counted:
    """Sum raw / (running / enabled) over the CPUs of which both counters are known.

    A ratio with a zero counts as 1.

    Source: agent spec, 6.7, where an unknown counter is 0; reality, 4.13.
    """
    cycles = instructions = 0.0
    for counters in per_cpu:
        if counters.cycles is None or counters.instructions is None:
            continue
        enabled, running = counters.time_enabled_ns, counters.time_running_ns
        ratio = running / enabled if enabled and running else 1.0
        cycles += counters.cycles / ratio
        instructions += counters.instructions / ratio
    return Counted(cycles=cycles, instructions=instructions)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpiSample:
    """One CPI (cycles per instruction) of one task (container of a pod) of a workload, with its age in days."""

    age_days: float
    task: str
    cpi: float | None  # None if it was not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The usual CPI (cycles per instruction) of a workload. Samples are compared only with robust baselines."""

    mean: float
    stddev: float  # Weighted standard deviation
    robust: bool  # Whether enough tasks have enough samples

    def threshold(self, sigma: float = SIGMA) -> float:
        """CPI above which a sample is an outlier: mean + sigma * standard deviation."""
        return self.mean + sigma * self.stddev


def learn_baseline(
    samples: Sequence[CpiSample], *, min_tasks: int = MIN_TASKS, min_samples_per_task: int = MIN_SAMPLES_PER_TASK
) -> Baseline | None:
    """Compute a baseline: mean and standard deviation, each sample weighted by 0.9 ^ (age in days).

    None without samples that were measured; those without a CPI are left out.

    A baseline is robust if at least min_tasks tasks have at least min_samples_per_task samples each.

    Source: agent spec, 18.
    """
    weighted = [(AGE_WEIGHT**sample.age_days, sample.cpi) for sample in samples if sample.cpi is not None]
    if not weighted:
        return None
    total = sum(weight for weight, _ in weighted)
    mean = sum(weight * cpi for weight, cpi in weighted) / total
    variance = sum(weight * (cpi - mean) ** 2 for weight, cpi in weighted) / total
    by_task = Counter(sample.task for sample in samples if sample.cpi is not None)
    seasoned = sum(count >= min_samples_per_task for count in by_task.values())
    return Baseline(mean=mean, stddev=math.sqrt(variance), robust=seasoned >= min_tasks)


def is_outlier(
    cpi: float | None, usage_cores: float | None, threshold: float, *, min_usage: float = MIN_USAGE_CORES
) -> bool:
    """Whether a CPI exceeds `Baseline.threshold` while the container uses at least `min_usage` cores.

    A missing sample (None) of either is never an outlier.
    """
    return cpi is not None and usage_cores is not None and usage_cores >= min_usage and cpi > threshold


def is_anomalous(
    outlier_times: Iterable[float], now: float, *, outliers: int = ANOMALY_OUTLIERS, window: float = WINDOW_SECONDS
) -> bool:
    """Whether at least `outliers` outliers lie in (now - window, now]. All times are in seconds."""
    return sum(now - window < at <= now for at in outlier_times) >= outliers


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A pod that ran at the same time as a disturbed container (the victim), and that may be the cause."""

    name: str  # UID of the pod
    priority_class: str
    # CPU usage of the pod in cores, one value for each sample of the victim. None if it was not measured.
    usage: Sequence[float | None]


def correlation(threshold: float, victim_cpi: Sequence[float | None], usage: Sequence[float | None]) -> float:
    """Return how well a suspect's CPU usage coincides with the victim's high CPI, from -1 to 1.

    Usage u is normalised to a sum of 1. Each minute adds u (1 - threshold / c) if the victim's CPI c is above the
    threshold, and u (c / threshold - 1) if it is below. Only minutes with both values are aligned: those without a CPI
    or without a usage (None) are left out before usage (cores in the same minutes) is normalised. 0 if the suspect was
    idle in all minutes with both.

    Source: agent spec, 18.
    """
    pairs = zip(victim_cpi, usage, strict=False)
    minutes = [(cpi, used) for cpi, used in pairs if cpi is not None and used is not None]
    total = sum(used for _, used in minutes)
    if total <= 0:
        return 0.0
    found = 0.0
    for cpi, used in minutes:
        if cpi > threshold:
            found += used / total * (1 - threshold / cpi)
        elif cpi < threshold:
            found += used / total * (cpi / threshold - 1)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    name: str  # UID of the pod
    correlation: float  # How well its usage coincides with the victim's high CPI
    cfs_quota_us: int  # The quota in microseconds per period
    seconds: int


def choose_antagonist(
    suspects: Iterable[Suspect], correlations: Mapping[str, float], *, at_least: float = MIN_CORRELATION
) -> Cap | None:
    """Return a cap for the suspect of priority class batch or free with the largest correlation; None if there is none.

    Of equal ones, the first by name is chosen. `correlations` is by name; `at_least` the lowest one of a pod that is
    capped.

    Source: agent spec, 18.
    """
    able = [
        suspect
        for suspect in suspects
        if suspect.priority_class in CAP_QUOTA_US and correlations[suspect.name] >= at_least
    ]
    if not able:
        return None
    worst = min(able, key=lambda suspect: (-correlations[suspect.name], suspect.name))
    return Cap(
        name=worst.name,
        correlation=correlations[worst.name],
        cfs_quota_us=CAP_QUOTA_US[worst.priority_class],
        seconds=CAP_SECONDS,
    )
