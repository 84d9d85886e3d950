"""Anomaly detectors: a node is acted on only after it was hot in several rounds in a row.

A detector is a value. `observed` and `elapsed` return the next one, so that replaying the observations gives the same
states.

Source:
    descheduler spec, 8.6
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyCondition:
    """The conditions under which a detector changes its state.

    Attributes:
        abnormalities: Number of abnormal observations in a row that do not yet make an anomaly.
        normalities: Number of normal observations in a row that do not yet end an anomaly.
        timeout: Seconds after which an anomaly ends by itself.
    """

    abnormalities: int = 5
    normalities: int = 3
    timeout: float = 60.0

    @property
    def is_off(self) -> bool:
        """Return whether anomaly detectors are switched off, so that pods leave a hot node in its first round."""
        return self.abnormalities == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """The state of one detector.

    Attributes:
        is_anomalous: Whether the state is anomaly; else it is ok.
        abnormal: Abnormal observations in a row, in state ok.
        normal: Normal observations in a row.
        since: Unix seconds at which the anomaly began.
        last_abnormal: Unix seconds of the last abnormal observation.
    """

    is_anomalous: bool = False
    abnormal: int = 0
    normal: int = 0
    since: float = 0.0
    last_abnormal: float = 0.0


OK = Detector()


def elapsed(detector: Detector, now: float, condition: AnomalyCondition) -> Detector:
    """Return the state of a detector at `now`: if its anomaly is older than the timeout, it is ok again."""
    if detector.is_anomalous and now > detector.since + condition.timeout:
        return Detector(last_abnormal=detector.last_abnormal)
    return detector


def observed(detector: Detector, now: float, condition: AnomalyCondition, *, is_abnormal: bool) -> Detector:
    """Return a detector after one observation.

    Args:
        detector: The detector before.
        now: Unix seconds of the observation.
        condition: Conditions under which the state changes.
        is_abnormal: Whether the node was hot.

    Source:
        descheduler spec, 8.6
    """
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
    """The detectors of all nodes, one per node and kind of usage.

    Attributes:
        states: (kind, name of the node) -> detector. A detector that was never abnormal is not stored.
    """

    states: dict[tuple[UsageKind, str], Detector] = field(default_factory=dict[tuple[UsageKind, str], Detector])

    def forget_older(self, now: float, lifetime: float) -> None:
        """Delete the detectors whose last abnormal observation is more than `lifetime` seconds ago."""
        old = [key for key, each in self.states.items() if now - each.last_abnormal > lifetime]
        for key in old:
            del self.states[key]

    def mark_abnormal(self, kind: UsageKind, node: str, now: float, condition: AnomalyCondition) -> None:
        """Record that a node was hot in this round."""
        before = self.states.get((kind, node), OK)
        self.states[kind, node] = observed(before, now, condition, is_abnormal=True)

    def mark_normal(self, kind: UsageKind, node: str, now: float, condition: AnomalyCondition) -> None:
        """Record one normal observation. No-op for a node without detector."""
        before = self.states.get((kind, node))
        if before is not None:
            self.states[kind, node] = observed(before, now, condition, is_abnormal=False)

    def is_anomalous(self, kind: UsageKind, node: str, now: float, condition: AnomalyCondition) -> bool:
        """Return whether the detector of a node is in state anomaly at `now`."""
        return elapsed(self.states.get((kind, node), OK), now, condition).is_anomalous

    def reset(self, kind: UsageKind, node: str) -> None:
        """Reset the anomaly detector of a node: it is no longer anomalous, and its counters are 0."""
        self.states.pop((kind, node), None)

    def reset_if_ok(self, kind: UsageKind, node: str) -> None:
        """Clear the counters of a detector in state ok: the node was measured and was not hot."""
        before = self.states.get((kind, node))
        if before is not None and not before.is_anomalous:
            del self.states[kind, node]
