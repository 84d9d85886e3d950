"""Coscheduling's extension points over the roster of gangs. The scheduling queue calls `pre_enqueue` before a pod
becomes active or backs off. If the pod is refused, it waits without back-off. It is tried again after an event of its
own, or if a result names it in `activate`. If the roster does not know a uid, the pod has no gang and passes every
point.

Source: scheduler-core spec, 8.3 to 8.8; vectors scheduler/gang_sequence
"""

from collections.abc import Iterable, Sequence

from koordcore.protocol.objects import Pod

from koord_scheduler.domain.config.koordinator_args import CoschedulingArgs
from koord_scheduler.domain.framework.outcomes import Failure, Next
from koord_scheduler.domain.plugins.gang.asking import one_to_ask, to_ask
from koord_scheduler.domain.plugins.gang.checks import (
    attached,
    basic_check,
    group_of,
    incomplete,
    is_ready,
    not_found,
    pending_members,
    uids_of,
    waiting_members,
)
from koord_scheduler.domain.plugins.gang.following import Following
from koord_scheduler.domain.plugins.gang.group import ChildState, Gang, Group, Member
from koord_scheduler.domain.plugins.gang.outcomes import (
    NOTHING,
    Consequences,
    PermitOutcome,
    Reason,
    Refused,
    Released,
    Waits,
)
from koord_scheduler.domain.plugins.gang.parameters import PodGroup
from koord_scheduler.domain.plugins.gang.roster import Roster
from koord_scheduler.domain.plugins.gang.round import EndedRound, Round, RoundEnd


