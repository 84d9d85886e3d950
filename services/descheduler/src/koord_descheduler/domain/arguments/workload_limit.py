"""The number of pods of one workload that may be in migration, or unavailable, at the same time."""

import re
from typing import Final

from koordcore.values.invalid import InvalidInput

_PERCENT: Final = re.compile(r"([+-]?[0-9]{1,9})%")


def percentage(text: str) -> int:
    """Return the number of a percentage such as "20%".

    Raises:
        InvalidInput: The text is not a whole number followed by %.
    """
    match = _PERCENT.fullmatch(text)
    if match is None:
        raise InvalidInput("a percentage such as 20%", text)
    return int(match[1])


def workload_limit(replicas: int, value: int | str | None) -> int:
    """Return the maximum number of pods of a workload that may be in migration, or unavailable, at the same time.

    A number is taken as it is, a percentage of the replicas is rounded down; 0 becomes 1. Without a value: 10 % of more
    than 10 replicas (rounded down), 2 of 4 to 10 replicas, else 1. The result never exceeds the replicas.

    Args:
        replicas: Replicas of the workload.
        value: Number, percentage, or None.

    Raises:
        InvalidInput: The text is not a percentage.

    Source:
        descheduler spec, 6.2
    """
    if value is None:
        limit = replicas // 10 if replicas > 10 else 2 if replicas >= 4 else 1
    elif isinstance(value, str):
        limit = percentage(value) * replicas // 100 or 1
    else:
        limit = value or 1
    return min(limit, replicas)
