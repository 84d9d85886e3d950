"""Labels and annotations of gang members: name of the gang, sizes, waiting time, match policy, network index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from koordcore.protocol import keys
from koordcore.protocol.annotations.text import parse_present
from koordcore.values.duration import parse_duration
from koordcore.values.integers import parse_decimal
from koordcore.values.invalid import InvalidInput

ONCE_SATISFIED: Final = "once-satisfied"
ONLY_WAITING: Final = "only-waiting"
WAITING_AND_RUNNING: Final = "waiting-and-running"
MATCH_POLICIES: Final = (ONCE_SATISFIED, ONLY_WAITING, WAITING_AND_RUNNING)
MODE_STRICT: Final = "Strict"
MODE_NON_STRICT: Final = "NonStrict"
NO_INDEX: Final = -1


def gang_name(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the name of the gang in a pod's labels and annotations; "" if it has none. The labels
    `pod-group.scheduling.sigs.k8s.io` and `pod-group.scheduling.sigs.k8s.io/name` take precedence, in this order, over
    the annotation `gang.scheduling.koordinator.sh/name`. An empty value counts as absent.

    Source: protocol spec, 4.1 (precedence).
    """
    return labels.get(keys.POD_GROUP) or labels.get(keys.POD_GROUP_NAME) or annotations.get(keys.GANG_NAME) or ""


def gang_match_policy(annotations: Mapping[str, str], default: str = ONCE_SATISFIED) -> str:
    """Return the match policy of a gang: which member pods count towards its minimum. The annotation
    `gang.scheduling.koordinator.sh/match-policy` takes precedence over `pod-group.scheduling.sigs.k8s.io/match-policy`.
    If both are absent or unknown, `default` is returned.

    Source: protocol spec, 4.2; vectors scheduler/gang_spec (unknown text).
    """
    written = annotations.get(keys.GANG_MATCH_POLICY) or annotations.get(keys.GANG_MATCH_POLICY_ALIAS)
    return written if written in MATCH_POLICIES else default


def parse_gang_wait_time(annotations: Mapping[str, str]) -> int:
    """Return for how many nanoseconds members of a gang wait for each other at Permit, from a pod's annotation. The
    annotation is `gang.scheduling.koordinator.sh/waiting-time`. 0 if absent or empty: the plugin's default applies.

    Raises:
        InvalidInput: The text is not a valid duration, for example a number without a unit.

    Source: protocol spec, 4.2.
    """
    if not annotations.get(keys.GANG_WAITING_TIME):
        return 0
    return parse_present(annotations, keys.GANG_WAITING_TIME, parse_duration) or 0


def parse_gang_min_num(labels: Mapping[str, str], annotations: Mapping[str, str]) -> int:
    """Return the minimum number of a gang: the number of members that must be placed together. The label
    `pod-group.scheduling.sigs.k8s.io/min-available` counts if present, else the annotation
    `gang.scheduling.koordinator.sh/min-available`.

    Raises:
        InvalidInput: Both are missing, or the value is not an int32 decimal.

    Source: protocol spec, 4.2; scheduler-core spec, 8.
    """
    if labels.get(keys.POD_GROUP_MIN_AVAILABLE):
        return parse_present(labels, keys.POD_GROUP_MIN_AVAILABLE, parse_decimal) or 0
    number = parse_present(annotations, keys.GANG_MIN_AVAILABLE, parse_decimal)
    if number is None:
        raise InvalidInput("present on a gang's pods", None, f"[{keys.GANG_MIN_AVAILABLE}]")
    return number


def parse_gang_total_num(annotations: Mapping[str, str]) -> int:
    """Return the total number of members of a gang, from a pod's annotation `.../total-number`. 0 if absent or empty:
    the total then equals the minimum number.

    Raises:
        InvalidInput: The text is not an int32 decimal.

    Source: protocol spec, 4.2.
    """
    if not annotations.get(keys.GANG_TOTAL_NUMBER):
        return 0
    return parse_present(annotations, keys.GANG_TOTAL_NUMBER, parse_decimal) or 0


def gang_total_num(annotations: Mapping[str, str], min_num: int) -> int:
    """Return the total number of members of a gang; `min_num` if it is absent, invalid or smaller than `min_num`.

    Source: protocol spec, 4.2.
    """
    try:
        return max(parse_gang_total_num(annotations), min_num)
    except InvalidInput:
        return min_num


def parse_network_topology_index(annotations: Mapping[str, str]) -> int:
    """Return the index of a pod in its gang, which orders the members for network topology; -1 if absent. The
    annotation is `gang.scheduling.koordinator.sh/network-topology-index`. Pods without an index come last.

    Raises:
        InvalidInput: The text is not an int32 decimal.

    Source: protocol spec, 4.2.
    """
    index = parse_present(annotations, keys.GANG_NETWORK_TOPOLOGY_INDEX, parse_decimal)
    return NO_INDEX if index is None else index


class BoundGang(msgspec.Struct, frozen=True, gc=False):
    """Gang group whose pods the gateway binds together, as seen from one of these pods.

    Attributes:
        group: Id of the group.
        members: Number of pods of the group that are bound together, at least 2.

    Source: scheduler-core spec, 8.7.
    """

    group: str
    members: int


_GROUP_KEYS: Final = (keys.BIND_GANG_GROUP_ID, keys.BIND_GANG_GROUP_ID_ALIAS)
_MEMBER_KEYS: Final = (keys.BIND_GANG_MEMBER_COUNT, keys.BIND_GANG_MEMBER_COUNT_ALIAS)
BOUND_GANG_KEYS: Final = (*_GROUP_KEYS, *_MEMBER_KEYS)


def bound_gang_annotations(gang: BoundGang | None, present: Mapping[str, str]) -> dict[str, str]:
    """Return the gang annotations that binding a pod sets on it. An annotation that the pod has and must not keep is
    set to the empty text. `gang`: Gang group that is bound together with the pod; None if the pod is bound alone.
    """
    if gang is None:
        return {key: "" for key in BOUND_GANG_KEYS if key in present} if present else {}
    return {**dict.fromkeys(_GROUP_KEYS, gang.group), **dict.fromkeys(_MEMBER_KEYS, str(gang.members))}


def bound_gang_of(annotations: Mapping[str, str]) -> BoundGang | None:
    """Read from the annotations of a bound pod the gang group that was bound together with it. None if the pod was
    bound alone, or if the number of members is not a decimal.
    """
    group, members = annotations.get(keys.BIND_GANG_GROUP_ID), annotations.get(keys.BIND_GANG_MEMBER_COUNT)
    try:
        return BoundGang(group, parse_decimal(members)) if group and members else None
    except InvalidInput:
        return None
