"""All annotations that binding a pod sets: its allocation, its gang, and what installed plugins write.

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
    """Return what the binding of a pod writes on it.

    Args:
        allocation: What the pod was given.
        gang: With whom it is bound; None if alone.
        texts: Annotations of installed plugins. They do not replace the others.
        present: Annotations of the pod object.
    """
    return {**texts, **bound_gang_annotations(gang, present), **allocation_annotations(allocation, present)}


class Bound(NamedTuple):
    """What annotations of a bound pod state, and the other annotations."""

    allocation: Allocation
    gang: BoundGang | None
    others: dict[str, str]


def without_typed_annotations(annotations: Mapping[str, str]) -> Bound:
    """Read the inverse of `binding_annotations`; an annotation that is invalid states nothing."""
    typed = (*ALLOCATION_KEYS, *BOUND_GANG_KEYS)
    others = {key: text for key, text in annotations.items() if key not in typed}
    return Bound(allocation_of(annotations), bound_gang_of(annotations), others)
