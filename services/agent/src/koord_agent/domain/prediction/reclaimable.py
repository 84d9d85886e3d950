"""Compute the part of prod pods' requests that they will not use, and their predicted peak usage."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from koordcore.protocol.priority import PriorityBand

from koord_agent.domain.prediction.model import Peak

COLD_START_SECONDS: Final = 24 * 3600.0
SAFETY_MARGIN_PERCENT: Final = 10
NOTHING: Final = Peak(cpu_milli=0, memory_bytes=0)
SYSTEM_CLASS: Final = "sys"
COUNTED_CLASSES: Final = (SYSTEM_CLASS, str(PriorityBand.PROD), "")
"""Classes whose predictions the priority predictor adds up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProdPod:
    """A pod of priority class prod, or without a class, with its predicted usage."""

    request: Peak
    age_seconds: float
    prediction: Peak | None  # Predicted peak usage; None if the pod has no model yet, is young, or is over
    is_over: bool = False  # Whether the pod is terminating or has finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A prediction for prod pods: the part of their requests that they will not use, and their peak usage."""

    reclaimable: Peak
    peak: Peak


@dataclass(frozen=True, slots=True, kw_only=True)
class ProdPrediction:
    """The predictions for prod pods by two methods."""

    by_pod: Prediction
    # Prediction with the models of priority classes. None while a class has no model; then no prediction is reported.
    by_priority: Prediction | None

    @property
    def reported(self) -> Prediction | None:
        """The prediction to report: for each resource, the smaller reclaimable amount and the larger peak.

        It is None while a priority class has no model.
        """
        other = self.by_priority
        if other is None:
            return None
        return Prediction(
            reclaimable=_each(min, self.by_pod.reclaimable, other.reclaimable),
            peak=_each(max, self.by_pod.peak, other.peak),
        )


def takes_part(priority_class: str) -> bool:
    """Only the priority class prod, and "" for no class."""
    return priority_class in ("", PriorityBand.PROD)


def predict_prod(
    allocatable: Peak,
    pods: Iterable[ProdPod],
    classes: Mapping[str, Peak | None],
    *,
    cold_start_seconds: float = COLD_START_SECONDS,
    safety_margin_percent: float = SAFETY_MARGIN_PERCENT,
) -> ProdPrediction:
    """Predict the usage of prod pods by two methods: with the models of pods, and with those of priority classes.

    The peak of a young pod, or of a pod without a model, is its whole request, and nothing of it is reclaimable. A pod
    that is over counts only while it is young.

    Args:
        classes: Class -> predicted peak, for "sys", "koord-prod" and "" (pods without a class). None or absent: no
            model.
        cold_start_seconds: Age of a pod below which its whole request counts as used.
    """
    margin = 1 + safety_margin_percent / 100
    unpredicted, peaks, reclaimable, requests = NOTHING, NOTHING, NOTHING, NOTHING
    for pod in pods:
        if pod.age_seconds <= cold_start_seconds:
            unpredicted = _add(unpredicted, pod.request)
            if not pod.is_over:
                requests = _add(requests, pod.request)
        elif pod.is_over:
            continue
        elif pod.prediction is None:
            unpredicted = _add(unpredicted, pod.request)
        else:
            peak = _with_margin(pod.prediction, margin)
            peaks = _add(peaks, peak)
            reclaimable = _add(reclaimable, _rest(pod.request, peak))
            requests = _add(requests, pod.request)
    by_pod = Prediction(reclaimable=_each(min, _rest(allocatable, peaks), reclaimable), peak=_add(peaks, unpredicted))
    return ProdPrediction(by_pod=by_pod, by_priority=_by_priority(allocatable, requests, classes, margin))


def _by_priority(
    allocatable: Peak, requests: Peak, classes: Mapping[str, Peak | None], margin: float
) -> Prediction | None:
    total = NOTHING
    for name in COUNTED_CLASSES:
        peak = classes.get(name)
        if peak is None:
            return None
        total = _add(total, peak)
    used = _with_margin(total, margin)
    return Prediction(reclaimable=_each(min, _rest(allocatable, used), _rest(requests, used)), peak=used)


def _with_margin(peak: Peak, margin: float) -> Peak:
    return Peak(cpu_milli=int(peak.cpu_milli * margin), memory_bytes=int(peak.memory_bytes * margin))


def _add(left: Peak, right: Peak) -> Peak:
    return Peak(cpu_milli=left.cpu_milli + right.cpu_milli, memory_bytes=left.memory_bytes + right.memory_bytes)


def _rest(left: Peak, right: Peak) -> Peak:
    return Peak(
        cpu_milli=max(left.cpu_milli - right.cpu_milli, 0), memory_bytes=max(left.memory_bytes - right.memory_bytes, 0)
    )


def _each(choose: Callable[[int, int], int], left: Peak, right: Peak) -> Peak:
    return Peak(
        cpu_milli=choose(left.cpu_milli, right.cpu_milli), memory_bytes=choose(left.memory_bytes, right.memory_bytes)
    )
