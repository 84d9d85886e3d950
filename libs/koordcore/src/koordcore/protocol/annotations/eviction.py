"""Annotations that control which pods may be evicted and in which order, by the agent and the descheduler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.annotations.text import TRUE, parse_present
from koordcore.values.integers import parse_decimal
from koordcore.values.invalid import InvalidInput

NEVER_EVICT: Final = 2**31 - 1
"""Eviction cost of a pod that the descheduler must not evict."""

_COST: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")


def parse_eviction_cost(annotations: Mapping[str, str]) -> int:
    """Return the cost of evicting a pod, from its annotation `scheduling.koordinator.sh/eviction-cost`; 0 if absent.

    Pods with a lower cost are evicted first.

    The text is an int32 decimal without `+` and without leading zeros.

    Raises:
        InvalidInput: The text has another form or is empty. Callers then use 0.

    Source:
        protocol spec, 4.2
    """
    return parse_present(annotations, keys.EVICTION_COST, _parse_cost) or 0


def parse_deletion_cost(annotations: Mapping[str, str]) -> int:
    """Return the cost of deleting a pod, from its annotation `controller.kubernetes.io/pod-deletion-cost`; 0 if absent.

    A ReplicaSet deletes pods with a lower cost first. The text is an int32 decimal without `+` and without leading
    zeros.

    Raises:
        InvalidInput: The text has another form or is empty. Callers then use 0.

    Source:
        descheduler spec, 1.1
    """
    return parse_present(annotations, keys.POD_DELETION_COST, _parse_cost) or 0


def _parse_cost(text: str) -> int:
    if _COST.fullmatch(text) is None:
        raise InvalidInput("an int32 decimal without + and leading zeros", text)
    return parse_decimal(text)


def parse_eviction_priority(annotations: Mapping[str, str]) -> int:
    """Return the rank of a pod in the agent's evictions, from its annotation `koordinator.sh/eviction-priority`.

    The agent evicts pods with a lower rank first. 0 if absent.

    The text is an int32 decimal; `+5` and `007` are accepted.

    Raises:
        InvalidInput: The text has another form or is empty. Callers then use 0.

    Source:
        protocol spec, 4.2
    """
    return parse_present(annotations, keys.EVICTION_PRIORITY, parse_decimal) or 0


def is_eviction_enabled(labels: Mapping[str, str]) -> bool:
    """Return whether the agent may evict a pod that is not best effort.

    It may if the label `koordinator.sh/eviction-enabled` is exactly `true`.

    Source:
        protocol spec, 4.1
    """
    return labels.get(keys.EVICTION_ENABLED) == TRUE
