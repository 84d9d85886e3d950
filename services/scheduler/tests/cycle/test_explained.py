"""Every pod that is rejected, or loses its node before it is placed, gets an explanation in the same step.

The property lives through random stories with gangs of every kind, among them members that cannot be attempted:
gated, being deleted, of another scheduler. The named tests are the reports from which it was made.
"""

import re
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.loop.cycle.deciding import gated, lost_nodes
from koord_scheduler.domain.loop.cycle.pod_explanations import PodExplanation
from koord_scheduler.domain.loop.queue.queued_pod import QueueState
from koordcore.events.envelope import AggregateRef
from koordcore.events.explanations import PodGated, PodUnschedulable
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod, pod_from_json
from support.depth import examples
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata
from support.scheduler.stories import GANG, World, step

BASIC = ("follow", "follow", *["decide"] * 8, "send", "land", "land_last", "release", "time")
OTHERS = ("add_node", "remove_node", "add_pod", "remove_pod", "follow_some")
OWN = ("member", "member", "member", "gate", "ungate", "end", "leave", "come", "pod_group", "pod_group", "no_pod_group")
WAITS = "waits with node"


class Watch:
    """Which pods have to be explained after each step."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.last: dict[str, PodExplanation] = {}
        self.heard = 0
        self.waiting: set[str] = set()
        self.attempts: dict[str, int] = {}
        self.lost = self.refused = 0

    def look(self, now: float = 0.0) -> None:
        """Compare with the last look. Explanations are taken as the main loop takes them."""
        scheduler, state = self.scheduler, self.scheduler.state
        scheduler.explanations += [*lost_nodes(state, now), *gated(state)]
        told = scheduler.explanations[self.heard :]
        self.heard = len(scheduler.explanations)
        self.last.update({each.uid: each for each in told})
        uids = {each.uid for each in told}
        waiting = set(state.assumed.waiting.uids())
        for uid in self.waiting - waiting:
            pod = state.pods.get(uid)
            if pod is not None and state.queue.get(uid) is not None and not pod.work_node:
                assert uid in uids, f"{uid} has lost its node without a word"
                self.lost += 1
        for uid in state.queue.uids():
            queued = state.queue.get(uid)
            if queued is None:
                continue
            failed = queued.attempts > self.attempts.get(uid, 0) and queued.state is QueueState.UNSCHEDULABLE
            assert not failed or uid in uids, f"{uid} was refused without a word"
            self.refused += failed
            self.attempts[uid] = queued.attempts
        self.waiting = waiting

    def end(self) -> None:
        """Every pod that waits for something has been told for what, and nothing that has ended."""
        state = self.scheduler.state
        self.look()
        for uid in state.queue.uids():
            assert uid in self.last, f"{uid} waits without a word"
            event = self.last[uid].event
            says_waits = isinstance(event, PodGated) and event.message.startswith(WAITS)
            assert says_waits == (uid in state.assumed.waiting), (uid, self.last[uid].message)
            if state.queue.is_gated(uid) and isinstance(event, PodGated):
                pod = state.pods[uid]
                refusal = state.frameworks.framework_of(pod).pre_enqueue(pod)
                assert _reason(refusal or "") == _reason(self.last[uid].message), (uid, refusal, self.last[uid].message)


def _reason(message: str) -> str:
    """Without what need not be told again: how many children there are, the names of further members that cannot be
    attempted, their order, and whether a pod names the missing gang.
    """
    named = re.sub(r"; pod .*, and \d+ more$", "; many", message)
    named = ", pod ".join(sorted(re.split(r"[,;] pod ", named)))
    return re.sub(r"\(\d+/\d+\)", "", named).replace("is not known", "is not initialized")


class Watched(Scheduler):
    """Looks after each decision, and after what time has ended."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.watch = Watch(self)

    def decide(self, now: float = 0.0) -> object:
        decided = super().decide(now)
        self.watch.look(now)
        return decided


