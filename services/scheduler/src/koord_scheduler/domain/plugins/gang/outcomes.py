"""The values that Coscheduling's extension points return. The caller acts on them.

Source: scheduler-core spec, 8.5 to 8.8; reason codes: 17
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Codes for why a pod of a gang may not be queued, attempted or placed, such as `GANG_NOT_FOUND`."""

    GANG_NOT_FOUND = "gang-not-found"
    GANG_NOT_INITIALIZED = "gang-not-initialized"
    MEMBER_GANG_MISSING = "member-gang-missing"
    MEMBER_GANG_NOT_INITIALIZED = "member-gang-not-initialized"
    NOT_ENOUGH_CHILDREN = "not-enough-children"
    GROUP_IS_SCHEDULING = "gang-group-is-scheduling"
    NOT_A_PENDING_CHILD = "not-a-pending-child"
    REPRESENTATIVE_EXISTS = "representative-exists"
    GROUP_FAILED = "gang-group-failed"
    NO_NETWORK_TOPOLOGY = "no-cluster-network-topology"


@dataclass(frozen=True, slots=True)
class Refused:
    """Reason why a pod of a gang may not enter the queue, be attempted or be placed now."""

    reason: Reason  # Code of the reason
    message: str  # One sentence for the user


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequences:
    """Consequences of one event for other pods of gangs. Uids are ordered by `namespace/name`."""

    allowed: tuple[str, ...] = ()  # Pods that waited at Permit and may be bound now
    # Pods that waited at Permit and lose their nodes. The gang counts them as pending already. The caller releases
    # their nodes and queues them again; it must not call `unreserve` for them.
    rejected: tuple[str, ...] = ()
    activate: tuple[str, ...] = ()  # Pods that PreEnqueue refused before and that the caller shall try again


NOTHING: Final = Consequences()


@dataclass(frozen=True, slots=True)
class Released:
    """Permit's answer that the pod may be bound, together with the pods in `consequences.allowed`."""

    consequences: Consequences = NOTHING


@dataclass(frozen=True, slots=True)
class Waits:
    """Permit's answer that the pod keeps its node and waits for the rest of its group. A framework that limits waits to
    15 minutes renews the wait until `nanos` have passed (spec 16, pitfall 11).
    """

    nanos: int  # Longest wait in nanoseconds; 0 for a gang without parameters


PermitOutcome = Released | Waits | Refused


def joined(ids: Iterable[str]) -> str:
    """Return ids as text in the form of Koordinator's messages: in square brackets, separated by spaces."""
    return "[" + " ".join(ids) + "]"
