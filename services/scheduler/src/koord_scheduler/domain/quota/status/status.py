"""What the scheduler writes back to a quota's object.

source    scheduler-core spec, 10.9; protocol spec, 4.6 (annotations out)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.lenient_json import parse_json
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import ResourceList, is_equal, parse_resources

from koord_scheduler.domain.quota.specs.text import quantities

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
    """The sums of one quota, without zeros, so that equal sums are equal values. Amounts as everywhere."""

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


@dataclass(frozen=True, slots=True)
class StatusPatch:
    """What to change in the object; used: None leaves `status.used` as it is."""

    annotations: dict[str, str]
    used: dict[str, str] | None


def changed(statuses: Iterable[QuotaStatus], known: Mapping[str, QuotaStatus]) -> list[QuotaStatus]:
    """Those that differ from what is known of their quota."""
    return [status for status in statuses if known.get(status.name) != status]


def status_patch(
    status: QuotaStatus, annotations: Mapping[str, str], used: Mapping[str, str | int | float]
) -> StatusPatch | None:
    """What has to be written so that the object says this; None: it does, zeros ignored.

    annotations, used    of the object as it is; an unreadable list is written anew
    """
    fresh: dict[str, str] = {}
    for field_name, key in _ANNOTATIONS.items():
        wanted = quantities(getattr(status, field_name))
        if not _says(_read(annotations.get(key)), wanted):
            fresh[key] = codec.encode_canonical(wanted).decode()
    wanted_used = quantities(status.used)
    try:
        present = parse_resources(used)
    except InvalidInput:
        present = None
    new_used = None if _says(present, wanted_used) else wanted_used
    return StatusPatch(fresh, new_used) if fresh or new_used is not None else None


def _read(text: str | None) -> ResourceList | None:
    try:
        return parse_resources(parse_json(text) if text else None)
    except InvalidInput:
        return None


def _says(present: ResourceList | None, wanted: Mapping[str, str]) -> bool:
    return present is not None and is_equal(present, parse_resources(wanted))
