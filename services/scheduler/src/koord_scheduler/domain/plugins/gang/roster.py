"""Membership and state of all gangs: the fold of pods and PodGroups. A pod is known by its uid. A new pod with the name
of an older one replaces it (spec 16, pitfall 23). The pods that name a gang stay known when the gang is deleted and
created again with its PodGroup (pitfall 10). The work per event does not grow with the number of gangs or members.

Source: scheduler-core spec, 8.1, 8.2
"""

from collections.abc import Iterable
from dataclasses import dataclass

from koordcore.protocol.annotations.gang import parse_network_topology_index
from koordcore.protocol.objects import Pod
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.config.koordinator_args import CoschedulingArgs
from koord_scheduler.domain.plugins.gang.group import ChildState, Gang, Group, KnownGang, Member, place_of
from koord_scheduler.domain.plugins.gang.parameters import (
    PodGroup,
    PodGroupStatus,
    gang_id_of,
    parameters_of_pod,
    parameters_of_pod_group,
    pod_group_id,
)

_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Seen:
    """Changes of a gang because a pod was recorded (`Roster.see`)."""

    gang: Gang  # The pod's gang
    member: Member  # The pod
    has_more_children: bool  # Whether the pod is new, pending or bound, so that its group may have enough children now
    has_new_child: bool  # Whether the pod is pending and can be attempted, and is new or could not before
    has_lost_child: bool  # Whether the pod is not bound and could be attempted before, but not now
    is_newly_initialized: bool  # Whether the pod supplied the gang's parameters
    was_representative: bool  # Whether the pod was bound while it represented its group in the queue


