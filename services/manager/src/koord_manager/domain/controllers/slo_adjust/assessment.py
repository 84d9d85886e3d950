"""Assess one node: compute its level, weight and threshold offsets from its signals.

The severity of a signal is its position between `warn` and `critical`, from 0 to 1. The present abnormality is the
largest severity, or 1 if the report is too old. The abnormality is smoothed with `smoothingFactor`. The level follows
the abnormality with hysteresis. Unless the node is healthy, its weight is 100 * (1 - abnormality). Offsets are added
to thresholds. They fall by `stepDown` while the node is critical, and rise by `stepUp` after enough healthy runs.

The number of nodes with a lowered weight is limited: if very many nodes look abnormal, the cause is probably the
measurement.

Source:
    manager spec, 16.1 (signals), 16.2, 16.3 (limit)
"""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from koordcore.events.observation import NodeUsageReported
from koordcore.state.aggregates import NodePolicyState

from koord_manager.domain.cluster.amounts import Amount, amount_of_usage
from koord_manager.domain.controllers.configuration import SignalBounds, SloAdjustPolicy

FULL_WEIGHT: Final = 100
_CPU: Final = "cpu"
_MEMORY: Final = "memory"
DIMENSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "cpuUtil": (_CPU,),
    "memoryUtil": (_MEMORY,),
    "cpuPressure": (_CPU,),
    "memoryPressure": (_MEMORY,),
    "cpuThrottled": (_CPU,),
    "cpuSuppressed": (_CPU,),
    "beEvictions": (_CPU, _MEMORY),
}
"""Signal -> the resources whose thresholds it lowers (manager spec, 16.1)."""


class Level(StrEnum):
    HEALTHY = "Healthy"
    WARNING = "Warning"
    CRITICAL = "Critical"


class Offsets(NamedTuple):
    """Percent points that health adds to cpu and memory thresholds of a node; 0, or negative if it is unhealthy."""

    cpu: int = 0
    memory: int = 0


class HealthState(NamedTuple):
    abnormality: float  # Smoothed abnormality, from 0 to 1
    level: Level
    offsets: Offsets  # Percent points that are added to thresholds
    healthy_rounds: int  # Number of assessments as Healthy in a row


class Thresholds(NamedTuple):
    """The four thresholds of a node that health may lower, in percent of the capacity."""

    cpu_reclaim: int
    memory_reclaim: int
    cpu_suppress: int
    memory_evict: int


class Assessment(NamedTuple):
    state: HealthState  # State for the next assessment
    weight: int  # Weight of the node, of 100; 100 if it is healthy
    severities: dict[str, float]  # Name of a signal -> severity above 0 and up to 1, worst first


def assess(
    policy: SloAdjustPolicy, previous: HealthState | None, signals: Mapping[str, float], *, stale: bool
) -> Assessment:
    """Assess a node once more, and return its new health.

    Args:
        previous: State after the previous assessment, or None for the first one.
        signals: Name of a signal -> value; signals that could not be measured are missing.
        stale: Whether the usage report is too old. That lowers the weight and never a threshold.

    Source: manager spec, 16.2; vectors manager/slo_adjust.
    """
    severities = {name: _severity(signals[name], bounds) for name, bounds in policy.signals.items() if name in signals}
    worst = {
        dimension: max((s for name, s in severities.items() if dimension in DIMENSIONS.get(name, ())), default=0.0)
        for dimension in (_CPU, _MEMORY)
    }
    now = 1.0 if stale else max(severities.values(), default=0.0)
    factor = policy.smoothing_factor
    abnormality = now if previous is None else factor * now + (1 - factor) * previous.abnormality
    level = _level(policy, previous.level if previous else Level.HEALTHY, abnormality)
    offsets = previous.offsets if previous else Offsets()
    rounds = 0
    if level is Level.HEALTHY:
        rounds = (previous.healthy_rounds if previous else 0) + 1
        if rounds >= policy.healthy_rounds_before_raise:
            offsets = Offsets(*(min(offset + policy.step_up, 0) for offset in offsets))
    elif level is Level.CRITICAL and not stale:
        offsets = Offsets(
            *(
                max(offset - policy.step_down, -policy.max_drop) if worst[dimension] >= policy.warn_level else offset
                for dimension, offset in ((_CPU, offsets.cpu), (_MEMORY, offsets.memory))
            )
        )
    counting = sorted(((s, name) for name, s in severities.items() if s > 0), key=lambda entry: (-entry[0], entry[1]))
    return Assessment(
        HealthState(abnormality, level, offsets, rounds),
        FULL_WEIGHT if level is Level.HEALTHY else max(policy.min_weight, math.floor(100 * (1 - abnormality) + 0.5)),
        {name: s for s, name in counting},
    )


