"""Labels and annotations of a pod: its scheduler, its preemption policy, if and in which order it may be evicted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.annotations.text import FALSE, TRUE, parse_present
from koordcore.protocol.priority import PREEMPTION_LOWER_PRIORITY, PREEMPTION_NEVER
from koordcore.values.integers import parse_decimal
from koordcore.values.invalid import InvalidInput

_POLICIES: Final = frozenset({PREEMPTION_NEVER, PREEMPTION_LOWER_PRIORITY})


def scheduler_name(labels: Mapping[str, str], spec_scheduler_name: str) -> str:
    """Return the name of the scheduler that must place a pod. If `scheduling.koordinator.sh/scheduler-name` is present,
    even with an empty value, it decides. `spec_scheduler_name`: field `spec.schedulerName`, which decides without the
    label.

    Source: protocol spec, 2.2 (9).
    """
    return labels.get(keys.SCHEDULER_NAME, spec_scheduler_name)


def preemption_policy(labels: Mapping[str, str]) -> str | None:
    """Return the policy in a pod's label `scheduling.koordinator.sh/preemption-policy`. None if the label is absent, or
    is neither `Never` nor `PreemptLowerPriority`.

    Source: protocol spec, 2.2 (8).
    """
    text = labels.get(keys.PREEMPTION_POLICY)
    return text if text in _POLICIES else None


def preemption_policy_or_never(labels: Mapping[str, str]) -> str:
    """Return the policy in a pod's label `scheduling.koordinator.sh/preemption-policy`; `Never` if absent or invalid.

    Source: protocol spec, 2.2 (8).
    """
    return preemption_policy(labels) or PREEMPTION_NEVER


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Return whether preemption for a Reservation may evict a pod. It may not if the pod's label
    `scheduling.koordinator.sh/disable-preemptible` is exactly `true`.

    Source: protocol spec, 4.1.
    """
    return labels.get(keys.DISABLE_PREEMPTIBLE) != TRUE


def is_quota_non_preemptible(labels: Mapping[str, str]) -> bool:
    """Return whether a pod counts as non-preemptible in its quota. It does if its label
    `quota.scheduling.koordinator.sh/preemptible` is exactly `false`.

    Source: protocol spec, 4.1.
    """
    return labels.get(keys.QUOTA_PREEMPTIBLE) == FALSE


NEVER_EVICT: Final = 2**31 - 1  # Eviction cost of a pod that the descheduler must not evict

_COST: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")


def parse_eviction_cost(annotations: Mapping[str, str]) -> int:
    """Return the cost of evicting a pod, from its annotation `scheduling.koordinator.sh/eviction-cost`; 0 if absent.
    Pods with a lower cost are evicted first. The text is an int32 decimal without `+` and without leading zeros.

    Raises:
        InvalidInput: The text has another form or is empty. Callers then use 0.

    Source: protocol spec, 4.2.
    """
    return parse_present(annotations, keys.EVICTION_COST, _parse_cost) or 0


def parse_deletion_cost(annotations: Mapping[str, str]) -> int:
    """Return the cost of deleting a pod, from its annotation `controller.kubernetes.io/pod-deletion-cost`; 0 if absent.
    A ReplicaSet deletes pods with a lower cost first. The text is an int32 decimal without `+` and without leading
    zeros.

    Raises:
        InvalidInput: The text has another form or is empty. Callers then use 0.

    Source: descheduler spec, 1.1.
    """
    return parse_present(annotations, keys.POD_DELETION_COST, _parse_cost) or 0


def _parse_cost(text: str) -> int:
    if _COST.fullmatch(text) is None:
        raise InvalidInput("an int32 decimal without + and leading zeros", text)
    return parse_decimal(text)


def parse_eviction_priority(annotations: Mapping[str, str]) -> int:
    """Return the rank of a pod in the agent's evictions, from its annotation `koordinator.sh/eviction-priority`. The
    agent evicts pods with a lower rank first. 0 if absent. The text is an int32 decimal; `+5` and `007` are accepted.

    Raises:
        InvalidInput: The text has another form or is empty. Callers then use 0.

    Source: protocol spec, 4.2.
    """
    return parse_present(annotations, keys.EVICTION_PRIORITY, parse_decimal) or 0


def forbids_disruption(annotations: Mapping[str, str]) -> bool:
    """Return whether a pod's annotation for an autoscaler forbids to move it.

    `karpenter.sh/do-not-disrupt` forbids it unless it is empty or `false`: newer versions of Karpenter also accept a
    duration. `cluster-autoscaler.kubernetes.io/safe-to-evict` forbids it if it is exactly `false`.

    Source: reality.md, 5.3.
    """
    return (
        annotations.get(keys.KARPENTER_DO_NOT_DISRUPT, "") not in ("", FALSE)
        or annotations.get(keys.AUTOSCALER_SAFE_TO_EVICT) == FALSE
    )


def is_eviction_enabled(labels: Mapping[str, str]) -> bool:
    """Return whether the agent may evict a pod that is not best effort. It may if the label
    `koordinator.sh/eviction-enabled` is exactly `true`.

    Source: protocol spec, 4.1.
    """
    return labels.get(keys.EVICTION_ENABLED) == TRUE
