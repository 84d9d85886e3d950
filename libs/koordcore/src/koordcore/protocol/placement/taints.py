"""Taints and tolerations of Kubernetes.

Source:
    scheduler-core spec, 5.4
"""

from collections.abc import Sequence
from typing import Final

from koordcore.protocol.objects import Taint, Toleration

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether the toleration matches the taint.

    The effect of the toleration must be empty or that of the taint. Its key must be that of the taint, or empty with
    operator Exists. Its operator must be Exists, or Equal with the value of the taint.

    Source:
        scheduler-core spec, 5.4
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case _:
            return False


def is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Return whether any of the tolerations matches the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def first_untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int | None:
    """Return the index of the first NoSchedule or NoExecute taint that is not tolerated, or None if there is none."""
    for index, taint in enumerate(taints):
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not is_tolerated(taint, tolerations):
            return index
    return None


def intolerable_preferences(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int:
    """Return the number of PreferNoSchedule taints that no toleration with effect "" or PreferNoSchedule matches."""
    soft = [toleration for toleration in tolerations if toleration.effect in ("", PREFER_NO_SCHEDULE)]
    return sum(1 for taint in taints if taint.effect == PREFER_NO_SCHEDULE and not is_tolerated(taint, soft))
