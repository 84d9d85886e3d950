"""Descriptions of a gang: the debug view and the pages of the HTTP API, and the line of `koord gang`.

Source: scheduler-core spec, 14
"""

from collections.abc import Iterable, Mapping
from typing import TypedDict

import msgspec
from koordcore.protocol.annotations.gang import MODE_STRICT
from koordcore.stories.pending import gang_progress

from koord_scheduler.domain.framework.lifecycle_hooks import NotFound, PageAnswer
from koord_scheduler.domain.plugins.gang.cache import GangCache
from koord_scheduler.domain.plugins.gang.checks import basic_check, group_of, obstacles, progress_in, waiting_members
from koord_scheduler.domain.plugins.gang.group import Gang, Member

Names = dict[str, dict[str, str]]
"""A set of pods in the form of the API: `namespace/name` -> empty object."""


class GroupView(TypedDict):
    """The JSON object `gangGroupInfo` of a gang's debug page, with the field names of Koordinator. All gangs of a group
    show the same object.
    """

    gangGroupId: str
    gangGroup: list[str]
    onceResourceSatisfied: bool
    representativePodKey: str
    waitingGangs: list[str]
    bindingMembers: list[str]


class GangView(TypedDict):
    """The JSON response of `/apis/v1/plugins/Coscheduling/gang/NAMESPACE/NAME`. `waitTime` is in nanoseconds."""

    name: str
    waitTime: int
    createTime: str
    mode: str
    gangMatchPolicy: str
    minRequiredNumber: int
    totalChildrenNum: int
    gangGroup: list[str]
    children: Names
    pendingChildren: Names
    waitingForBindChildren: Names
    boundChildren: Names
    onceResourceSatisfied: bool
    gangGroupInfo: GroupView
    gangFrom: str
    hasGangInit: bool


class GangLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the output of `koord gang`: the state of one gang."""

    id: str  # `namespace/name` of the gang
    group_id: str  # Ids of the gangs of its group, joined by commas
    mode: str  # Strict or NonStrict
    match_policy: str  # Which members count towards `min_members`
    min_members: int  # Number of members that must have a node before any is bound; 0 if not stated
    total_members: int  # Number of members in all; 0 if not stated
    pending: int  # Number of members without a node
    waiting: int  # Number of members with a node that are not bound
    bound: int  # Number of bound members
    phase: str  # Phase of its PodGroup; "" if it has no PodGroup
    says: str  # Sentence about what the gang waits for, or that it runs


def gang_view(cache: GangCache, gang_id: str) -> GangView | None:
    """Return the debug page of a gang by its id `namespace/name`, or None if there is no such gang."""
    gang = cache.roster.gang(gang_id)
    if gang is None or gang.group is None:
        return None
    group, parameters = gang.group, gang.parameters
    pending, waiting, bound = (_names(state.values()) for state in (gang.pending, gang.waiting, gang.bound))
    members = cache.roster.members
    representative = members.get(group.representative)
    return GangView(
        name=gang.id,
        waitTime=0 if parameters is None else parameters.wait_nanos,
        createTime=gang.created_at,
        mode=MODE_STRICT if parameters is None else parameters.mode,
        gangMatchPolicy=cache.args.default_match_policy if parameters is None else parameters.match_policy,
        minRequiredNumber=0 if parameters is None else parameters.min_members,
        totalChildrenNum=0 if parameters is None else parameters.total_members,
        gangGroup=[gang.id] if parameters is None else list(parameters.groups),
        children=dict(sorted((pending | waiting | bound).items())),
        pendingChildren=pending,
        waitingForBindChildren=waiting,
        boundChildren=bound,
        onceResourceSatisfied=group.once_satisfied,
        gangGroupInfo=GroupView(
            gangGroupId=group.id,
            gangGroup=list(group.gang_ids),
            onceResourceSatisfied=group.once_satisfied,
            representativePodKey="" if representative is None else representative.key,
            waitingGangs=[other.id for other in cache.roster.gangs_of(group) if other.waiting],
            bindingMembers=sorted(members[uid].key for uid in group.binding if uid in members),
        ),
        # The reference has two names: what its pods say in labels is told like what they say in annotations.
        gangFrom="GangFromPodGroupCrd" if gang.has_pod_group else "GangFromPodAnnotation",
        hasGangInit=parameters is not None,
    )


def gang_views(cache: GangCache) -> dict[str, GangView]:
    """Return the debug pages of all gangs, by id."""
    views = ((gang_id, gang_view(cache, gang_id)) for gang_id in sorted(cache.roster.gangs))
    return {gang_id: view for gang_id, view in views if view is not None}


def gang_line(cache: GangCache, gang_id: str) -> GangLine | None:
    """Return the line of `koord gang` about a gang, or None if there is no such gang."""
    gang = cache.roster.gang(gang_id)
    if gang is None or gang.group is None:
        return None
    parameters = gang.parameters
    return GangLine(
        id=gang.id,
        group_id=gang.group.id,
        mode=MODE_STRICT if parameters is None else parameters.mode,
        match_policy=cache.args.default_match_policy if parameters is None else parameters.match_policy,
        min_members=0 if parameters is None else parameters.min_members,
        total_members=0 if parameters is None else parameters.total_members,
        pending=len(gang.pending),
        waiting=len(gang.waiting),
        bound=len(gang.bound),
        phase=gang.status.phase if gang.has_pod_group else "",
        says=_says(cache, gang),
    )


def waiting_groups(cache: GangCache) -> int:
    """Return the number of groups with a member that waits at Permit (metric `waiting_gang_group_number`)."""
    return sum(bool(waiting_members(cache.roster, group.gang_ids)) for group in cache.roster.groups.values())


def _says(cache: GangCache, gang: Gang) -> str:
    if gang.parameters is None:
        return "not initialized: it has no PodGroup, and no pod states a valid min-available"
    needed, progress = gang.parameters.min_members, progress_in(gang)
    if progress is not None and gang.quorum < needed and not gang.has_free_pass:
        held_back = f"; {obstacles(gang)}" if gang.held_back else ""
        return f"{gang_progress(progress)}{held_back}"
    if not gang.pending and not gang.waiting and gang.bound:
        below = f", below the minimum of {needed}" if len(gang.bound) < needed else ""
        return f"all {len(gang.bound)} members are bound{below}"
    if gang.has_free_pass:
        return f"satisfied once: {len(gang.pending)} pending members go alone"
    refused = basic_check(cache.roster, group_of(gang))
    if refused is not None:
        return refused.message
    current = cache.round
    if current is not None and gang.id in current.gang_ids:
        if current.failed_message:
            return current.failed_message
        return f"is being scheduled: {len(gang.waiting)} of {needed} have a node"
    if gang.waiting:
        return f"{len(gang.waiting)} of {needed} have a node and wait for the rest of the group"
    ready = len(gang.pending) - len(gang.held_back)
    held_back = f"; {obstacles(gang)}" if gang.held_back else ""
    return f"{ready} pending members are ready to be scheduled together{held_back}"


def _names(members: Iterable[Member]) -> Names:
    return {key: {} for key in sorted(member.key for member in members)}


def gang_pages(gangs: GangCache) -> Mapping[str, PageAnswer]:
    """Return the HTTP pages about gangs: path below `/apis/v1/plugins/Coscheduling/` -> function that answers."""

    def gang(asked: Mapping[str, str]) -> object:
        gang_id = f"{asked['namespace']}/{asked['name']}"
        found = gang_view(gangs, gang_id)
        if found is None:
            raise NotFound(f"cannot find gang {gang_id}")
        return found

    def lines(_: Mapping[str, str]) -> object:
        found = (gang_line(gangs, gang_id) for gang_id in sorted(gangs.roster.gangs))
        return [msgspec.to_builtins(line) for line in found if line is not None]

    return {"gang/{namespace}/{name}": gang, "gangs": lambda _: gang_views(gangs), "lines": lines}
