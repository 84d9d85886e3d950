"""What the points of Coscheduling answer: values, for the caller to act on.

Source:
    scheduler-core spec, 8.5 to 8.8; reason codes: 17
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Why a pod may not go on."""

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
    """The pod may not go on. message: one sentence for a person."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequences:
    """What an event does to other pods; uids, in the order of `namespace/name`.

    Attributes:
        allowed: Waited for the gang, and are bound now.
        rejected: Waited with a node, and lose it; the gang counts them as pending already: the caller takes the node
            back and queues them again, and calls nothing else for them.
        activate: Blocked before, and worth another PreEnqueue now.
    """

    allowed: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    activate: tuple[str, ...] = ()


NOTHING: Final = Consequences()


@dataclass(frozen=True, slots=True)
class Released:
    """The pod may be bound, together with those in `consequences.allowed`."""

    consequences: Consequences = NOTHING


@dataclass(frozen=True, slots=True)
class Waits:
    """The pod keeps its node and waits for the rest of its group, at most so long (0 for an uninitialized gang).

    A framework that caps waits at 15 minutes arms the wait anew until this much has passed (spec 16, pitfall 11).
    """

    nanos: int


PermitOutcome = Released | Waits | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class NextMember:
    """Whom the round wants next.

    Attributes:
        uid: None: no round, or it is over; the queue decides.
        first_uid: Pod whose queue time and attempts `uid` inherits.
        rejected: As in `Consequences`: the round is over, and these waited.
    """

    uid: str | None = None
    first_uid: str = ""
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFailure:
    """A member found no node.

    Attributes:
        rejected: As in `Consequences`.
        message: Of the whole group; "" when the failure is the pod's own affair.
        is_root_cause: False: the pod failed because the group had failed already.
        tell: Uids of the members to be marked unschedulable with `message`.
    """

    rejected: tuple[str, ...] = ()
    message: str = ""
    is_root_cause: bool = True
    tell: tuple[str, ...] = ()


def joined(ids: Iterable[str]) -> str:
    """Ids as they are listed in messages."""
    return "[" + " ".join(ids) + "]"
