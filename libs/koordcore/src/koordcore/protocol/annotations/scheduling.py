"""Scheduling labels of a pod: its scheduler and its preemption policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.annotations.text import FALSE, TRUE
from koordcore.protocol.priority import PREEMPTION_LOWER_PRIORITY, PREEMPTION_NEVER

_POLICIES: Final = frozenset({PREEMPTION_NEVER, PREEMPTION_LOWER_PRIORITY})


def scheduler_name(labels: Mapping[str, str], spec_scheduler_name: str) -> str:
    """Return the name of the scheduler that must place a pod.

    Args:
        labels: Labels of the pod. If `scheduling.koordinator.sh/scheduler-name` is present, even with an empty value,
            it decides.
        spec_scheduler_name: Field `spec.schedulerName`, which decides without the label.

    Source:
        protocol spec, 2.2 (9)
    """
    return labels.get(keys.SCHEDULER_NAME, spec_scheduler_name)


def preemption_policy(labels: Mapping[str, str]) -> str | None:
    """Return the policy in a pod's label `scheduling.koordinator.sh/preemption-policy`.

    None if the label is absent, or is neither `Never` nor `PreemptLowerPriority`.

    Source:
        protocol spec, 2.2 (8)
    """
    text = labels.get(keys.PREEMPTION_POLICY)
    return text if text in _POLICIES else None


def preemption_policy_or_never(labels: Mapping[str, str]) -> str:
    """Return the policy in a pod's label `scheduling.koordinator.sh/preemption-policy`; `Never` if absent or invalid.

    Source:
        protocol spec, 2.2 (8)
    """
    return preemption_policy(labels) or PREEMPTION_NEVER


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Return whether preemption for a Reservation may evict a pod.

    It may not if the pod's label `scheduling.koordinator.sh/disable-preemptible` is exactly `true`.

    Source:
        protocol spec, 4.1
    """
    return labels.get(keys.DISABLE_PREEMPTIBLE) != TRUE


def is_quota_non_preemptible(labels: Mapping[str, str]) -> bool:
    """Return whether a pod counts as non-preemptible in its quota.

    It does if its label `quota.scheduling.koordinator.sh/preemptible` is exactly `false`.

    Source:
        protocol spec, 4.1
    """
    return labels.get(keys.QUOTA_PREEMPTIBLE) == FALSE
