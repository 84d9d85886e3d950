"""The status that the scheduler publishes about a quota.

Source:
    scheduler-core spec, 10.9; protocol spec, 4.6 (annotations out)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordcore.protocol import keys

_ANNOTATIONS: Final = {
    "runtime": keys.QUOTA_RUNTIME,
    "request": keys.QUOTA_REQUEST,
    "child_request": keys.QUOTA_CHILD_REQUEST,
    "guaranteed": keys.QUOTA_GUARANTEED,
    "allocated": keys.QUOTA_ALLOCATED,
    "non_preemptible_request": keys.QUOTA_NON_PREEMPTIBLE_REQUEST,
    "non_preemptible_used": keys.QUOTA_NON_PREEMPTIBLE_USED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaStatus:
    """The sums of one quota, without zeros, so that equal sums are equal values.

    Amounts are milli-cores for cpu and whole units otherwise.
    """

    name: str
    namespace: str = ""
    used: dict[str, int] = field(default_factory=dict[str, int])
    runtime: dict[str, int] = field(default_factory=dict[str, int])
    request: dict[str, int] = field(default_factory=dict[str, int])
    child_request: dict[str, int] = field(default_factory=dict[str, int])
    guaranteed: dict[str, int] = field(default_factory=dict[str, int])
    allocated: dict[str, int] = field(default_factory=dict[str, int])
    non_preemptible_request: dict[str, int] = field(default_factory=dict[str, int])
    non_preemptible_used: dict[str, int] = field(default_factory=dict[str, int])


def changed(statuses: Iterable[QuotaStatus], known: Mapping[str, QuotaStatus]) -> list[QuotaStatus]:
    """Return the statuses that differ from the known one of the same quota."""
    return [status for status in statuses if known.get(status.name) != status]
