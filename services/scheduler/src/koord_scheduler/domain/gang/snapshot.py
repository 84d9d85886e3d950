"""The gangs as plain values, and back: what a snapshot of the scheduler keeps of them.

Only facts are kept. Members that wait at Permit are pending in the copy, and there is no round, no representative and
no set of members bound together: these are assumptions of a scheduler that is not running any more.

source    scheduler-core spec, 8.2; event-bus spec, 6
"""

from typing import Final

import msgspec

from koord_scheduler.domain.gang.cache import GangCache
from koord_scheduler.domain.gang.group import ChildState, Gang, Member
from koord_scheduler.domain.gang.parameters import GangArgs, GangParameters, PodGroupStatus

_STATES: Final = {
    ChildState.PENDING: "pending",
    ChildState.WAITING: "pending",
    ChildState.BOUND: "bound",
    ChildState.IGNORED: "ignored",
}
_STATE_OF: Final = {
    "pending": ChildState.PENDING,
    "bound": ChildState.BOUND,
    "ignored": ChildState.IGNORED,
}


class SavedMember(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A `Member`; state: pending, bound or ignored."""

    uid: str
    namespace: str
    name: str
    gang_id: str
    index: int
    state: str
    is_gated: bool = False
    pod_phase: str = ""
    owners: tuple[str, ...] = ()


class SavedGang(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A `Gang`; group: ids of the gangs of its group, empty when it does not exist."""

    id: str
    group: tuple[str, ...] = ()
    parameters: GangParameters | None = None
    has_pod_group: bool = False
    created_at: str = ""
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class SavedGangs(msgspec.Struct, frozen=True, kw_only=True):
    """All gangs and their pods in the order in which they became known; satisfied: ids of the groups that were once."""

    gangs: tuple[SavedGang, ...] = ()
    members: tuple[SavedMember, ...] = ()
    satisfied: tuple[str, ...] = ()


def save_gangs(cache: GangCache) -> SavedGangs:
    """The facts in the cache; `load_gangs` is the inverse."""
    roster = cache.roster
    return SavedGangs(
        gangs=tuple(_saved_gang(gang) for gang in roster.gangs.values()),
        members=tuple(_saved_member(member) for member in roster.members.values()),
        satisfied=tuple(sorted(group.id for group in roster.groups.values() if group.once_satisfied)),
    )


def load_gangs(saved: SavedGangs, args: GangArgs) -> GangCache:
    """A cache with these facts."""
    cache = GangCache(args)
    roster = cache.roster
    for gang in saved.gangs:
        roster.put_gang(
            Gang(
                id=gang.id,
                parameters=gang.parameters,
                has_pod_group=gang.has_pod_group,
                created_at=gang.created_at,
                status=gang.status,
            ),
            gang.group,
        )
    for member in saved.members:
        roster.put_member(
            Member(
                uid=member.uid,
                namespace=member.namespace,
                name=member.name,
                gang_id=member.gang_id,
                index=member.index,
                state=_STATE_OF[member.state],
                is_gated=member.is_gated,
                pod_phase=member.pod_phase,
                owners=member.owners,
            )
        )
    for group_id in saved.satisfied:
        roster.groups[group_id].once_satisfied = True
    return cache


def _saved_gang(gang: Gang) -> SavedGang:
    group: tuple[str, ...] = ()
    if gang.group is not None:
        group = (gang.id,) if gang.parameters is None else gang.parameters.groups
    return SavedGang(
        id=gang.id,
        group=group,
        parameters=gang.parameters,
        has_pod_group=gang.has_pod_group,
        created_at=gang.created_at,
        status=gang.status,
    )


def _saved_member(member: Member) -> SavedMember:
    return SavedMember(
        uid=member.uid,
        namespace=member.namespace,
        name=member.name,
        gang_id=member.gang_id,
        index=member.index,
        state=_STATES[member.state],
        is_gated=member.is_gated,
        pod_phase=member.pod_phase,
        owners=member.owners,
    )
