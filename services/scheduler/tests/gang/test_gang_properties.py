"""Laws of Coscheduling over random sequences of events and attempts.

A small scheduler drives the cache: a queue that asks PreEnqueue, attempts that fit or not as the example says, waits
that time out, binds that succeed or fail.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from koord_scheduler.domain.config.koordinator_args import CoschedulingArgs
from koord_scheduler.domain.plugins.gang.cache import GangCache
from koord_scheduler.domain.plugins.gang.checks import basic_check
from koord_scheduler.domain.plugins.gang.group import ChildState, Gang, Group
from koord_scheduler.domain.plugins.gang.outcomes import Consequences, Refused, Released
from koord_scheduler.domain.plugins.gang.parameters import PodGroup
from koordcore.protocol.objects import Pod, object_from_json, pod_from_json
from support.depth import examples

GANGS = ("a", "b", "c", "d")
GROUPED = '["ns/a", "ns/b"]'
POLICIES = ("once-satisfied", "only-waiting", "waiting-and-running")


def gang_pod(uid: str, gang: str, node: str = "") -> Pod:
    """A member of a PodGroup's gang; those of gang d say themselves what they ask for."""
    meta: dict[str, object] = {"namespace": "ns", "name": uid, "uid": uid}
    if gang == "d":
        prefix = "gang.scheduling.koordinator.sh/"
        meta["annotations"] = {f"{prefix}name": gang, f"{prefix}min-available": "2"}
    else:
        meta["labels"] = {"pod-group.scheduling.sigs.k8s.io": gang}
    return pod_from_json({"metadata": meta, "spec": {"nodeName": node}})


def pod_group(gang: str, min_member: int, policy: str = POLICIES[0], mode: str = "Strict") -> PodGroup:
    """PodGroup of a gang; a and b are one group."""
    prefix = "gang.scheduling.koordinator.sh/"
    annotations = {f"{prefix}mode": mode, f"{prefix}match-policy": policy}
    if gang in "ab":
        annotations[f"{prefix}groups"] = GROUPED
    raw = {
        "metadata": {"namespace": "ns", "name": gang, "annotations": annotations},
        "spec": {"minMember": min_member},
    }
    return object_from_json(raw, PodGroup)