class GangCache:
    """All gangs of the cluster, and the scheduling round of the one group whose members are being attempted. The
    results `Consequences` and `Next` name the other pods that the caller must allow, reject or attempt.
    """

    def __init__(self, args: CoschedulingArgs | None = None) -> None:
        self.args = args or CoschedulingArgs()
        self.roster = Roster(self.args)  # Pods and PodGroups, as the events of the log describe them
        self.round: Round | None = None  # The round of the group that is being scheduled; None if there is none
        self.ended: list[EndedRound] = []  # Finished rounds, for metrics. The reader of the metrics clears the list.
        self._following = Following(self.roster)

    # --- events -----------------------------------------------------------------------------------------------------

    def pod_seen(self, uid: str, pod: Pod, other_scheduler: str = "") -> Consequences:
        """Record a new or changed pod (or reserve pod), and return which waiting pods may now be attempted, or are
        refused for another reason than before. It counts as bound if `spec.nodeName` is set. If it names no gang, only
        a member that it replaces is forgotten. `other_scheduler`: name of the scheduler to which the pod belongs; "" if
        it is this one.
        """
        gone = [self.pod_deleted(old) for old in self.roster.replaced_by(uid, pod)]
        activate = [other for consequences in gone for other in consequences.activate]
        seen = self.roster.see(uid, pod, other_scheduler)
        if seen is not None:
            if seen.has_new_child:
                self._expect((seen.member,))
            group = seen.gang.group
            if seen.has_lost_child and group is not None and group.representative == uid:
                group.representative = ""
            retries = (
                seen.has_more_children
                or seen.has_new_child
                or seen.has_lost_child
                or seen.is_newly_initialized
                or seen.was_representative
            )
            activate += self._to_ask(seen.gang, group, retries=retries)
            self._following.recheck(group)
        return _activating(activate)

    def pod_deleted(self, uid: str) -> Consequences:
        """Forget a deleted pod, and return which pods may now be attempted, or are refused for another reason than
        before. The pod must not wait at Permit any more.
        """
        gang = self.roster.gang_of(uid)
        group = None if gang is None else gang.group
        self.roster.forget(uid)
        return NOTHING if gang is None else _activating(self._to_ask(gang, group))

    def pod_group_seen(self, pod_group: PodGroup) -> Consequences:
        """Record a new or changed PodGroup, and return which pods may be attempted because its parameters changed, or
        are refused for another reason than before.
        """
        gang, is_news = self.roster.see_pod_group(pod_group)
        if not is_news:
            return NOTHING
        self._expect(gang.pending.values())
        self._following.recheck(gang.group)
        return _activating(self._to_ask(gang, gang.group))

    def pod_group_deleted(self, gang_id: str) -> Consequences:
        """Forget a deleted PodGroup. Return the pods of its group without a node, which PreEnqueue refuses from now on.
        No-op if no PodGroup defined the gang.
        """
        gang = self.roster.gang(gang_id)
        if gang is None or not gang.has_pod_group:
            return NOTHING
        group = gang.group
        self.roster.forget_pod_group(gang_id)
        return _activating([*gang.pending, *self._to_ask(gang, group)])

    def unbound(self, uid: str) -> Consequences:
        """Record that a bound pod has lost its node and is pending again. Other members keep their nodes."""
        member = self.roster.members.get(uid)
        if member is None or member.state is not ChildState.BOUND:
            return NOTHING
        self.roster.unwait(member)
        self._expect((member,))
        gang = self.roster.gang(member.gang_id)
        return NOTHING if gang is None else _activating(self._to_ask(gang, gang.group))

    def restored(self) -> None:
        """Record what the members of all groups know, after a snapshot was restored: the queue has asked about all."""
        for group in self.roster.groups.values():
            to_ask(self.roster, group, self.round, retries=True)
        self._following.restored()

    def others_to_ask(self) -> list[str]:
        """Return the pods to ask again because of events since the last call about gangs that their groups name, but
        that name another group.
        """
        return [uid for group in self._following.take() for uid in to_ask(self.roster, group, self.round, retries=True)]

    def _to_ask(self, gang: Gang, group: Group | None, *, retries: bool = True) -> list[str]:
        """Return the pods of a gang's group to ask again after an event about the gang."""
        self._following.changed(gang.id)
        return [] if group is None else to_ask(self.roster, group, self.round, retries=retries)

    # --- points -----------------------------------------------------------------------------------------------------

    def pre_enqueue(self, uid: str) -> Refused | None:
        """Return why the pod must stay out of the scheduling queue, or None if it may enter. A pod without a gang may
        always enter. Of a group that is not being scheduled, only one pod may be in the queue. The first pod that asks
        enters and becomes this representative.
        """
        found = self._checked(uid)
        if found is None or isinstance(found, Refused):
            return found
        member, group = self.roster.members[uid], group_of(found)
        current = self._round_of(found)
        if current is not None and uid not in current.attempted:
            message = f"gang group {group.id} is being scheduled and will fetch pod {member.key} itself"
            return Refused(Reason.GROUP_IS_SCHEDULING, message)
        if member.state is not ChildState.PENDING:
            return Refused(Reason.NOT_A_PENDING_CHILD, f"pod {member.key} is no pending child of gang {found.id}")
        if group.representative and group.representative != uid:
            other = self.roster.members[group.representative]
            message = f"pod {other.key} represents gang group {group.id} in the queue"
            return Refused(Reason.REPRESENTATIVE_EXISTS, message)
        if not member.obstacle:
            group.representative = uid
        return None

    def left_queue(self, uid: str) -> Consequences:
        """Record that a pod left the queue without an attempt, and return a member to queue in its place. It has
        another scheduler now, or a scheduling gate.
        """
        gang = self.roster.gang_of(uid)
        if gang is None or group_of(gang).representative != uid:
            return NOTHING
        group_of(gang).representative = ""
        return _activating(one_to_ask(self.roster, group_of(gang), self.round, but=uid))

    def next_pod(self) -> Next:
        """Return the next member to attempt in the present scheduling round. After the last member the round ends. If
        the returned member is not in the queue, for example because it belongs to another scheduler, the caller calls
        the method again. When the round ends, members that still wait at Permit lose their nodes. Members of NonStrict
        gangs keep their nodes until their own wait time is over (spec 8.8, pitfall 7).
        """
        current = self.round
        if current is None:
            return Next()
        is_alive = self.roster.gang(current.first_gang_id) is not None
        if is_alive:
            for uid in current.turns():
                member = self.roster.members.get(uid)
                if member is not None and member.can_be_tried and uid not in current.attempted:
                    current.attempted.add(uid)
                    return Next(uid=uid, like=current.first_uid)
        self._end_round(current, RoundEnd.ALL_ATTEMPTED if is_alive else RoundEnd.GANG_GONE)
        gangs = [gang for gang_id in sorted(current.gang_ids) if (gang := self.roster.gang(gang_id)) is not None]
        message = incomplete(gangs) if is_alive else f"gang {current.first_gang_id} is not known any more"
        waiting = waiting_members(self.roster, current.gang_ids)
        rejected = self._reject([member for member in waiting if self._loses_at_end(member)])
        return Next(rejected=rejected, message=message)

    def before_pre_filter(self, uid: str, *, has_topology: bool = True, now: float = 0.0) -> Refused | None:
        """Return why the attempt of the pod must not begin (preemption cannot help), or None if it may begin. `uid`:
        uid of the pod. If no round is under way, this attempt begins the round of its group. `has_topology`: whether a
        ClusterNetworkTopology exists. Gangs with network topology rules need it. `now`: present time in Unix seconds. A
        new round stores it as its begin, for the metric of its duration.
        """
        found = self._checked(uid)
        if found is None or isinstance(found, Refused):
            return found
        member, group = self.roster.members[uid], group_of(found)
        if self.round is None:
            group.representative = ""
            if not has_topology and self._needs_topology(found):
                return Refused(Reason.NO_NETWORK_TOPOLOGY, "no cluster network topology")
            self._begin_round(member, group, now)
            return None
        current = self._round_of(found)
        if current is not None and current.failed_message:
            current.failed_fast.add(uid)
            return Refused(Reason.GROUP_FAILED, current.failed_message)
        if current is None and group.representative == uid:
            group.representative = ""
        return None

    def permit(self, uid: str) -> PermitOutcome:
        """Count the pod as a member with a node. Return whether it may be bound, must wait for more, or is refused. It
        may be bound if it has no gang, or if every gang of its group exists and has enough members with a node. It is
        refused only if its gang does not exist. Otherwise it waits.
        """
        member = self.roster.members.get(uid)
        if member is None:
            return Released()
        gang = self.roster.gang(member.gang_id)
        if gang is None:
            return not_found(member)
        if member.state is not ChildState.BOUND:
            self.roster.wait(member)
        group = group_of(gang)
        self._following.changed(gang.id)
        if not is_ready(self.roster, group):
            return Waits(0 if gang.parameters is None else gang.parameters.wait_nanos)
        return Released(self._release(group, self.roster.gangs_of(group), but=uid))

    @property
    def may_be_ready(self) -> bool:
        """Whether `others_to_ask` or `take_ready` have something to look at."""
        return self._following.is_due

    def take_ready(self) -> list[tuple[str, Consequences]]:
        """Return (gang of the first pod, pods of its group that may be bound) for groups that events since the last
        call have made ready, for example because `minMember` was lowered. Permit does not look at these pods again.
        """
        groups = list(self._following.to_recheck)
        self._following.to_recheck.clear()
        found: list[tuple[str, Consequences]] = []
        for group_id in groups:
            group = self.roster.groups.get(group_id)
            if group is None or not is_ready(self.roster, group):
                continue
            own = attached(self.roster, group)
            if waiting_members(self.roster, [gang.id for gang in own]):
                released = self._release(group, own)
                found.append((self.roster.members[released.allowed[0]].gang_id, released))
        return found

    def _release(self, group: Group, gangs: Sequence[Gang], but: str = "") -> Consequences:
        """Let all members of these gangs of a group that wait at Permit be bound, and end its round. `but`: uid of a
        pod that Permit has just counted and that the result does not name.
        """
        waiting = [other for each in gangs for other in each.waiting.values()]
        if not group.binding:  # members of a gang that names another group are bound with that
            own = (each for each in gangs if each.group is group)
            group.binding = frozenset(uid for each in own for uid in each.waiting)
        freed = [other for other in waiting if not other.released and other.uid != but]
        for other in waiting:
            other.released = True
        if self.round is not None and not self.round.gang_ids.isdisjoint(group.gang_ids):
            self._end_round(self.round, RoundEnd.SUCCEEDED)
        return Consequences(allowed=uids_of(freed), activate=tuple(one_to_ask(self.roster, group, self.round)))

    def unreserve(self, uid: str) -> Consequences:
        """Record that the pod lost its node: its wait timed out, it was rejected, or Reserve or the binding failed. If
        its gang is Strict and has no free pass, all members of its group that wait at Permit lose their nodes as well.
        Do not call this for pods in the `rejected` field of a result; their state is up to date already.
        """
        member = self.roster.members.get(uid)
        if member is None:
            return NOTHING
        gang = self.roster.gang(member.gang_id)
        if member.state is ChildState.WAITING:
            self.roster.unwait(member)
            self._following.changed(member.gang_id)
            self._expect((member,))
        if gang is None or not gang.is_strict:
            return NOTHING
        rejected = self._reject(waiting_members(self.roster, group_of(gang).gang_ids))
        return Consequences(rejected=rejected) if rejected else NOTHING

    def post_bind(self, uid: str) -> Consequences:
        """Record that the pod is bound, and return which members may now be attempted. After the first bound member of
        a group, members of once-satisfied gangs are placed alone.
        """
        member = self.roster.members.get(uid)
        if member is None:
            return NOTHING
        gang = self.roster.gang(member.gang_id)
        was_representative = gang is not None and group_of(gang).representative == uid
        self.roster.bind(member)
        if gang is None:
            return NOTHING
        self._following.recheck(gang.group)
        return _activating(self._to_ask(gang, gang.group, retries=was_representative))

    def after_post_filter(self, uid: str, reason: str) -> Failure:
        """Record that the pod found no node for the reason (a sentence). Return the consequences for its gang. If the
        gang is Strict, the members of its group that wait at Permit lose their nodes.
        """
        member = self.roster.members.get(uid)
        gang = None if member is None else self.roster.gang(member.gang_id)
        if member is None or gang is None or gang.has_free_pass:
            return Failure()
        group = group_of(gang)
        waiting = waiting_members(self.roster, group.gang_ids)
        is_root_cause = True
        message = (
            f"GangGroup {group.id} gets rejected due to member Pod {member.key} is unschedulable with reason {reason}, "
            f"alreadyWaitForBound: {len(waiting)}"
        )
        tell: tuple[str, ...] = ()
        current = self._round_of(gang)
        if current is not None:
            is_root_cause = uid not in current.failed_fast
            message = current.failed_message = current.failed_message or message
            if not is_root_cause and not current.is_told:
                current.is_told = True
                tell = uids_of(
                    other
                    for other in pending_members(self.roster, group)
                    if other.uid not in current.attempted and not other.obstacle
                )
        rejected = self._reject(waiting) if gang.is_strict else ()
        return Failure(rejected=rejected, message=message, is_root_cause=is_root_cause, tell=tell)

    # --- the members of a group ------------------------------------------------------------------------------------

    def members_to_place(self, uid: str) -> Sequence[Member]:
        """Return the members of the pod's group without a node that can be attempted, in scheduling order. A pod with a
        free pass, or whose gang does not exist, is returned alone. Empty for a pod that names no gang.
        """
        member = self.roster.members.get(uid)
        gang = None if member is None else self.roster.gang(member.gang_id)
        if member is None:
            return ()
        if gang is None or gang.has_free_pass:
            return (member,)
        pending = pending_members(self.roster, group_of(gang))
        return sorted((other for other in pending if not other.obstacle), key=lambda other: other.turn)

    def waiting_with(self, uid: str) -> tuple[str, ...]:
        """Return the uids of the members of the pod's group that wait at Permit; empty for a pod without a gang."""
        return uids_of(self._waiting_with(uid))

    def reject_waiting(self, uid: str) -> tuple[str, ...]:
        """Count all members of the pod's group that wait at Permit as pending, and return their uids."""
        return self._reject(self._waiting_with(uid))

    def _waiting_with(self, uid: str) -> list[Member]:
        gang = self.roster.gang_of(uid)
        return [] if gang is None or gang.group is None else waiting_members(self.roster, gang.group.gang_ids)

    def round_of(self, uid: str) -> Round | None:
        """Return the scheduling round of the pod's group, or None if the group is not being scheduled."""
        member = self.roster.members.get(uid)
        current = self.round
        return current if member is not None and current is not None and member.gang_id in current.gang_ids else None

    def _checked(self, uid: str) -> Gang | Refused | None:
        """Return the pod's gang if its group passes the basic check (8.3), otherwise the refusal. None if the pod names
        no gang, or has a free pass.
        """
        member = self.roster.members.get(uid)
        if member is None:
            return None
        gang = self.roster.gang(member.gang_id)
        if gang is None:
            return not_found(member)
        if gang.has_free_pass:
            return None
        refused: Refused | None
        if gang.parameters is None:
            refused = Refused(Reason.GANG_NOT_INITIALIZED, f"gang {gang.id} of pod {member.key} is not initialized")
        else:
            refused = basic_check(self.roster, group_of(gang))
        if refused is None:
            return gang
        if group_of(gang).representative == member.uid:
            group_of(gang).representative = ""
        return refused

    def _begin_round(self, member: Member, group: Group, now: float) -> None:
        self.round = Round(
            gang_ids=frozenset(group.gang_ids),
            first_uid=member.uid,
            first_gang_id=member.gang_id,
            began_at=now,
            attempted={member.uid},
        )
        self.round.expect(pending_members(self.roster, group))

    def _end_round(self, current: Round, reason: RoundEnd) -> None:
        gangs = (self.roster.gang(gang_id) for gang_id in current.gang_ids)
        members = sum(gang.children for gang in gangs if gang is not None)
        self.ended.append(EndedRound(reason, members, current.began_at))
        self.round = None

    def _round_of(self, gang: Gang) -> Round | None:
        return self.round if self.round is not None and gang.id in self.round.gang_ids else None

    def _expect(self, members: Iterable[Member]) -> None:
        current = self.round
        if current is not None:
            current.expect(member for member in members if member.gang_id in current.gang_ids)

    def _needs_topology(self, gang: Gang) -> bool:
        return self.args.aware_network_topology and gang.parameters is not None and gang.parameters.gather is not None

    def _loses_at_end(self, member: Member) -> bool:
        gang = self.roster.gang(member.gang_id)
        return gang is None or gang.parameters is None or gang.parameters.is_strict

    def _reject(self, members: Iterable[Member]) -> tuple[str, ...]:
        """Take the nodes of the given waiting members, and of all that wait in the same group if the gang is Strict."""
        rejected: list[Member] = []
        work = list(members)
        swept: set[str] = set()
        while work:
            member = work.pop()
            if member.state is not ChildState.WAITING:
                continue
            self.roster.unwait(member)
            self._following.changed(member.gang_id)
            rejected.append(member)
            gang = self.roster.gang(member.gang_id)
            if gang is not None and gang.is_strict and group_of(gang).id not in swept:
                swept.add(group_of(gang).id)
                work += waiting_members(self.roster, group_of(gang).gang_ids)
        self._expect(rejected)
        return uids_of(rejected)


def _activating(uids: Sequence[str]) -> Consequences:
    return Consequences(activate=tuple(uids)) if uids else NOTHING
