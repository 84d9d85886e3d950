"""Priority classes and values of a pod: bands of `spec.priority`, the label that overrides them, and fallbacks.

`priority_class_raw` is the class as written, for admission. `priority_class` has fallbacks, for accounting and
translation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.objects import ObjectMeta, Pod, PriorityClass
from koordcore.protocol.qos import QosClass, qos


class PriorityBand(StrEnum):
    """The four priority classes of Koordinator, highest first: koord-prod, koord-mid, koord-batch, koord-free."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"


@dataclass(frozen=True, slots=True)
class BandRange:
    """Range of priority values of one Koordinator priority class."""

    lowest: int  # Lowest value, included
    highest: int  # Highest value, included
    default: int  # Value of pods of the class that have no value of their own


BANDS: Final[Mapping[PriorityBand, BandRange]] = {
    PriorityBand.PROD: BandRange(9000, 9999, 9500),
    PriorityBand.MID: BandRange(7000, 7999, 7500),
    PriorityBand.BATCH: BandRange(5000, 5999, 5500),
    PriorityBand.FREE: BandRange(3000, 3999, 3500),
}
_BY_NAME: Final[Mapping[str, PriorityBand]] = {str(band): band for band in PriorityBand}
_OF_QOS: Final[Mapping[QosClass, PriorityBand]] = {
    QosClass.SYSTEM: PriorityBand.PROD,
    QosClass.LSE: PriorityBand.PROD,
    QosClass.LSR: PriorityBand.PROD,
    QosClass.LS: PriorityBand.PROD,
    QosClass.BE: PriorityBand.BATCH,
}
PREEMPTION_NEVER: Final = "Never"
PREEMPTION_LOWER_PRIORITY: Final = "PreemptLowerPriority"


def installed_priority_classes() -> tuple[PriorityClass, ...]:
    """Return the PriorityClass objects that an installation creates. The value of each is the lowest one of its class.

    Source: protocol spec, 2.1.
    """
    return tuple(
        PriorityClass(
            metadata=ObjectMeta(name=str(band)), value=numbers.lowest, preemption_policy=PREEMPTION_LOWER_PRIORITY
        )
        for band, numbers in BANDS.items()
    )


def band_of_name(name: str) -> PriorityBand | None:
    """Return the priority class with this name (`koord-prod` ...); None for any other text."""
    return _BY_NAME.get(name)


def band_of_value(value: int) -> PriorityBand | None:
    """Return the priority class whose range contains a value of `spec.priority`; None if no range contains it.

    Source: protocol spec, 2.1.
    """
    for band, numbers in BANDS.items():
        if numbers.lowest <= value <= numbers.highest:
            return band
    return None


def priority_class_raw(pod: Pod) -> PriorityBand | None:
    """Return the priority class as the user wrote it; None if there is none. If the label
    `koordinator.sh/priority-class` is present, only the label counts, and an unknown text means none. Otherwise the
    range of `spec.priority` decides.

    Source: protocol spec, 2.2 (4).
    """
    label = pod.metadata.labels.get(keys.PRIORITY_CLASS)
    if label is not None:
        return _BY_NAME.get(label)
    return None if pod.spec.priority is None else band_of_value(pod.spec.priority)


def priority_class(pod: Pod) -> PriorityBand:
    """Return the Koordinator priority class of a pod. If neither the label `koordinator.sh/priority-class` nor
    `spec.priority` gives one, BE pods are koord-batch and all other pods are koord-prod.

    Source: protocol spec, 2.2 (5).
    """
    return priority_class_raw(pod) or _OF_QOS[qos(pod)]


def priority_value(pod: Pod | None) -> int:
    """Return the priority value of a pod; 0 without a pod. The value is `spec.priority` if it is set and not zero, else
    the default of the pod's class.

    Source: protocol spec, 2.2 (6).
    """
    if pod is None:
        return 0
    return pod.spec.priority or BANDS[priority_class(pod)].default
