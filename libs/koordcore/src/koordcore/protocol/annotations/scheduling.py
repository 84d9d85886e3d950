"""Scheduling labels of a pod: its scheduler and its preemption policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.annotations.text import FALSE, TRUE
from koordcore.protocol.priority import PREEMPTION_LOWER_PRIORITY, PREEMPTION_NEVER

_POLICIES: Final = frozenset({PREEMPTION_NEVER, PREEMPTION_LOWER_PRIORITY})


def scheduler_name(labels: Mapping[str, str], spec_scheduler_name: str) -> str:
    """Return the name of the scheduler that is responsible for the pod.

    If the label is present, it replaces the field, even if it is empty.

    Source:
        protocol spec, 2.2 (9)
    """
    return labels.get(keys.SCHEDULER_NAME, spec_scheduler_name)


def preemption_policy(labels: Mapping[str, str]) -> str | None:
    """Return the preemption policy of the label; None if it is not `Never` or `PreemptLowerPriority`.

    Source:
        protocol spec, 2.2 (8)
    """
    text = labels.get(keys.PREEMPTION_POLICY)
    return text if text in _POLICIES else None


def preemption_policy_or_never(labels: Mapping[str, str]) -> str:
    """Return the preemption policy of the label; `Never` if it is absent or invalid.

    Source:
        protocol spec, 2.2 (8)
    """
    return preemption_policy(labels) or PREEMPTION_NEVER


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Return whether reservation preemption may evict this pod: not if `disable-preemptible` is exactly `true`.

    Source:
        protocol spec, 4.1
    """
    return labels.get(keys.DISABLE_PREEMPTIBLE) != TRUE


def is_quota_non_preemptible(labels: Mapping[str, str]) -> bool:
    """Return whether the pod counts as non-preemptible in its quota: the label is exactly `false`.

    Source:
        protocol spec, 4.1
    """
    return labels.get(keys.QUOTA_PREEMPTIBLE) == FALSE
