"""Annotations that binding a pod sets: its allocation, its gang, and those of installed plugins.

Source: scheduler-fine-grained spec, 1.8 (7), 2.9; scheduler-core spec, 8.7.
"""

from collections.abc import Mapping
from typing import NamedTuple

from koordcore.protocol.annotations.allocation import ALLOCATION_KEYS, allocation_annotations, allocation_of
from koordcore.protocol.annotations.gang import BOUND_GANG_KEYS, BoundGang, bound_gang_annotations, bound_gang_of
from koordcore.values.allocation import Allocation


def binding_annotations(
    allocation: Allocation, gang: BoundGang | None, texts: Mapping[str, str], present: Mapping[str, str]
) -> dict[str, str]:
    """Return all annotations that the binding of a pod sets on it.

    Args:
        allocation: Allocation of the pod.
        gang: Gang group that is bound together with the pod; None if the pod is bound alone.
        texts: Annotations of installed plugins. They do not replace those of the allocation or the gang.
        present: Annotations that the pod object has now.
    """
    return {**texts, **bound_gang_annotations(gang, present), **allocation_annotations(allocation, present)}


class Bound(NamedTuple):
    """Annotations of a bound pod, split into typed values and the rest.

    Attributes:
        allocation: CPUs, NUMA zones, devices and Reservation of the pod.
        gang: Gang group that was bound together with the pod; None if the pod was bound alone.
        others: Annotations that belong neither to the allocation nor to the gang: key -> text.
    """

    allocation: Allocation
    gang: BoundGang | None
    others: dict[str, str]


def without_typed_annotations(annotations: Mapping[str, str]) -> Bound:
    """Split the annotations of a bound pod into allocation, gang and the rest.

    It reads what `binding_annotations` has written. The allocation lacks what annotations do not contain: the quota,
    and the amounts taken from a Reservation. An invalid annotation counts as absent.
    """
    typed = (*ALLOCATION_KEYS, *BOUND_GANG_KEYS)
    others = {key: text for key, text in annotations.items() if key not in typed}
    return Bound(allocation_of(annotations), bound_gang_of(annotations), others)
