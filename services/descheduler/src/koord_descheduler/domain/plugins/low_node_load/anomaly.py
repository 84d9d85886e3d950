"""Anomaly detectors: a node is acted on only after it was hot in several rounds in a row.

A detector is a value. `observed` and `elapsed` return the next one, so that replaying the observations gives the same
states.

Source:
    descheduler spec, 8.6
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

DEFAULT_TIMEOUT: Final = 60.0
"""Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyCondition:
    abnormalities: int = 5  # Number of abnormal observations in a row that do not yet make an anomaly
    normalities: int = 3  # Number of normal observations in a row that do not yet end an anomaly
    timeout: float = DEFAULT_TIMEOUT  # Seconds after which an anomaly ends by itself; 0 or less: the default

    @property
    def lasts(self) -> float:
        """Seconds after which an anomaly ends by itself."""
        return self.timeout if self.timeout > 0 else DEFAULT_TIMEOUT

    @property
    def is_off(self) -> bool:
        """Without detectors, pods leave a hot node in its first round."""
        return self.abnormalities == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    is_anomalous: bool = False  # Whether the state is anomaly; else it is ok
    abnormal: int = 0  # Abnormal observations in a row, in state ok
    normal: int = 0  # Normal observations in a row
    since: float = 0.0  # Unix seconds at which the anomaly began
    last_abnormal: float = 0.0  # Unix seconds of the last abnormal observation


OK = Detector()


def elapsed(detector: Detector, now: float, condition: AnomalyCondition) -> Detector:
    """If the anomaly is older than the timeout, the detector is ok again at `now`."""
    if detector.is_anomalous and now > detector.since + condition.lasts:
        return Detector(last_abnormal=detector.last_abnormal)
    return detector


def observed(detector: Detector, now: float, condition: AnomalyCondition, *, is_abnormal: bool) -> Detector:
    """Return a detector after an observation at `now`, in Unix seconds. `is_abnormal`: whether the node was hot."""
    before = elapsed(detector, now, condition)
    if is_abnormal:
        if before.is_anomalous:
            return replace(before, normal=0, last_abnormal=now)
        if before.abnormal + 1 > condition.abnormalities:
            return Detector(is_anomalous=True, since=now, last_abnormal=now)
        return Detector(abnormal=before.abnormal + 1, last_abnormal=now)
    if before.is_anomalous and before.normal + 1 > condition.normalities:
        return Detector(last_abnormal=before.last_abnormal)
    return replace(before, normal=before.normal + 1, abnormal=0)


class UsageKind(StrEnum):
    """Usage of a node that is compared with its thresholds: that of the whole node, or that of its prod pods."""

    NODE = "node"
    PROD = "prod"


@dataclass(slots=True)
class Detectors:
    """The detectors of all nodes, one per node and kind of usage."""

    # (kind, name of the node) -> detector. A detector that was never abnormal is not stored.
    states: dict[tuple[UsageKind, str], Detector] = field(default_factory=dict[tuple[UsageKind, str], Detector])

    def forget_older(self, now: float, lifetime: float) -> None:
        """Delete the detectors whose last abnormal observation is more than `lifetime` seconds ago."""
        old = [key for key, each in self.states.items() if now - each.last_abnormal > lifetime]
        for key in old:
            del self.states[key]

    def mark_abnormal(self, kind: UsageKind, node: str, now: float, condition: AnomalyCondition) -> None:
        before = self.states.get((kind, node), OK)
        self.states[kind, node] = observed(before, now, condition, is_abnormal=True)

    def mark_normal(self, kind: UsageKind, node: str, now: float, condition: AnomalyCondition) -> None:
        """No-op for a node without detector."""
        before = self.states.get((kind, node))
        if before is not None:
            self.states[kind, node] = observed(before, now, condition, is_abnormal=False)

    def is_anomalous(self, kind: UsageKind, node: str, now: float, condition: AnomalyCondition) -> bool:
        """Whether the detector of a node is in state anomaly at `now`."""
        return elapsed(self.states.get((kind, node), OK), now, condition).is_anomalous

    def reset(self, kind: UsageKind, node: str) -> None:
        """The node is no longer anomalous, and its counters are 0."""
        self.states.pop((kind, node), None)

    def reset_if_ok(self, kind: UsageKind, node: str) -> None:
        """Clear the counters of a detector in state ok: the node was measured and was not hot."""
        before = self.states.get((kind, node))
        if before is not None and not before.is_anomalous:
            del self.states[kind, node]
