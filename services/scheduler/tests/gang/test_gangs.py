"""Gangs through the whole scheduler: queue, rounds, waiting with a node, one append for all, conflicts, restarts."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.cluster.record import Phase
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.loop.cycle.deciding import gated
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events import CATALOGUE
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.gang import GangPlaced
from koordcore.events.pod import PodPlaced, PodReleased
from koordcore.protocol import keys
from koordcore.protocol.annotations.gang import BoundGang
from koordcore.protocol.objects import Pod
from support.depth import examples
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

Step = tuple[str, int]


def member(uid: str, gang: str = "g", least: int = 2, cpu: str = "1", priority: int = 0, **annotations: str) -> Pod:
    """A pod of a gang; annotations by the last part of their key, `_` for `-`."""
    return with_metadata(
        pod(uid, {"cpu": cpu}, priority=priority),
        labels={keys.POD_GROUP_NAME: gang, keys.POD_GROUP_MIN_AVAILABLE: str(least)},
        annotations={
            f"gang.scheduling.koordinator.sh/{key.replace('_', '-')}": text for key, text in annotations.items()
        },
    )


def scheduler_of(*nodes: str, cpu: str = "4") -> Scheduler:
    log = SmallLog()
    for name in nodes:
        log.add_node(node(name, cpu=cpu))
    return Scheduler(log)


def submit(scheduler: Scheduler, *members: Pod, now: float = 0.0) -> None:
    for each in members:
        scheduler.log.add_pod(each)
    scheduler.run(now)


def placed(scheduler: Scheduler) -> list[str]:
    return sorted(uid for uid, record in scheduler.state.pods.items() if record.node)


def said(scheduler: Scheduler) -> dict[str, str]:
    """The last refusal of each pod."""
    events = ((explanation.uid, explanation.event) for explanation in scheduler.explanations)
    return {uid: event.message for uid, event in events if isinstance(event, PodUnschedulable)}


def test_gang_is_placed_with_one_append_and_says_so() -> None:
    scheduler = scheduler_of("a", "b")
    submit(scheduler, *(member(f"m{index}", least=4) for index in range(4)))
    assert placed(scheduler) == ["m0", "m1", "m2", "m3"]
    facts = [event for stored in scheduler.log.events if isinstance(event := CATALOGUE.read(stored), GangPlaced)]
    assert [(fact.name, len(fact.members)) for fact in facts] == [("g", 4)]


def test_members_are_told_with_whom_they_are_bound() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, member("m0"), member("m1"), pod("alone", {"cpu": "1"}))
    events = (CATALOGUE.read(stored) for stored in scheduler.log.events)
    bound_with = {event.name: event.gang for event in events if isinstance(event, PodPlaced)}
    assert bound_with == {"alone": None, "m0": BoundGang("default/g", 2), "m1": BoundGang("default/g", 2)}


def test_incomplete_gang_is_gated_and_its_users_are_told() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, member("m0", least=2))
    assert placed(scheduler) == []
    assert [explanation.uid for explanation in gated(scheduler.state)] == ["m0"]
    submit(scheduler, member("m1", least=2))
    assert placed(scheduler) == ["m0", "m1"]


def test_gang_that_does_not_fit_gives_its_nodes_back_and_rests() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, member("m0", cpu="3"), member("m1", cpu="3"))
    assert placed(scheduler) == []
    assert not len(scheduler.state.assumed.waiting)
    assert not scheduler.state.queue.has_active()
    assert all("GangGroup default/g gets rejected" in said(scheduler)[uid] for uid in ("m0", "m1"))
    submit(scheduler, pod("other", {"cpu": "3"}))
    assert placed(scheduler) == ["other"]


def test_gang_that_did_not_fit_is_placed_when_a_node_comes() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, member("m0", cpu="3"), member("m1", cpu="3"))
    scheduler.log.add_node(node("b"))
    scheduler.run(now=20.0)
    assert placed(scheduler) == ["m0", "m1"]


def test_all_pending_members_are_told_of_the_failure_once() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, *(member(f"m{index}", least=5, cpu="3") for index in range(5)))
    assert sorted(said(scheduler)) == ["m0", "m1", "m2", "m3", "m4"]
    assert len(set(said(scheduler).values())) == 1


def test_failed_member_is_told_of_the_waiting_members_of_its_own_group_only() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, *(member(name, cpu="3", mode="NonStrict") for name in ("m0", "m1")))
    (waits,) = scheduler.state.assumed.waiting.uids()
    (fails,) = {"m0", "m1"} - {waits}
    submit(scheduler, *(member(f"other{index}", gang="h", cpu="9") for index in range(2)))
    events = ((each.uid, each.event) for each in scheduler.explanations)
    found = {uid: event.diagnosis for uid, event in events if isinstance(event, PodUnschedulable)}
    waiting = {uid: diagnosis.waiting_on for uid, diagnosis in found.items() if diagnosis is not None}
    assert waiting[fails] == {"a": 1}
    assert [nodes for uid, nodes in waiting.items() if uid.startswith("other")] == [{}]


def test_without_the_gate_only_those_that_were_tried_are_told() -> None:
    log = SmallLog()
    log.add_node(node("a"))
    scheduler = Scheduler(log, gates=SchedulerGates(gang_pending_pods_condition_patch=False))
    for index in range(5):
        log.add_pod(member(f"m{index}", least=5, cpu="3"))
    scheduler.follow()
    for _ in range(3):
        scheduler.decide()
    assert len(said(scheduler)) == 3


def test_strict_gang_loses_all_nodes_and_non_strict_keeps_them_until_its_time_is_over() -> None:
    strict, lenient = scheduler_of("a"), scheduler_of("a")
    submit(strict, member("m0", cpu="3"), member("m1", cpu="3"))
    submit(
        lenient,
        member("m0", cpu="3", mode="NonStrict", waiting_time="60s"),
        member("m1", cpu="3", mode="NonStrict", waiting_time="60s"),
    )
    assert (len(strict.state.assumed.waiting), len(lenient.state.assumed.waiting)) == (0, 1)
    lenient.run(now=59.0)
    assert len(lenient.state.assumed.waiting) == 1
    waited = lenient.state.assumed.waiting.uids()
    lenient.run(now=60.5)
    assert lenient.state.assumed.waiting.uids() != waited or not len(lenient.state.assumed.waiting)
    lenient.log.add_node(node("b"))
    lenient.run(now=100.0)
    assert placed(lenient) == ["m0", "m1"]


def test_member_that_waits_with_a_node_is_told_so_once() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, *(member(name, cpu="3", mode="NonStrict", waiting_time="30s") for name in ("m0", "m1")))
    [waits] = scheduler.state.assumed.waiting.uids()
    told = {each.uid: each.message for each in gated(scheduler.state)}
    assert told[waits] == "waits with node a until enough members of its gang have a node"
    assert gated(scheduler.state) == []


def test_member_that_has_waited_in_vain_is_told_for_how_long_and_where() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, *(member(name, cpu="3", mode="NonStrict", waiting_time="30s") for name in ("m0", "m1")))
    [waits] = scheduler.state.assumed.waiting.uids()
    scheduler.run(now=31.0)
    events = [explanation.event for explanation in scheduler.explanations if explanation.uid == waits]
    told = [event.message for event in events if isinstance(event, PodUnschedulable)]
    assert "rejected due to timeout after waiting 31 s with node a for the others of its gang" in told


def test_non_strict_gang_is_complete_when_the_last_member_finds_room() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, *(member(f"m{index}", cpu="3", mode="NonStrict") for index in range(2)))
    scheduler.log.add_node(node("b"))
    scheduler.run(now=20.0)
    assert placed(scheduler) == ["m0", "m1"]


def test_gangs_of_a_group_are_placed_together() -> None:
    groups = '["default/g","default/h"]'
    scheduler = scheduler_of("a", cpu="3")
    members = [member(f"{gang}{index}", gang=gang, groups=groups) for gang in "gh" for index in range(2)]
    submit(scheduler, *members)
    assert placed(scheduler) == []
    scheduler.log.add_node(node("b", cpu="1"))
    scheduler.run(now=20.0)
    assert placed(scheduler) == ["g0", "g1", "h0", "h1"]


def test_group_waits_for_a_gang_that_does_not_exist_yet() -> None:
    groups = '["default/g","default/h"]'
    scheduler = scheduler_of("a")
    submit(scheduler, member("g0", groups=groups), member("g1", groups=groups))
    assert placed(scheduler) == []
    submit(scheduler, member("h0", gang="h", groups=groups), member("h1", gang="h", groups=groups))
    assert placed(scheduler) == ["g0", "g1", "h0", "h1"]


def test_late_member_of_a_gang_that_runs_goes_alone() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, member("m0"), member("m1"))
    submit(scheduler, member("m2"))
    assert placed(scheduler) == ["m0", "m1", "m2"]


def test_late_member_of_an_only_waiting_gang_waits_for_others() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, member("m0", match_policy="only-waiting"), member("m1", match_policy="only-waiting"))
    submit(scheduler, member("m2", match_policy="only-waiting"))
    assert placed(scheduler) == ["m0", "m1"]
    submit(scheduler, member("m3", match_policy="only-waiting"))
    assert placed(scheduler) == ["m0", "m1", "m2", "m3"]


def test_node_that_goes_takes_the_waiting_members_with_it() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, member("m0", cpu="3", mode="NonStrict"), member("m1", cpu="3", mode="NonStrict"))
    assert len(scheduler.state.assumed.waiting) == 1
    scheduler.log.remove_node("a")
    scheduler.run()
    assert not len(scheduler.state.assumed.waiting)
    scheduler.log.add_node(node("b", cpu="8"))
    scheduler.run(now=20.0)
    assert placed(scheduler) == ["m0", "m1"]


def test_waiting_member_that_is_deleted_gives_its_node_back() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, *(member(f"m{index}", cpu="3", mode="NonStrict") for index in range(2)))
    scheduler.log.remove_pod(scheduler.state.assumed.waiting.uids()[0])
    scheduler.run()
    submit(scheduler, pod("other", {"cpu": "3"}))
    assert placed(scheduler) == ["other"]


def test_restart_in_the_middle_of_a_gang_begins_it_anew() -> None:
    scheduler = scheduler_of("a", "b")
    for each in (member("m0", least=3), member("m1", least=3), member("m2", least=3)):
        scheduler.log.add_pod(each)
    scheduler.follow()
    scheduler.decide()
    scheduler.decide()
    assert len(scheduler.state.assumed.waiting) == 2
    again = Scheduler(scheduler.log)
    load_state(again.state, b"".join(Picture(scheduler.state).pieces()))
    assert not len(again.state.assumed.waiting)
    again.run()
    assert placed(again) == ["m0", "m1", "m2"]


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_conflict_on_one_node_leaves_no_member_placed(batches: int) -> None:
    scheduler = scheduler_of("a", "b", cpu="2")
    for index in range(4):
        scheduler.log.add_pod(member(f"m{index}", least=4))
    scheduler.follow()
    for _ in range(4):
        scheduler.decide()
    for _ in range(batches):
        scheduler.send()
    # somebody else fills a node meanwhile
    other = Scheduler(scheduler.log)
    other.log.add_pod(pod("other", {"cpu": "2"}, priority=9))
    other.follow()
    other.decide()
    other.send()
    other.land()
    while scheduler.in_flight:
        scheduler.land()
    assert scheduler.conflicts == 1
    scheduler.run(now=20.0)
    assert placed(scheduler) == ["other"]


# --- laws ------------------------------------------------------------------------------------------------------------

LEAST = {"g": 2, "h": 3, "i": 2}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pod", "pod", "gone", "node", "loss", "follow", "decide", "decide", "decide", "send", "land"]),
        st.integers(0, 5),
    ),
    min_size=10,
    max_size=60,
)


def check_log(log: SmallLog, satisfied: set[str]) -> None:
    """No node is over its cpu; a gang has no member placed before so many were placed at once."""
    on: dict[str, str] = {}
    for stored in log.events:
        match CATALOGUE.read(stored):
            case PodPlaced() as event:
                assert stored.ref.id not in on
                on[stored.ref.id] = event.node
            case PodReleased():
                del on[stored.ref.id]
            case _:
                pass
    used: dict[str, int] = {}
    for where in on.values():
        used[where] = used.get(where, 0) + 1
    assert all(count <= 3 for count in used.values()), used
    for gang, least in LEAST.items():
        count = sum(uid.startswith(gang) for uid in on)
        if count >= least:
            satisfied.add(gang)
        assert count == 0 or gang in satisfied, (gang, count)


def live_uids(scheduler: Scheduler) -> Iterable[str]:
    return (uid for uid, record in scheduler.state.pods.items() if record.pod is not None)


@settings(max_examples=examples(40))
@given(STEPS, st.integers(1, 3))
def test_gang_is_placed_whole_or_not_at_all_by_two_schedulers(steps: list[Step], nodes: int) -> None:
    log = SmallLog()
    for index in range(nodes):
        log.add_node(node(f"n{index}", cpu="3"))
    both = [Scheduler(log), Scheduler(log)]
    satisfied: set[str] = set()
    submitted: dict[str, int] = {}
    now = 0.0
    for number, (what, choice) in enumerate(steps):
        scheduler = both[number % 2]
        now += 0.5
        match what:
            case "pod":
                gang = "ghi"[choice % 3]
                uid = f"{gang}{submitted.setdefault(gang, 0)}"
                submitted[gang] += 1
                log.add_pod(member(uid, gang=gang, least=LEAST[gang]))
            case "gone" if (uids := sorted(live_uids(scheduler))) and scheduler.state.log.position == len(log.events):
                log.remove_pod(uids[choice % len(uids)])
            case "node":
                log.add_node(node(f"n{choice}", cpu="3"))
            case "loss" if log.knows_node(f"n{choice}"):
                log.remove_node(f"n{choice}")
            case "follow":
                scheduler.follow(most=choice + 1)
            case "decide":
                scheduler.decide(now)
            case "send":
                scheduler.send(most=choice + 1)
            case "land" if scheduler.in_flight:
                scheduler.land(index=choice % len(scheduler.in_flight), now=now)
            case _:
                pass
        check_log(log, satisfied)
    for later in (100.0, 200.0, 1000.0, 2000.0):
        for scheduler in both:
            while scheduler.in_flight:
                scheduler.land(now=later)
                check_log(log, satisfied)
            scheduler.run(now=later)
            check_log(log, satisfied)
    assert all(record.phase is not Phase.RELEASING for record in both[0].state.pods.values())


@settings(max_examples=examples(25))
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=6), st.integers(1, 4))
def test_every_gang_that_fits_by_itself_is_placed_in_the_end(gangs: list[tuple[int, int]], nodes: int) -> None:
    """least and size of each gang; they come one after another and leave when they run."""
    log = SmallLog()
    for index in range(nodes):
        log.add_node(node(f"n{index}", cpu="2"))
    scheduler = Scheduler(log)
    for number, (least, more) in enumerate(gangs):
        size = max(least, more)
        uids = [f"g{number}-{index}" for index in range(size)]
        submit(scheduler, *(member(uid, gang=f"g{number}", least=least) for uid in uids), now=number * 1000.0)
        there = placed(scheduler)
        assert len(there) == 0 or len(there) >= least
        assert bool(there) == (least <= 2 * nodes) or len(there) >= least
        for uid in uids:
            log.remove_pod(uid)
        scheduler.run(now=number * 1000.0 + 500.0)
        assert placed(scheduler) == []
        assert not len(scheduler.state.assumed.waiting)


def test_pods_of_a_gang_keep_their_uids_apart_when_a_name_comes_back() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, member("m0"), member("m1"))
    again = member("m0")
    meta = msgspec.structs.replace(again.metadata, uid="m0-again")
    scheduler.log.remove_pod("m0")
    submit(scheduler, msgspec.structs.replace(again, metadata=meta))
    assert placed(scheduler) == ["m0-again", "m1"]