def member(random: Random, uid: str) -> Pod:
    """A member of one of a few gangs, of every mode and policy; some cannot be attempted."""
    gang = random.choice("abcd")
    annotations = {
        f"{GANG}/mode": "NonStrict" if gang == "b" else "Strict",
        f"{GANG}/match-policy": {"c": "only-waiting", "d": "waiting-and-running"}.get(gang, "once-satisfied"),
        f"{GANG}/waiting-time": "100s",
    }
    spec: dict[str, Any] = {}
    match random.randrange(8):
        case 0:
            spec["schedulingGates"] = [{"name": "hold"}]
        case 1:
            spec["schedulerName"] = "somebody-else"
        case _:
            pass
    wanted = pod(uid, {"cpu": str(random.randint(1, 3))}, priority=random.choice((0, 0, 100)), **spec)
    labels = {keys.POD_GROUP: gang}
    if random.randrange(2):
        labels = {keys.POD_GROUP_NAME: gang, keys.POD_GROUP_MIN_AVAILABLE: "2"}
    return with_metadata(wanted, labels=labels, annotations=annotations)


def live(world: World, known: dict[str, Pod], what: str) -> None:
    """One step of this story, drawn from its seed."""
    random = world.random
    if what == "member":
        world.made += 1
        known[f"m{world.made}"] = member(random, f"m{world.made}")
        world.pods.append(f"m{world.made}")
        world.log.add_pod(known[f"m{world.made}"])
        return
    if what in ("pod_group", "no_pod_group"):
        name = random.choice("abcd")
        ref = custom_ref("podgroups", "default", name)
        if what == "no_pod_group":
            if world.log.last_seq(AggregateRef(ref.kind, ref.id)):
                world.log.say(ref.kind, ref.id, CustomObjectDeleted(kind="PodGroup", namespace="default", name=name))
            return
        mode = {f"{GANG}/mode": "NonStrict"} if name == "b" else {}
        document: dict[str, Any] = {
            "metadata": {"namespace": "default", "name": name, "annotations": mode},
            "spec": {"minMember": random.randint(1, 3), "scheduleTimeoutSeconds": 100},
        }
        world.log.say(ref.kind, ref.id, CustomObjectObserved(object=document))
        return
    uids = [uid for uid in world.pods if uid in known]
    if not uids:
        return
    uid = random.choice(uids)
    changed = known[uid]
    match what:
        case "gate":
            changed = msgspec.structs.replace(changed, spec=_spec(changed, schedulingGates=[{"name": "late"}]))
        case "ungate":
            changed = msgspec.structs.replace(changed, spec=_spec(changed, schedulingGates=[]))
        case "leave":
            changed = msgspec.structs.replace(changed, spec=_spec(changed, schedulerName="somebody-else"))
        case "come":
            changed = msgspec.structs.replace(changed, spec=_spec(changed, schedulerName="koord-scheduler"))
        case _:
            meta = msgspec.structs.replace(changed.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
            changed = msgspec.structs.replace(changed, metadata=meta)
    known[uid] = changed
    world.log.add_pod(changed)


def _spec(one: Pod, **fields: Any) -> Any:
    spec = pod_from_json({"metadata": {"name": "x"}, "spec": fields}).spec
    names = {"schedulingGates": "scheduling_gates", "schedulerName": "scheduler_name"}
    return msgspec.structs.replace(one.spec, **{names[key]: getattr(spec, names[key]) for key in fields})


@settings(max_examples=examples(300))
@given(st.integers(0, 1 << 32))
def test_no_path_rejects_a_pod_or_takes_its_node_without_an_explanation(seed: int) -> None:
    scheduler = Watched(SmallLog())
    world, known = World(scheduler, Random(seed)), dict[str, Pod]()
    for what in ("add_node", "add_node", *["pod_group"] * 4, *["member"] * 8):
        live(world, known, what) if what in OWN else step(world, what)
    for _ in range(100):
        what = world.random.choice((*BASIC, *BASIC, *OTHERS, *OWN))
        live(world, known, what) if what in OWN else step(world, what)
        scheduler.watch.look(world.now)
    scheduler.send()
    while scheduler.in_flight:
        scheduler.land(now=world.now)
    for _ in range(2):
        step(world, "time")
        scheduler.run(world.now)
        scheduler.watch.look(world.now)
    scheduler.watch.end()
    event(f"nodes lost at Permit: {min(scheduler.watch.lost, 4)}, refused: {min(scheduler.watch.refused, 20) // 5 * 5}")


def gang_member(uid: str, policy: str = "once-satisfied", **spec: Any) -> Pod:
    labels = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "2"}
    return with_metadata(pod(uid, {"cpu": "1"}, **spec), labels=labels, annotations={f"{GANG}/match-policy": policy})