class Scheduling(RuleBasedStateMachine):
    """What an engine does with the cache's answers."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = GangCache(CoschedulingArgs())
        self.queue: list[str] = []
        self.gated: list[str] = []
        self.waiting: list[str] = []
        self.released: list[str] = []
        self.count = 0
        self.bound: set[str] = set()
        self.policies: dict[str, str] = {}

    # --- the engine's reactions

    def enqueue(self, uid: str) -> None:
        self.take_out(uid)
        place = self.queue if self.cache.pre_enqueue(uid) is None else self.gated
        place.append(uid)

    def take_out(self, uid: str) -> None:
        for place in (self.queue, self.gated, self.waiting, self.released):
            if uid in place:
                place.remove(uid)

    def react(self, consequences: Consequences) -> None:
        for uid in consequences.allowed:
            self.waiting.remove(uid)
            self.released.append(uid)
        for uid in consequences.rejected:
            assert uid in self.waiting, "only pods that still wait can be rejected"
            self.enqueue(uid)
        for uid in consequences.activate:
            if uid in self.gated:
                self.enqueue(uid)

    def attempt(self, uid: str, *, fits: bool) -> None:
        self.take_out(uid)
        if self.cache.before_pre_filter(uid) is not None or not fits:
            gang = self.gang_of(uid)
            was_strict = gang is not None and gang.is_strict
            failure = self.cache.after_post_filter(uid, "no room")
            self.react(Consequences(rejected=tuple(failure.rejected)))
            if gang is not None and was_strict:
                assert not self.held(gang), "a strict group keeps no node when a member fails"
            self.enqueue(uid)
            return
        self.waiting.append(uid)
        outcome = self.cache.permit(uid)
        if isinstance(outcome, Released):
            self.waiting.remove(uid)
            self.released.append(uid)
            self.react(outcome.consequences)
            gang = self.gang_of(uid)
            assert gang is not None
            self.check_release(gang)
        elif isinstance(outcome, Refused):
            self.waiting.remove(uid)
            self.react(self.cache.unreserve(uid))
            self.enqueue(uid)

    def check_release(self, gang: Gang) -> None:
        assert gang.group is not None
        assert not self.held(gang), "nobody of the group waits any more"
        for other in self.cache.roster.gangs_of(gang.group):
            assert other.parameters is not None
            counted = len(other.waiting)
            if other.parameters.match_policy == "waiting-and-running":
                counted += len(other.bound)
            if not other.has_free_pass:
                assert counted >= other.parameters.min_members, "the whole gang has its nodes"

    def held(self, gang: Gang) -> list[str]:
        """Members of the gang's group that wait at Permit."""
        assert gang.group is not None
        return [uid for uid in self.waiting if self.cache.roster.members[uid].gang_id in gang.group.gang_ids]

    def gang_of(self, uid: str) -> Gang | None:
        return self.cache.roster.gang_of(uid)

    def step(self, *, fits: bool) -> bool:
        found = self.cache.next_pod()
        self.react(Consequences(rejected=tuple(found.rejected)))
        uid = found.uid
        if not uid:
            if not self.queue:
                return False
            uid = self.queue.pop(0)
        self.attempt(uid, fits=fits)
        return True

    # --- what happens

    @rule(gang=st.sampled_from(GANGS), bound=st.sampled_from([False, False, False, True]))
    def pod_arrives(self, gang: str, bound: bool) -> None:
        self.count += 1
        uid = f"p{self.count}"
        self.react(self.cache.pod_seen(uid, gang_pod(uid, gang, "n" if bound else "")))
        if not bound:
            self.enqueue(uid)
        else:
            self.bound.add(uid)

    @rule(data=st.data())
    @precondition(lambda self: self.cache.roster.members)
    def pod_goes(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.cache.roster.members)))
        if uid in self.waiting or uid in self.released:
            self.take_out(uid)
            self.react(self.cache.unreserve(uid))
        self.take_out(uid)
        self.bound.discard(uid)
        self.react(self.cache.pod_deleted(uid))

    @initialize(policies=st.fixed_dictionaries(dict.fromkeys("abc", st.sampled_from(POLICIES))))
    def policies_are_chosen(self, policies: dict[str, str]) -> None:
        self.policies = policies

    @rule(gang=st.sampled_from("abc"), least=st.integers(1, 3), mode=st.sampled_from(["Strict", "Strict", "NonStrict"]))
    def pod_group_is_written(self, gang: str, least: int, mode: str) -> None:
        self.react(self.cache.pod_group_seen(pod_group(gang, least, self.policies[gang], mode)))

    @rule(gang=st.sampled_from("abc"))
    def pod_group_goes(self, gang: str) -> None:
        self.cache.roster.forget_pod_group(f"ns/{gang}")
        for uid in [uid for uid in self.queue if self.cache.roster.members[uid].gang_id == f"ns/{gang}"]:
            self.enqueue(uid)

    @rule(fits=st.booleans())
    def an_attempt(self, fits: bool) -> None:
        self.step(fits=fits)

    @rule()
    def several_attempts_that_fit(self) -> None:
        for _ in range(4):
            self.step(fits=True)

    @rule(data=st.data())
    @precondition(lambda self: self.waiting)
    def a_wait_times_out(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(self.waiting))
        gang = self.gang_of(uid)
        self.take_out(uid)
        self.react(self.cache.unreserve(uid))
        if gang is not None and gang.is_strict:
            assert not self.held(gang)
        self.enqueue(uid)

    @rule(data=st.data(), works=st.sampled_from([True, True, False]))
    @precondition(lambda self: self.released)
    def a_bind_ends(self, data: st.DataObject, works: bool) -> None:
        uid = data.draw(st.sampled_from(self.released))
        self.take_out(uid)
        if works:
            self.bound.add(uid)
            self.react(self.cache.post_bind(uid))
        else:
            self.react(self.cache.unreserve(uid))
            self.enqueue(uid)

    @rule(data=st.data())
    @precondition(lambda self: self.queue or self.gated)
    def somebody_else_binds(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(self.queue + self.gated))
        self.take_out(uid)
        self.bound.add(uid)
        gang = self.cache.roster.members[uid].gang_id.removeprefix("ns/")
        self.react(self.cache.pod_seen(uid, gang_pod(uid, gang, "n")))

    @rule(data=st.data())
    @precondition(lambda self: self.bound)
    def a_node_is_gone(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.bound)))
        self.bound.remove(uid)
        self.react(self.cache.unbound(uid))
        self.enqueue(uid)

    # --- what always holds

    @invariant()
    def the_cache_knows_who_is_where(self) -> None:
        members = self.cache.roster.members
        waiting = {uid for uid, member in members.items() if member.state is ChildState.WAITING}
        released = {uid for uid in waiting if members[uid].released}
        assert waiting - released == set(self.waiting)
        assert released == set(self.released)
        assert {uid for uid, member in members.items() if member.state is ChildState.BOUND} == self.bound

    @invariant()
    def at_most_one_pod_of_a_group_is_queued(self) -> None:
        for group in self.cache.roster.groups.values():
            queued = [uid for uid in self.queue if self.is_in(uid, group) and not self.has_free_pass(uid)]
            assert len(queued) <= 1

    @invariant()
    def a_satisfied_group_had_a_bound_member_or_still_has_one(self) -> None:
        for gang in self.cache.roster.gangs.values():
            if gang.group is not None and gang.bound:
                assert gang.group.once_satisfied

    @invariant()
    def counts_agree_with_the_pods(self) -> None:
        for gang in self.cache.roster.gangs.values():
            states = [member.state for member in gang.known.values()]
            assert len(gang.pending) == states.count(ChildState.PENDING)
            assert len(gang.waiting) == states.count(ChildState.WAITING)
            assert len(gang.bound) == states.count(ChildState.BOUND)
            assert sum(gang.phases.values()) == len(states)

    def is_in(self, uid: str, group: Group) -> bool:
        gang = self.gang_of(uid)
        return gang is not None and gang.group is group

    def has_free_pass(self, uid: str) -> bool:
        gang = self.gang_of(uid)
        return gang is not None and gang.has_free_pass

    def teardown(self) -> None:
        """When everything fits, every group that can be complete is placed: nobody is forgotten behind a gate."""
        for _ in range(20 * (len(self.cache.roster.members) + 1)):
            while self.released:
                uid = self.released.pop()
                self.bound.add(uid)
                self.react(self.cache.post_bind(uid))
            if not self.step(fits=True):
                break
        for gang in self.cache.roster.gangs.values():
            group = gang.group
            if group is None or gang.parameters is None:
                continue
            if gang.has_free_pass or basic_check(self.cache.roster, group) is None:
                free = all(other.has_free_pass or not other.bound for other in self.cache.roster.gangs_of(group))
                assert not free or not gang.pending, f"{gang.id} is left behind"


Scheduling.TestCase.settings = settings(
    max_examples=examples(100),
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
TestScheduling = Scheduling.TestCase
