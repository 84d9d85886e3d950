"""A gang, its members, and the state that the gangs of one group share.

Source: scheduler-core spec, 8.1, 8.2
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import msgspec
from koordcore.protocol.annotations.gang import ONCE_SATISFIED, ONLY_WAITING, WAITING_AND_RUNNING

from koord_scheduler.domain.plugins.gang.parameters import GangParameters, PodGroupStatus

LAST: Final = 2**31
"""Sort key of members that have no network topology index."""
Refusal = tuple[str, ...]
"""One entry for each gang of a group that keeps the group from being scheduled."""


def place_of(index: int | None) -> int:
    """Return the network index of a member as sort key. None and negative indexes give `LAST`: they sort last."""
    return LAST if index is None or index < 0 else index


class ChildState(Enum):
    """The scheduling state of a gang member: PENDING (no node), WAITING, BOUND or IGNORED. A WAITING member has a node
    and waits at Permit, or is being bound. An IGNORED pod had ended before it was seen.
    """

    PENDING = auto()
    """It has no node."""
    WAITING = auto()
    """It has a node but is not bound: it waits at Permit, or was released and is being bound."""
    BOUND = auto()
    """It is bound to its node."""
    IGNORED = auto()
    """It had ended without a node when it was first seen. It is not a child, but counts in the PodGroup's status."""


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """A pod (or the reserve pod of a reservation) that belongs to a gang."""

    uid: str
    namespace: str
    name: str
    gang_id: str  # `namespace/name` of its gang
    index: int = LAST  # Its position in the order of members that the network topology needs, or `LAST` if it has none
    # Why this scheduler cannot attempt it now, to be read after its name; "" if it can. A pending member with an
    # obstacle is a child, but does not count for the quorum of a gang group that has never been satisfied.
    obstacle: str = ""
    state: ChildState = ChildState.PENDING  # Its scheduling state
    # Whether Permit has allowed its binding. Then it keeps its node when its group is rejected. Used while WAITING.
    released: bool = False
    pod_phase: str = ""  # Its `status.phase`
    owners: tuple[str, ...] = ()  # Names of the objects in its `metadata.ownerReferences`

    @property
    def key(self) -> str:
        """Return `namespace/name` of the pod."""
        return f"{self.namespace}/{self.name}"

    @property
    def can_be_tried(self) -> bool:
        return self.state is ChildState.PENDING and not self.obstacle

    @property
    def turn(self) -> tuple[int, str, str, str]:
        """Return the sort key of the member within its group: index, name, namespace, uid."""
        return (self.index, self.name, self.namespace, self.uid)


@dataclass(slots=True, kw_only=True, eq=False)
class Group:
    """The state that all gangs of one group share. It exists as long as one of the gangs does."""

    id: str  # The sorted ids of its gangs, as the gangs name them, joined by commas
    gang_ids: tuple[str, ...]  # The same ids, each once
    attached: set[str] = field(default_factory=set[str])  # Ids of the existing gangs that name exactly this group
    # Whether a member has been bound. False again after all pods of the group were deleted.
    once_satisfied: bool = False
    representative: str = ""  # Uid of the only member that may be in the queue; "" if there is none
    # Uids of the members that Permit released together. Empty again when no member of the group has a node and is
    # unbound.
    binding: frozenset[str] = frozenset()
    # Why PreEnqueue refused its members when they were last asked because of an event; empty if it did not.
    told: Refusal = ("",)