def watched(*pods: Pod, nodes: int = 1) -> Watched:
    scheduler = Watched(SmallLog())
    for number in range(nodes):
        scheduler.log.add_node(node(f"n{number}"))
    for each in pods:
        scheduler.log.add_pod(each)
        scheduler.run()
        scheduler.watch.look()
    return scheduler


def deleted(one: Pod) -> Pod:
    meta = msgspec.structs.replace(one.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(one, metadata=meta)


GATED = gang_member("m1", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
NO_QUORUM = {
    "gated": (GATED, "pod default/m1 waits for scheduling gates kueue.x-k8s.io/admission"),
    "of another scheduler": (
        gang_member("m1", schedulerName="default-scheduler"),
        "pod default/m1 belongs to scheduler default-scheduler",
    ),
    "being deleted": (deleted(gang_member("m1")), "pod default/m1 is being deleted"),
}


@pytest.mark.parametrize("comes_first", [True, False])
@pytest.mark.parametrize("name", NO_QUORUM)
def test_member_that_cannot_be_attempted_is_no_quorum_and_the_others_are_told(name: str, comes_first: bool) -> None:
    other, why = NO_QUORUM[name]
    pods = (gang_member("m0"), other)
    scheduler = watched(*(pods if comes_first else reversed(pods)))
    assert not len(scheduler.state.assumed.waiting)
    assert scheduler.watch.last["m0"].message == (
        "gang group default/g: gangs [default/g(1/2)] have too few children that can be scheduled; " + why
    )
    scheduler.log.add_pod(gang_member("m2"))
    scheduler.run()
    assert sorted(uid for uid, record in scheduler.state.pods.items() if record.node) == ["m0", "m2"]


def test_member_goes_when_the_gate_of_the_other_is_removed() -> None:
    scheduler = watched(gang_member("m0"), GATED)
    assert "m1" in scheduler.watch.last
    scheduler.log.add_pod(gang_member("m1"))
    scheduler.run()
    assert all(record.node for record in scheduler.state.pods.values())


def test_replacement_that_finds_a_node_and_gives_it_back_is_told_why() -> None:
    scheduler = watched(*(gang_member(uid, "only-waiting") for uid in ("m0", "m1")))
    scheduler.log.remove_pod("m1")
    scheduler.log.add_pod(gang_member("m2", "only-waiting"))
    scheduler.run()
    scheduler.watch.end()
    event = scheduler.watch.last["m2"].event
    assert isinstance(event, PodUnschedulable)
    assert event.message == (
        "rejected after waiting 0 s with node n0 for the others of its gang: only 1 of 2 members of gang default/g "
        "have a node and wait for the rest (match policy only-waiting)"
    )
    assert event.basis is not None


def test_waiting_member_that_is_preempted_is_told_by_whom() -> None:
    annotations = {f"{GANG}/mode": "NonStrict", f"{GANG}/waiting-time": "600s"}
    members = [with_metadata(gang_member(uid), annotations=annotations) for uid in ("m0", "m1")]
    scheduler = Watched(SmallLog())
    scheduler.log.add_node(node("n0", cpu="1"))
    for each in members:
        scheduler.log.add_pod(each)
    scheduler.run()
    [waits] = scheduler.state.assumed.waiting.uids()
    scheduler.log.add_pod(pod("top", {"cpu": "1"}, priority=1000))
    scheduler.run()
    messages = [each.message for each in scheduler.explanations if each.uid == waits]
    assert any("pod default/top preempted it" in message for message in messages), messages


def test_waiting_member_whose_node_is_deleted_is_told_so() -> None:
    annotations = {f"{GANG}/mode": "NonStrict", f"{GANG}/waiting-time": "600s"}
    scheduler = Watched(SmallLog())
    scheduler.log.add_node(node("n0", cpu="1"))
    for uid in ("m0", "m1"):
        scheduler.log.add_pod(with_metadata(gang_member(uid), annotations=annotations))
    scheduler.run()
    [waits] = scheduler.state.assumed.waiting.uids()
    scheduler.log.remove_node("n0")
    scheduler.run()
    messages = [each.message for each in scheduler.explanations if each.uid == waits]
    assert any("node n0 was deleted" in message for message in messages), messages