class Roster:
    """All gangs with their members: which pods belong to which gang, and in which scheduling state they are."""

    def __init__(self, args: CoschedulingArgs) -> None:
        self.args = args  # Arguments of the Coscheduling plugin
        self.members: dict[str, Member] = {}  # All pods that name a gang, by uid
        self.gangs: dict[str, Gang] = {}  # All gangs by id, also those that do not exist but are named by pods
        self.groups: dict[str, Group] = {}  # All groups by id
        self._naming: dict[str, dict[str, None]] = {}
        # Ids of gangs whose PodGroup status may have changed. The writer of statuses clears it.
        self.touched: dict[str, None] = {}
        self._uids: dict[str, str] = {}

    def gang(self, gang_id: str) -> Gang | None:
        """Return a gang by its id; None if no living pod and no PodGroup defines it."""
        gang = self.gangs.get(gang_id)
        return gang if gang is not None and gang.group is not None else None

    def gang_of(self, uid: str) -> Gang | None:
        """Return the gang of a pod, or None if the pod is unknown, belongs to no gang, or its gang does not exist."""
        member = self.members.get(uid)
        return None if member is None else self.gang(member.gang_id)

    def gangs_of(self, group: Group) -> list[Gang]:
        """Return the existing gangs that the group names, in the order of their ids."""
        found = (self.gang(gang_id) for gang_id in group.gang_ids)
        return [gang for gang in found if gang is not None]

    def is_named_by_others(self, gang_id: str) -> bool:
        """Return whether `groups_of_others` returns a group, whatever their number is."""
        naming, own = self._naming.get(gang_id), self._group_id(gang_id)
        return naming is not None and len(naming) > (own in naming)

    def groups_of_others(self, gang_id: str) -> list[Group]:
        """Return the groups of other gangs that name a gang although it names another group, or does not exist, in the
        order of their ids.
        """
        own = self._group_id(gang_id)
        return [self.groups[group_id] for group_id in sorted(self._naming.get(gang_id, ())) if group_id != own]

    def _group_id(self, gang_id: str) -> str:
        gang = self.gangs.get(gang_id)
        return "" if gang is None or gang.group is None else gang.group.id

    def see(self, uid: str, pod: Pod, other_scheduler: str = "") -> Seen | None:
        """Record a new or changed pod. Return the changes of its gang. None if the pod names no gang, or if it has
        ended. A pod that is seen for the first time and has a node gives changes although it has ended. Before the
        call, the caller must remove the members that `replaced_by` returns. `other_scheduler`: name of the scheduler to
        which the pod belongs; "" if it is this one.
        """
        gang_id = gang_id_of(pod)
        if not gang_id:
            return None
        gang = self.gangs.get(gang_id)
        if gang is None:
            gang = self.gangs[gang_id] = Gang(id=gang_id)
        member = self.members.get(uid)
        has_ended = pod.status.phase in _ENDED
        is_new = member is None
        if member is None:
            never_ran = has_ended and not pod.spec.node_name
            member = self._new_member(uid, pod, gang_id, ChildState.IGNORED if never_ran else ChildState.PENDING)
        before, obstacle = "" if is_new else member.obstacle, _obstacle(pod, other_scheduler)
        gang.has_obstacle(member, obstacle)
        member.index = _index(pod)
        gang.set_pod_phase(member, pod.status.phase)
        self._touch(gang)
        if (has_ended and not is_new) or member.state is ChildState.IGNORED:
            return None
        is_newly_initialized = self._exists(gang, pod)
        was_representative = gang.group is not None and gang.group.representative == uid
        if pod.spec.node_name:
            self.bind(member)
        return Seen(
            gang=gang,
            member=member,
            has_more_children=is_new,
            has_new_child=member.state is ChildState.PENDING and not obstacle and (is_new or before != ""),
            has_lost_child=uid in gang.held_back and not is_new and before == "",
            is_newly_initialized=is_newly_initialized,
            was_representative=was_representative and member.state is ChildState.BOUND,
        )

    def replaced_by(self, uid: str, pod: Pod) -> list[str]:
        """Return the uids of the members to forget before `see` records a new or changed pod. These are another member
        with the same namespace and name, and the pod itself if it changed its gang.
        """
        namesake = self._uids.get(f"{pod.metadata.namespace}/{pod.metadata.name}")
        old = self.members.get(uid)
        gone = [namesake] if namesake is not None and namesake != uid else []
        if old is not None and (old.gang_id != gang_id_of(pod) or old.name != pod.metadata.name):
            gone.append(uid)
        return gone

    def forget(self, uid: str) -> Gang | None:
        """Remove a deleted pod from its gang, and return this gang; None if the pod belonged to no gang. Without a
        further child, the gang ceases to exist unless a PodGroup defines it. A group stays once satisfied as long as
        one of its gangs exists. Source: scheduler-core spec, 8.2.
        """
        member = self.members.pop(uid, None)
        if member is None:
            return None
        if self._uids.get(member.key) == uid:
            del self._uids[member.key]
        gang = self.gangs[member.gang_id]
        gang.remove(member)
        self._touch(gang)
        if gang.group is not None:
            self._left_waiting(gang, gang.group)
            if gang.group.representative == uid:
                gang.group.representative = ""
            if gang.children == 0 and not gang.has_pod_group:
                self._ceases(gang)
        self._drop_if_empty(gang)
        return gang

    def see_pod_group(self, pod_group: PodGroup) -> tuple[Gang, bool]:
        """Record a new or changed PodGroup. Return its gang, and whether the gang's parameters changed."""
        gang_id = pod_group_id(pod_group)
        gang = self.gangs.get(gang_id)
        if gang is None:
            gang = self.gangs[gang_id] = Gang(id=gang_id)
        parameters = parameters_of_pod_group(pod_group, self.args)
        is_news = not gang.has_pod_group or gang.parameters != parameters
        if not gang.has_pod_group:
            # Later statuses in the object are echoes of our own.
            gang.status = pod_group.status
        is_first = gang.parameters is None
        gang.parameters = parameters
        gang.has_pod_group = True
        gang.created_at = pod_group.metadata.creation_timestamp or gang.created_at
        self._attach(gang, parameters.groups, is_first=is_first)
        self._touch(gang)
        return gang, is_news

    def known_gangs(self) -> list[KnownGang]:
        """Return the gangs without a PodGroup that pods name, sorted by id, for a snapshot."""
        return [
            KnownGang(id_, gang.group is not None, gang.created_at, gang.parameters)
            for id_, gang in sorted(self.gangs.items())
            if gang.known and not gang.has_pod_group
        ]

    def restore(self, known: KnownGang) -> None:
        """Restore a gang from a snapshot: what pods that are gone said of it. Its pods must have been restored before.
        No-op if no pod names the gang.
        """
        gang = self.gangs.get(known.id)
        if gang is None or gang.has_pod_group:
            return
        gang.created_at = known.created_at
        if not known.exists:
            self._ceases(gang)
            return
        gang.parameters = known.parameters
        self._attach(gang, (gang.id,) if known.parameters is None else known.parameters.groups)

    def restore_state(self, uid: str, state: ChildState) -> None:
        """Restore the state of an ended member from a snapshot. Its pod alone does not tell it."""
        member = self.members[uid]
        self.gangs[member.gang_id].put(member, state)

    def satisfied_groups(self) -> list[str]:
        """Return the sorted ids of the groups with `Group.once_satisfied`, for a snapshot."""
        groups = (gang.group for gang in self.gangs.values())
        return sorted({group.id for group in groups if group is not None and group.once_satisfied})

    def satisfy(self, group_ids: Iterable[str]) -> None:
        """Set `Group.once_satisfied` of exactly these groups, when a snapshot is restored. Unknown ids are ignored. A
        pod that had ended before it was bound satisfies its group only if it is seen for the first time.
        """
        wanted = set(group_ids)
        for group in self.groups.values():
            group.once_satisfied = group.id in wanted

    def forget_pod_group(self, gang_id: str) -> None:
        """Forget a deleted PodGroup: its gang no longer exists. A later PodGroup or pod can define the gang again.
        No-op if no PodGroup defined the gang.
        """
        gang = self.gangs.get(gang_id)
        if gang is not None and gang.has_pod_group:
            self._ceases(gang)
            self._drop_if_empty(gang)

    def wait(self, member: Member) -> None:
        """Record that Reserve gave the member a node and that it waits at Permit."""
        self.gangs[member.gang_id].put(member, ChildState.WAITING)

    def unwait(self, member: Member) -> None:
        """Record that the member has lost its node and is pending again."""
        gang = self.gangs[member.gang_id]
        gang.put(member, ChildState.PENDING)
        self._touch(gang)
        if gang.group is not None:
            self._left_waiting(gang, gang.group)

    def bind(self, member: Member) -> None:
        """Record that the member is bound, so that its group is once satisfied."""
        gang = self.gangs[member.gang_id]
        if member.state is ChildState.BOUND:
            return
        gang.put(member, ChildState.BOUND)
        self._touch(gang)
        group = gang.group
        if group is None:
            return
        self._left_waiting(gang, group)
        if group.representative == member.uid:
            group.representative = ""
        group.once_satisfied = True

    def put_member(self, member: Member) -> None:
        """Add a pod to its gang. The gang must exist."""
        self.members[member.uid] = member
        self._uids[member.key] = member.uid
        self.gangs[member.gang_id].add(member)

    def _new_member(self, uid: str, pod: Pod, gang_id: str, state: ChildState) -> Member:
        member = Member(
            uid=uid,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            gang_id=gang_id,
            index=_index(pod),
            state=state,
            pod_phase=pod.status.phase,
            owners=tuple(owner.name for owner in pod.metadata.owner_references),
        )
        self.put_member(member)
        return member

    def _exists(self, gang: Gang, pod: Pod) -> bool:
        """Let the gang exist because a living pod names it. Result: whether the pod's parameters initialized the
        gang.
        """
        if gang.group is None:
            gang.created_at = pod.metadata.creation_timestamp or ""
            self._attach(gang, (gang.id,))
        if gang.parameters is not None:
            return False
        gang.parameters = parameters_of_pod(pod, gang.id, self.args)
        if gang.parameters is None:
            return False
        self._attach(gang, gang.parameters.groups, is_first=True)
        return True

    def _attach(self, gang: Gang, gang_ids: tuple[str, ...], *, is_first: bool = False) -> None:
        """Put the gang into the group with these ids. If a member of the gang is bound, the group is once satisfied.
        `is_first`: whether the gang has just been initialized. Then it is enough that a member was bound before.
        Source: scheduler-core spec, 16, pitfalls 8 and 9.
        """
        group_id = ",".join(gang_ids)
        was_satisfied = is_first and gang.group is not None and gang.group.once_satisfied
        if gang.group is None or gang.group.id != group_id:
            self._detach(gang)
            gang.group = self.groups.get(group_id)
            if gang.group is None:
                gang.group = self.groups[group_id] = Group(id=group_id, gang_ids=tuple(dict.fromkeys(gang_ids)))
                for gang_id in gang.group.gang_ids:
                    self._naming.setdefault(gang_id, {})[group_id] = None
            gang.group.attached.add(gang.id)
        gang.group.once_satisfied |= was_satisfied or bool(gang.bound)

    def _detach(self, gang: Gang) -> None:
        group = gang.group
        if group is None:
            return
        gang.group = None
        gang.is_free = False
        group.attached.discard(gang.id)
        if group.representative in gang.known:
            group.representative = ""
        if not group.attached:
            del self.groups[group.id]
            for gang_id in group.gang_ids:
                naming = self._naming[gang_id]
                del naming[group.id]
                if not naming:
                    del self._naming[gang_id]

    def _ceases(self, gang: Gang) -> None:
        self._detach(gang)
        gang.parameters = None
        gang.has_pod_group = False
        gang.status = PodGroupStatus()

    def _drop_if_empty(self, gang: Gang) -> None:
        if gang.group is None and not gang.known:
            del self.gangs[gang.id]
            self.touched.pop(gang.id, None)

    def _left_waiting(self, gang: Gang, group: Group) -> None:
        if group.binding and not gang.waiting and not any(other.waiting for other in self.gangs_of(group)):
            group.binding = frozenset()

    def _touch(self, gang: Gang) -> None:
        if gang.has_pod_group:
            self.touched[gang.id] = None


def _obstacle(pod: Pod, other_scheduler: str) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "is being deleted"
    if other_scheduler:
        return f"belongs to scheduler {other_scheduler}"
    gates = ", ".join([gate.name for gate in pod.spec.scheduling_gates])
    return f"waits for scheduling gates {gates}" if gates else ""


def _index(pod: Pod) -> int:
    try:
        return place_of(parse_network_topology_index(pod.metadata.annotations))
    except InvalidInput:
        return place_of(None)