@dataclass(slots=True, kw_only=True, eq=False)
class Gang:
    """A gang: its parameters, the group that it belongs to, and all pods that name it."""

    id: str  # `namespace/name`
    # Its group. None if the gang does not exist: its PodGroup was deleted or no pod of it is alive, and there are only
    # pods that name it.
    group: Group | None = None
    parameters: GangParameters | None = None  # Its scheduling parameters, or None if no PodGroup or pod has stated them
    has_pod_group: bool = False  # Whether the parameters come from a PodGroup
    created_at: str = ""  # RFC 3339 time of creation of the PodGroup, or of the first pod
    status: PodGroupStatus = field(default_factory=PodGroupStatus)  # The last status of the PodGroup
    known: dict[str, Member] = field(default_factory=dict[str, Member])  # All pods that name the gang, by uid
    pending: dict[str, Member] = field(default_factory=dict[str, Member])  # Members without a node, by uid
    # Members that have an obstacle and are not bound, by uid.
    held_back: dict[str, Member] = field(default_factory=dict[str, Member])
    # Members with a node that are not bound, by uid.
    waiting: dict[str, Member] = field(default_factory=dict[str, Member])
    bound: dict[str, Member] = field(default_factory=dict[str, Member])  # Bound members, by uid
    is_free: bool = False  # Whether it had a free pass when its members were last asked because of an event
    # `status.phase` -> number of pods of the gang in this phase.
    phases: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def children(self) -> int:
        """Return the number of members of the gang that are pending, wait at Permit, or are bound."""
        return len(self.pending) + len(self.waiting) + len(self.bound)

    @property
    def able(self) -> int:
        """Return the number of children without those that cannot be attempted now."""
        return self.children - len(self.held_back)

    @property
    def quorum(self) -> int:
        """Return the number of members that count for `min_members` when the group is checked: all children of a gang
        whose group was satisfied once, else those that have a node or can be attempted.
        """
        return self.children if self.group is not None and self.group.once_satisfied else self.able

    @property
    def has_free_pass(self) -> bool:
        """Return whether members are placed alone from now on, without the other members of the group. That is so if a
        member of the group was bound once and the gang's match policy is once-satisfied.
        Source: scheduler-core spec, 8.3
        """
        return (
            self.parameters is not None
            and self.group is not None
            and self.group.once_satisfied
            and self.parameters.match_policy == ONCE_SATISFIED
        )

    @property
    def is_strict(self) -> bool:
        """Return whether the failure of one member releases the nodes of all members that wait at Permit. False if the
        gang's mode is NonStrict, if it has a free pass, or if it has no parameters.
        """
        return self.parameters is not None and self.parameters.is_strict and not self.has_free_pass

    def is_ready(self) -> bool:
        """Return whether at least `min_members` members have a node, so that Permit may release them. False if the gang
        does not exist or has no parameters. The match policy decides which members count (spec 8.7):

            only-waiting          members that wait at Permit
            waiting-and-running   also bound members
            once-satisfied        members that wait, but the gang is always ready once its group was satisfied
        """
        if self.parameters is None or self.group is None:
            return False
        if self.parameters.match_policy not in (WAITING_AND_RUNNING, ONLY_WAITING) and self.group.once_satisfied:
            return True
        return self.with_node >= self.parameters.min_members

    @property
    def with_node(self) -> int:
        """Return the number of members with a node that Permit compares with `min_members`."""
        if self.parameters is not None and self.parameters.match_policy == WAITING_AND_RUNNING:
            return len(self.waiting) + len(self.bound)
        return len(self.waiting)

    def has_obstacle(self, member: Member, obstacle: str) -> None:
        """Record why a member of this gang cannot be attempted now; "" if it can. If it has a node and is not bound, it
        is about to lose the node.
        """
        member.obstacle = obstacle
        if obstacle and member.state in (ChildState.PENDING, ChildState.WAITING):
            self.held_back[member.uid] = member
        else:
            self.held_back.pop(member.uid, None)

    def put(self, member: Member, state: ChildState) -> None:
        """Set the scheduling state of a member of this gang, and move it to the dictionary for this state."""
        self._leave(member)
        member.state = state
        member.released = False
        match state:
            case ChildState.PENDING:
                self.pending[member.uid] = member
            case ChildState.WAITING:
                self.waiting[member.uid] = member
            case ChildState.BOUND:
                self.bound[member.uid] = member
            case ChildState.IGNORED:
                pass
        self.has_obstacle(member, member.obstacle)

    def add(self, member: Member) -> None:
        """Add a pod that names this gang, in its scheduling state."""
        self.known[member.uid] = member
        self.phases[member.pod_phase] = self.phases.get(member.pod_phase, 0) + 1
        self.put(member, member.state)

    def remove(self, member: Member) -> None:
        self._leave(member)
        del self.known[member.uid]
        self.phases[member.pod_phase] -= 1

    def set_pod_phase(self, member: Member, phase: str) -> None:
        """Record the pod's new `status.phase`."""
        if phase != member.pod_phase:
            self.phases[member.pod_phase] -= 1
            self.phases[phase] = self.phases.get(phase, 0) + 1
            member.pod_phase = phase

    def _leave(self, member: Member) -> None:
        self.pending.pop(member.uid, None)
        self.held_back.pop(member.uid, None)
        self.waiting.pop(member.uid, None)
        self.bound.pop(member.uid, None)


class KnownGang(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The fields of a gang without a PodGroup that do not follow from its present pods, for snapshots."""

    id: str
    exists: bool = True  # False if its PodGroup was deleted and no pod has defined it again
    created_at: str = ""  # As in `Gang`
    parameters: GangParameters | None = None  # As in `Gang`. The pod that stated them may be deleted.