def effective_thresholds(policy: SloAdjustPolicy, offsets: Offsets, base: Thresholds) -> Thresholds:
    """Return the thresholds after health has lowered them (manager spec, 16.2 (6)).

    The two thresholds of the agent do not fall below their floors. A configured threshold below its floor stays as it
    is.
    """
    return Thresholds(
        cpu_reclaim=max(0, base.cpu_reclaim + offsets.cpu),
        memory_reclaim=max(0, base.memory_reclaim + offsets.memory),
        cpu_suppress=min(base.cpu_suppress, max(policy.suppress_floor_percent, base.cpu_suppress + offsets.cpu)),
        memory_evict=min(base.memory_evict, max(policy.memory_evict_floor_percent, base.memory_evict + offsets.memory)),
    )


def _severity(value: float, bounds: SignalBounds) -> float:
    span = bounds.critical - bounds.warn
    if span <= 0:
        return 1.0 if value >= bounds.critical else 0.0
    return min(max((value - bounds.warn) / span, 0.0), 1.0)


def _level(policy: SloAdjustPolicy, before: Level, abnormality: float) -> Level:
    if abnormality >= policy.critical_level:
        return Level.CRITICAL
    match before:
        case Level.HEALTHY:
            return Level.WARNING if abnormality >= policy.warn_level else Level.HEALTHY
        case Level.WARNING:
            return Level.HEALTHY if abnormality < policy.recover_level else Level.WARNING
        case Level.CRITICAL:
            if abnormality < policy.recover_level:
                return Level.HEALTHY
            return Level.WARNING if abnormality < policy.warn_level else Level.CRITICAL


_EVICTION_WINDOW: Final = timedelta(minutes=10)
_QUOTA_PERIOD_US: Final = 100_000
_REPORTED: Final = ("cpuPressure", "memoryPressure", "cpuThrottled")


def node_signals(
    report: NodeUsageReported | None,
    capacity: Amount | None,
    published: NodePolicyState | None,
    evictions: Iterable[tuple[str, int]],
    now: datetime,
) -> dict[str, float]:
    """Return name of a signal -> measured value, without signals that cannot be computed.

    All values are percent, except `beEvictions`: the number of best-effort pods that the agent evicted in ten
    minutes.

    Args:
        evictions: (RFC 3339 time, number) of the best-effort pods that the agent evicted.

    Source: manager spec, 16.1.
    """
    found = {"beEvictions": float(_recent(evictions, now))}
    if report is None:
        return found
    found.update({name: report.signals[name] for name in _REPORTED if name in report.signals})
    if capacity is not None and report.node_usage is not None:
        used = amount_of_usage(report.node_usage)
        if capacity.cpu > 0:
            found["cpuUtil"] = 100.0 * _peak_cpu(report, used.cpu) / capacity.cpu
        if capacity.memory > 0:
            found["memoryUtil"] = 100.0 * used.memory / capacity.memory
    lent = published.batch_cpu_milli if published else None
    if lent:
        left = lent if report.be_quota_us < 0 else report.be_quota_us * 1000 / _QUOTA_PERIOD_US
        found["cpuSuppressed"] = 100.0 * (1.0 - min(left / lent, 1.0))
    return found


def _peak_cpu(report: NodeUsageReported, average: int) -> int:
    """Return the 95th percentile of the shortest window that has one, or the average, in milli-cores."""
    for window in sorted(report.aggregated_node_usages, key=lambda window: window.duration_seconds):
        if "p95" in window.usage:
            return window.usage["p95"].cpu_milli
    return average


def _recent(evictions: Iterable[tuple[str, int]], now: datetime) -> int:
    return sum(count for at, count in evictions if now - datetime.fromisoformat(at) <= _EVICTION_WINDOW)


_FLOAT_NOISE = 1e-9
"""0.1 * 30 is slightly more than 3, which must not allow a fourth node."""


class NodeWeight(NamedTuple):
    """Input of the guard: the name of a node, its smoothed abnormality from 0 to 1, and its computed weight of 100."""

    name: str
    abnormality: float
    weight: int


class Guarded(NamedTuple):
    weights: dict[str, int]  # Name of a node -> weight to publish. Nodes beyond the limit have the full weight, 100.
    abnormal: list[str]  # Names of all nodes whose computed weight is lower than 100, worst first
    cap: int  # Maximum number of nodes with a lowered weight

    @property
    def is_mass_abnormal(self) -> bool:
        """Whether the number of abnormal nodes is above the limit of nodes whose weight may be lowered."""
        return len(self.abnormal) > self.cap


def guard_weights(max_abnormal_ratio: float, nodes: Iterable[NodeWeight]) -> Guarded:
    """Return the weights to publish: only the most abnormal of the nodes get a lower weight.

    They are at most the share `max_abnormal_ratio` of all nodes, rounded up.

    Source: manager spec, 16.3; vectors manager/slo_weights.
    """
    everything = list(nodes)
    cap = math.ceil(max_abnormal_ratio * len(everything) - _FLOAT_NOISE)
    lowered = sorted(
        (node for node in everything if node.weight < FULL_WEIGHT), key=lambda node: (-node.abnormality, node.name)
    )
    weights = {node.name: FULL_WEIGHT for node in everything}
    weights.update((node.name, node.weight) for node in lowered[:cap])
    return Guarded(weights, [node.name for node in lowered], cap)
