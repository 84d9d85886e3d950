"""Questions about a whole gang group: whether its members may be attempted, which of them wait, which have no node.

Source: scheduler-core spec, 8.3
"""

from collections.abc import Iterable

from koordcore.protocol.annotations.gang import BoundGang

from koord_scheduler.domain.plugins.gang.group import Gang, Group, Member
from koord_scheduler.domain.plugins.gang.outcomes import Reason, Refused, joined
from koord_scheduler.domain.plugins.gang.roster import Roster


def basic_check(roster: Roster, group: Group) -> Refused | None:
    """Return why no member of the group may be attempted; None if all its gangs exist and have enough members. Each
    gang must exist, have parameters, and have at least `min_members` children. The message lists every failed check.
    The reason names the first one.
    """
    missing: list[str] = []
    uninitialized: list[str] = []
    too_small: list[str] = []
    for gang_id in group.gang_ids:
        gang = roster.gang(gang_id)
        if gang is None:
            missing.append(gang_id)
        elif gang.parameters is None:
            uninitialized.append(gang_id)
        elif gang.children < gang.parameters.min_members:
            too_small.append(f"{gang_id}({gang.children}/{gang.parameters.min_members})")
    if not missing and not uninitialized and not too_small:
        return None
    kinds = (
        (Reason.MEMBER_GANG_MISSING, missing, "do not exist"),
        (Reason.MEMBER_GANG_NOT_INITIALIZED, uninitialized, "are not initialized"),
        (Reason.NOT_ENOUGH_CHILDREN, too_small, "have too few children"),
    )
    failed = [(reason, f"gangs {joined(ids)} {what}") for reason, ids, what in kinds if ids]
    return Refused(failed[0][0], f"gang group {group.id}: " + ", ".join(text for _, text in failed))


def not_found(member: Member) -> Refused:
    """Return the refusal of a pod whose gang does not exist, because no PodGroup and no pod defines the gang."""
    return Refused(Reason.GANG_NOT_FOUND, f"gang {member.gang_id} of pod {member.key} is not known")


def group_of(gang: Gang) -> Group:
    """Return the group of an existing gang. It must not be called for a gang that does not exist."""
    assert gang.group is not None, f"gang {gang.id} does not exist"
    return gang.group


def waiting_members(roster: Roster, gang_ids: Iterable[str]) -> list[Member]:
    """Return the members of these gangs that wait at Permit. Members that Permit has released are left out. Members
    that name a deleted gang are included.
    """
    gangs = (roster.gangs.get(gang_id) for gang_id in gang_ids)
    return [member for gang in gangs if gang is not None for member in gang.waiting.values() if not member.released]


def pending_members(roster: Roster, group: Group) -> list[Member]:
    """Return the members without a node, of all existing gangs of the group."""
    return [member for gang in roster.gangs_of(group) for member in gang.pending.values()]


def one_pending(roster: Roster, gang: Gang) -> list[str]:
    """Return the uid of one member without a node that may represent its group in the queue, as a list. Empty if
    `basic_check` fails, if the group has a representative, or if no member needs one. Members with scheduling gates, or
    with a free pass, do not represent their group.
    """
    group = gang.group
    if group is None or gang.parameters is None or group.representative or basic_check(roster, group) is not None:
        return []
    for other in roster.gangs_of(group):
        if not other.has_free_pass:
            for uid, member in other.pending.items():
                if not member.is_gated:
                    return [uid]
    return []


def all_free(roster: Roster, gang: Gang) -> list[str]:
    """Return the uids of all members of the gang's group that have no node and may be placed alone (a free pass)."""
    gangs = roster.gangs_of(group_of(gang))
    return [uid for other in gangs if other.has_free_pass for uid in sorted(other.pending)]


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
