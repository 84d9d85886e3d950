"""Which scheduler sees a pod, and whom the pod may push aside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.annotations.text import FALSE, TRUE
from koordcore.protocol.priority import PREEMPTION_LOWER_PRIORITY, PREEMPTION_NEVER

_POLICIES: Final = frozenset({PREEMPTION_NEVER, PREEMPTION_LOWER_PRIORITY})


def scheduler_name(labels: Mapping[str, str], spec_scheduler_name: str) -> str:
    """Return the scheduler's name as scheduler and descheduler see it.

    A present label replaces the field, even when empty.

    Source:
        protocol spec, 2.2 (9)
    """
    return labels.get(keys.SCHEDULER_NAME, spec_scheduler_name)


def preemption_policy(labels: Mapping[str, str]) -> str | None:
    """`Never` or `PreemptLowerPriority` when the label says exactly that, None ("not set") for everything else.

    Source:
        protocol spec, 2.2 (8)
    """
    text = labels.get(keys.PREEMPTION_POLICY)
    return text if text in _POLICIES else None


def preemption_policy_or_never(labels: Mapping[str, str]) -> str:
    """Return the same with the default of the policy transformer.

    Source:
        protocol spec, 2.2 (8)
    """
    return preemption_policy(labels) or PREEMPTION_NEVER


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """May reservation preemption take this pod? Unless `disable-preemptible` is exactly `true`.

    Source:
        protocol spec, 4.1
    """
    return labels.get(keys.DISABLE_PREEMPTIBLE) != TRUE


def is_quota_non_preemptible(labels: Mapping[str, str]) -> bool:
    """Does the pod use its quota as non-preemptible? Only with the exact text `false`.

    Source:
        protocol spec, 4.1
    """
    return labels.get(keys.QUOTA_PREEMPTIBLE) == FALSE
