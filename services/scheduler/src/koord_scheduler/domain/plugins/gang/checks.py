"""Questions about a whole gang group: whether its members may be attempted, which of them wait, which have no node.

Source: scheduler-core spec, 8.3
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from koordcore.events.explanations import GangProgress
from koordcore.protocol.annotations.gang import ONLY_WAITING, BoundGang

from koord_scheduler.domain.plugins.gang.group import Gang, Group, Member
from koord_scheduler.domain.plugins.gang.outcomes import Reason, Refused, joined
from koord_scheduler.domain.plugins.gang.roster import Roster

MOST_NAMED: Final = 3
"""Largest number of members that a message about a gang names."""


def basic_check(roster: Roster, group: Group) -> Refused | None:
    """Return why no member of the group may be attempted; None if all its gangs exist and have enough members. Each
    gang must exist, have parameters, and have a quorum of `min_members` (`Gang.quorum`). The message lists every failed
    check, and the members that cannot be attempted. The reason names the first check.
    """
    missing: list[str] = []
    uninitialized: list[str] = []
    too_small: list[str] = []
    held_back = ""
    for gang_id in group.gang_ids:
        gang = roster.gang(gang_id)
        if gang is None:
            missing.append(gang_id)
        elif gang.parameters is None:
            uninitialized.append(gang_id)
        elif gang.quorum < gang.parameters.min_members:
            too_small.append(f"{gang_id}({gang.quorum}/{gang.parameters.min_members})")
            held_back += f"; {obstacles(gang)}" if gang.held_back else ""
    if not missing and not uninitialized and not too_small:
        return None
    too_few = "have too few children that can be scheduled" if held_back else "have too few children"
    kinds = (
        (Reason.MEMBER_GANG_MISSING, missing, "do not exist"),
        (Reason.MEMBER_GANG_NOT_INITIALIZED, uninitialized, "are not initialized"),
        (Reason.NOT_ENOUGH_CHILDREN, too_small, too_few),
    )
    failed = [(reason, f"gangs {joined(ids)} {what}") for reason, ids, what in kinds if ids]
    return Refused(failed[0][0], f"gang group {group.id}: " + ", ".join(text for _, text in failed) + held_back)


def obstacles(gang: Gang) -> str:
    """Return which members of the gang cannot be attempted now and why, at most `MOST_NAMED` by name; "" if none."""
    named = [f"pod {member.key} {member.obstacle}" for member in islice(gang.held_back.values(), MOST_NAMED)]
    more = len(gang.held_back) - len(named)
    return ", ".join([*named, f"and {more} more"] if more else named)


def shortage(roster: Roster, gang_id: str) -> str:
    """Return why `basic_check` refuses a group because of this gang of it, without what need not be told again, such as
    numbers; "" if it does not.
    """
    gang = roster.gang(gang_id)
    if gang is None or gang.parameters is None:
        return gang_id if gang is None else f"{gang_id}?"
    if gang.quorum >= gang.parameters.min_members:
        return ""
    return f"{gang_id}: {'many' if len(gang.held_back) > MOST_NAMED else obstacles(gang)}"


def progress_of(roster: Roster, uid: str) -> GangProgress | None:
    """Return how far the gangs of a pod's group are: that of the first gang that is too small or lacks nodes, its own
    first. None if the pod has no gang, or a gang of its group does not exist.
    """
    own = roster.gang_of(uid)
    if own is None or own.group is None:
        return None
    known = [own, *(gang for gang in roster.gangs_of(own.group) if gang is not own)]
    found = [progress for gang in known if (progress := progress_in(gang)) is not None]
    short = [each for each in found if each.exist - each.held_back < each.needs]
    short = short or [each for each in found if each.placed < each.needs]
    return short[0] if short and len(known) == len(own.group.gang_ids) else None


def progress_in(gang: Gang) -> GangProgress | None:
    """Return how far one gang is; None if nothing states its minimum."""
    if gang.parameters is None:
        return None
    return GangProgress(
        gang=gang.id,
        needs=gang.parameters.min_members,
        exist=gang.children,
        held_back=gang.children - gang.quorum,
        placed=len(gang.waiting) + len(gang.bound),
    )


def incomplete(gangs: Sequence[Gang]) -> str:
    """Return how many members with a node the gangs lack that Permit would not release now, and which of their members
    cannot be attempted.
    """
    found: list[str] = []
    for gang in gangs:
        if gang.parameters is not None and not gang.is_ready():
            policy = " and wait for the rest (match policy only-waiting)"
            found.append(
                f"only {gang.with_node} of {gang.parameters.min_members} members of gang {gang.id} have a node"
                + (policy if gang.parameters.match_policy == ONLY_WAITING else "")
                + (f"; {obstacles(gang)}" if gang.held_back else "")
            )
    return ", ".join(found)


def not_found(member: Member) -> Refused:
    """Return the refusal of a pod whose gang does not exist, because no PodGroup and no pod defines the gang."""
    return Refused(Reason.GANG_NOT_FOUND, f"gang {member.gang_id} of pod {member.key} is not known")


def group_of(gang: Gang) -> Group:
    """Return the group of an existing gang. It must not be called for a gang that does not exist."""
    assert gang.group is not None, f"gang {gang.id} does not exist"
    return gang.group


def is_ready(roster: Roster, group: Group) -> bool:
    """Return whether all gangs of the group exist and have enough members with a node (`Gang.is_ready`)."""
    gangs = roster.gangs_of(group)
    return len(gangs) == len(group.gang_ids) and all(gang.is_ready() for gang in gangs)


def attached(roster: Roster, group: Group) -> list[Gang]:
    """Return the gangs that are judged and released by this group. A gang that names another group has that one."""
    return [gang for gang in roster.gangs_of(group) if gang.group is group]


def waiting_members(roster: Roster, gang_ids: Iterable[str]) -> list[Member]:
    """Return the members of these gangs that wait at Permit. Members that Permit has released are left out. Members
    that name a deleted gang are included.
    """
    gangs = (roster.gangs.get(gang_id) for gang_id in gang_ids)
    return [member for gang in gangs if gang is not None for member in gang.waiting.values() if not member.released]


def pending_members(roster: Roster, group: Group) -> list[Member]:
    """Return the members without a node, of all existing gangs of the group."""
    return [member for gang in roster.gangs_of(group) for member in gang.pending.values()]


def uids_of(members: Iterable[Member]) -> tuple[str, ...]:
    """Return the uids of members, ordered by `namespace/name`."""
    return tuple(member.uid for member in sorted(members, key=lambda member: member.key))


def bound_gang(roster: Roster, uid: str) -> BoundGang | None:
    """Return id and size of the group of pods with which the pod is bound in one atomic append; None if it is alone.
    These are the members of its gang group that Permit released together.
    Source: scheduler-core spec, 8.7
    """
    gang = roster.gang_of(uid)
    group = None if gang is None else gang.group
    if group is None or uid not in group.binding or len(group.binding) < 2:
        return None
    return BoundGang(group.id, len(group.binding))
