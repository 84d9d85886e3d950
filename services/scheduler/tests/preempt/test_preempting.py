"""Preemption through the whole scheduler: who goes, who may stay, what is promised; jobs; quotas."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events import CATALOGUE
from koordcore.events.envelope import Origin
from koordcore.events.gateway import PodEvictionFailed, PodEvictionRequested
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.events.pod import PodNominated, PodPlaced, PodReleased
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod, PodStatus
from support.depth import examples
from support.scheduler.configurations import JOB_PREEMPTION
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata


def scheduler_of(*cpus: int, configuration: str = "") -> Scheduler:
    log = SmallLog()
    for index, cpu in enumerate(cpus):
        log.add_node(node(f"n{index}", cpu=str(cpu)))
    return Scheduler(log, configuration)


def submit(scheduler: Scheduler, *pods: Pod, now: float = 0.0) -> None:
    for each in pods:
        scheduler.log.add_pod(each)
    scheduler.run(now)
    scheduler.run(now + 20.0)


def where(scheduler: Scheduler) -> dict[str, str]:
    return {uid: record.node for uid, record in scheduler.state.pods.items() if record.node}


def evicted(log: SmallLog) -> list[str]:
    events = (CATALOGUE.read(stored) for stored in log.events)
    return [event.name for event in events if isinstance(event, PodEvictionRequested)]


def put(log: SmallLog, plural: str, name: str, **document: Any) -> None:
    ref = custom_ref(plural, "default", name)
    meta = {"namespace": "default", "name": name, **document.pop("metadata", {})}
    log.say(ref.kind, ref.id, CustomObjectObserved(object={"metadata": meta, **document}))


def labelled(uid: str, cpu: str, priority: int, **labels: str) -> Pod:
    return with_metadata(pod(uid, {"cpu": cpu}, priority=priority), labels=labels)


def member(uid: str, cpu: str, priority: int, least: int = 2) -> Pod:
    return with_metadata(
        pod(uid, {"cpu": cpu}, priority=priority),
        labels={keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: str(least)},
    )


def test_least_important_pods_go() -> None:
    scheduler = scheduler_of(4, 4)
    submit(scheduler, pod("a", {"cpu": "3"}, priority=5), pod("b", {"cpu": "3"}, priority=3))
    low = where(scheduler)["b"]
    submit(scheduler, pod("high", {"cpu": "2"}, priority=9))
    assert evicted(scheduler.log) == ["b"]
    assert where(scheduler)["high"] == low


def test_pod_that_becomes_unreadable_keeps_its_priority_after_a_restart_too() -> None:
    scheduler = scheduler_of(4)
    submit(scheduler, pod("prod", {"cpu": "3"}, priority=9))
    submit(scheduler, pod("prod", {"cpu": "3", "memory": "rubbish"}, priority=9), now=30.0)
    restored, folded = Scheduler(scheduler.log), Scheduler(scheduler.log)
    load_state(restored.state, b"".join(Picture(scheduler.state).pieces()))
    folded.follow()
    since = scheduler.state.pods["prod"].known_since
    for each in (scheduler, restored, folded):
        [info] = each.state.assumed.ledgers.pod_infos("n0")
        assert (info.priority, info.since) == (9, since)
    submit(scheduler, pod("low", {"cpu": "3"}, priority=5), now=60.0)
    assert evicted(scheduler.log) == []
    submit(scheduler, pod("high", {"cpu": "3"}, priority=10), now=90.0)
    assert evicted(scheduler.log) == ["prod"]


@pytest.mark.parametrize("configuration", ["", JOB_PREEMPTION])
def test_pod_is_a_victim_while_its_resize_is_on_its_way_to_the_log(configuration: str) -> None:
    scheduler = scheduler_of(4, configuration=configuration)
    submit(scheduler, pod("low", {"cpu": "1"}, priority=1))
    scheduler.log.add_pod(pod("low", {"cpu": "3"}, priority=1, nodeName="n0"))
    submit(scheduler, member("high", "3", 9, 1) if configuration else pod("high", {"cpu": "3"}, priority=9), now=30.0)
    assert evicted(scheduler.log) == ["low"]
    assert where(scheduler) == {"high": "n0"}


def test_eviction_that_the_log_did_not_store_is_requested_again_after_an_earlier_one_has_failed() -> None:
    scheduler = scheduler_of(4)
    submit(scheduler, pod("low", {"cpu": "4"}, priority=1))
    asked: dict[str, Any] = {
        "namespace": "default",
        "name": "low",
        "node": "n0",
        "initiator": "descheduler",
        "method": "evict",
    }
    scheduler.log.say("eviction", "low", PodEvictionRequested(**asked, reason="NodeTaints", message=""))
    scheduler.log.say("eviction", "low", PodEvictionFailed(reason="Forbidden"))
    scheduler.log.add_pod(pod("high", {"cpu": "4"}, priority=9))
    scheduler.follow()
    scheduler.decide(100.0)
    assert scheduler.state.nominator.evictions.keys() == {"low"}
    scheduler.state.commits.withdraw_all()
    assert not scheduler.state.nominator.evictions, "this instance leads no more, and has not said it"
    scheduler.run(200.0)
    scheduler.run(220.0)
    assert evicted(scheduler.log) == ["low", "low"]
    assert where(scheduler).keys() == {"high"}


def test_preemptor_is_attempted_again_when_the_eviction_of_its_victim_fails() -> None:
    scheduler = scheduler_of(4)
    submit(scheduler, pod("low", {"cpu": "4"}, priority=1))
    scheduler.log.add_pod(pod("high", {"cpu": "4"}, priority=9))
    scheduler.follow()
    scheduler.decide(100.0)
    taken = scheduler.state.status.next()
    assert taken is not None
    origin = Origin(causation_id="c", correlation_id="high", actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
    stored = scheduler.log.append(CATALOGUE.seal(list(taken.drafts), origin))
    assert stored is not None
    scheduler.state.status.stored(taken, [one.seq for one in stored])
    scheduler.follow()
    assert scheduler.decide(110.0) is None, "it waits for the end of its victim"
    scheduler.log.say("eviction", "low", PodEvictionFailed(reason="Forbidden"))
    scheduler.run(120.0)
    assert evicted(scheduler.log) == ["low", "low"]
    scheduler.run(140.0)
    assert where(scheduler).keys() == {"high"}


def test_budget_is_respected_when_another_node_will_do() -> None:
    scheduler = scheduler_of(4, 4)
    put(
        scheduler.log,
        "poddisruptionbudgets",
        "kept",
        spec={"selector": {"matchLabels": {"app": "kept"}}},
        status={"disruptionsAllowed": 0},
    )
    submit(scheduler, labelled("kept", "3", 1, app="kept"), labelled("other", "3", 2))
    submit(scheduler, pod("high", {"cpu": "2"}, priority=9))
    assert evicted(scheduler.log) == ["other"]


def test_preemption_keeps_to_the_nodes_of_a_hint() -> None:
    scheduler = scheduler_of(4, 4)
    submit(scheduler, pod("a", {"cpu": "3"}, priority=1), pod("b", {"cpu": "3"}, priority=2))
    target = where(scheduler)["b"]
    hint = f'{{"nodeNames": ["{target}"]}}'
    submit(scheduler, with_metadata(pod("high", {"cpu": "2"}, priority=9), annotations={keys.SCHEDULING_HINT: hint}))
    assert evicted(scheduler.log) == ["b"]
    assert where(scheduler)["high"] == target


def test_room_of_a_nominated_pod_is_kept_from_its_equals() -> None:
    scheduler = scheduler_of(4)
    submit(scheduler, pod("low", {"cpu": "4"}, priority=1))
    scheduler.log.add_pod(pod("high", {"cpu": "3"}, priority=9))
    scheduler.follow()
    scheduler.decide(30.0)
    assert scheduler.state.nominator.node_of("high") == "n0"
    scheduler.log.add_pod(pod("equal", {"cpu": "2"}, priority=9))
    scheduler.run(60.0)
    scheduler.run(90.0)
    assert where(scheduler) == {"high": "n0"}


def promised_elsewhere(uid: str, priority: int, node_name: str, **status: Any) -> Pod:
    """A pod of another scheduler, which has promised it a node."""
    document = pod(uid, {"cpu": "3"}, priority=priority, schedulerName="other")
    return msgspec.structs.replace(document, status=PodStatus(nominated_node_name=node_name, **status))


@pytest.mark.parametrize(("gate", "priority", "expected"), [(True, 9, "n1"), (True, 10, "n0"), (False, 9, "n0")])
def test_room_that_another_scheduler_has_promised_is_kept_from_lower_priorities_where_the_gate_says_so(
    gate: bool, priority: int, expected: str
) -> None:
    log = SmallLog()
    log.add_node(node("n0", cpu="4"))
    log.add_node(node("n1", cpu="2"))
    log.add_pod(promised_elsewhere("theirs", 10, "n0"))
    scheduler = Scheduler(log, gates=SchedulerGates(cross_scheduler_nomination=gate))
    submit(scheduler, pod("ours", {"cpu": "2"}, priority=priority))
    assert where(scheduler) == {"ours": expected}


def test_promise_of_another_scheduler_ends_with_the_pods_placement_or_deletion_and_is_not_ours_to_clear() -> None:
    log = SmallLog()
    log.add_node(node("n0", cpu="4"))
    for uid in ("bound", "gone", "kept"):
        log.add_pod(promised_elsewhere(uid, 10, "n0"))
    scheduler = Scheduler(log, gates=SchedulerGates(cross_scheduler_nomination=True))
    scheduler.run()
    assert len(scheduler.state.nominator) == 3
    log.add_pod(pod("bound", {"cpu": "3"}, priority=10, schedulerName="other", nodeName="n0"))
    log.remove_pod("gone")
    submit(scheduler, pod("high", {"cpu": "4"}, priority=20))
    assert [uid for uid, _, _ in scheduler.state.nominator.items()] == ["kept"]
    assert not any(stored.type == "PodNominationCleared" for stored in log.events)
    assert where(scheduler) == {"high": "n0"}


def test_job_takes_room_for_all_members_at_once() -> None:
    scheduler = scheduler_of(4, 4, 4, configuration=JOB_PREEMPTION)
    submit(scheduler, *(pod(f"low{index}", {"cpu": "4"}, priority=index) for index in range(3)))
    submit(scheduler, member("m0", "3", 9), member("m1", "3", 9), now=100.0)
    assert sorted(evicted(scheduler.log)) == ["low0", "low1"]
    assert {"m0", "m1"} <= where(scheduler).keys()
    nominated = [event for stored in scheduler.log.events if isinstance(event := CATALOGUE.read(stored), PodNominated)]
    assert {event.name for event in nominated} == {"m0", "m1"}
    assert nominated[0].message == "preempt success, alreadyWaitingForBound: 0/2"


def test_job_of_which_one_append_cannot_hold_all_facts_preempts_in_several() -> None:
    size = 334
    scheduler = scheduler_of(*[4] * size, configuration=JOB_PREEMPTION)
    submit(scheduler, *(pod(f"low{index}", {"cpu": "2"}, priority=1) for index in range(2 * size)))
    for index in range(size):
        scheduler.log.add_pod(member(f"m{index}", "3", 9, least=size))
    scheduler.follow()
    while not len(scheduler.state.status.writes):
        assert scheduler.decide(100.0) is not None
    appends: list[int] = []
    while (taken := scheduler.state.status.next()) is not None:
        appends.append(len(taken.drafts))
    assert appends == [1000, 2], "each member is nominated, and two pods leave for it"


def test_member_that_has_a_node_is_nominated_to_it_when_the_job_preempts_for_the_rest() -> None:
    scheduler = scheduler_of(4, 4, configuration=JOB_PREEMPTION)
    submit(scheduler, pod("low", {"cpu": "4"}, priority=1))
    submit(scheduler, member("m0", "3", 9), member("m1", "3", 9), now=100.0)
    assert evicted(scheduler.log) == ["low"]
    assert where(scheduler).keys() == {"m0", "m1"}
    nominated = [event for stored in scheduler.log.events if isinstance(event := CATALOGUE.read(stored), PodNominated)]
    assert nominated[0].message == "preempt success, alreadyWaitingForBound: 1/2"


def test_job_that_no_eviction_can_help_evicts_nobody() -> None:
    scheduler = scheduler_of(4, 4, configuration=JOB_PREEMPTION)
    submit(scheduler, pod("low", {"cpu": "4"}, priority=1), pod("high", {"cpu": "4"}, priority=99))
    submit(scheduler, member("m0", "3", 9), member("m1", "3", 9), now=100.0)
    assert evicted(scheduler.log) == []
    assert not len(scheduler.state.assumed.waiting)
    assert not len(scheduler.state.nominator)


def test_job_spares_pods_that_say_so() -> None:
    scheduler = scheduler_of(4, 4, configuration=JOB_PREEMPTION)
    spared = {keys.DISABLE_PREEMPTIBLE: "true"}
    submit(scheduler, labelled("spared", "4", 1, **spared), labelled("low", "4", 2))
    submit(scheduler, member("m0", "3", 9, least=1), now=100.0)
    assert evicted(scheduler.log) == ["low"]


def quota(log: SmallLog, name: str, cpu: str) -> None:
    put(log, "elasticquotas", name, spec={"min": {"cpu": cpu}, "max": {"cpu": cpu}})


def in_quota(uid: str, cpu: str, priority: int = 0, name: str = "q") -> Pod:
    return labelled(uid, cpu, priority, **{keys.QUOTA_NAME: name})


def test_quota_is_preempted_within_only() -> None:
    scheduler = scheduler_of(64)
    quota(scheduler.log, "q", "4")
    quota(scheduler.log, "other", "4")
    submit(scheduler, in_quota("stranger", "4", 0, name="other"), in_quota("low", "4", 1))
    submit(scheduler, in_quota("high", "2", 5))
    assert evicted(scheduler.log) == ["low"]
    assert where(scheduler).keys() == {"stranger", "high"}


def test_pod_that_another_scheduler_has_placed_counts_in_its_quota() -> None:
    scheduler = scheduler_of(4, 4)
    other = Scheduler(scheduler.log)
    quota(scheduler.log, "q", "4")
    scheduler.log.add_pod(in_quota("first", "4"))
    for each in (scheduler, other):
        each.follow()
        each.decide()
        each.send()
    other.land()
    scheduler.land()
    assert scheduler.conflicts == 1
    submit(scheduler, in_quota("second", "4"))
    assert where(scheduler).keys() == {"first"}


def test_pods_of_equal_priority_are_not_preempted_for_their_quota() -> None:
    scheduler = scheduler_of(64)
    quota(scheduler.log, "q", "4")
    submit(scheduler, in_quota("first", "4", 5), in_quota("second", "2", 5))
    assert evicted(scheduler.log) == []
    assert where(scheduler).keys() == {"first"}


def test_a_pod_that_its_quota_can_never_admit_does_not_keep_smaller_pods_waiting() -> None:
    scheduler = scheduler_of(64)
    quota(scheduler.log, "q", "4")
    submit(scheduler, in_quota("runs", "4"))
    submit(scheduler, in_quota("large", "8"), in_quota("small", "1"), in_quota("as-small", "1"), now=100.0)
    assert where(scheduler).keys() == {"runs"}
    scheduler.log.remove_pod("runs")
    scheduler.run(200.0)
    assert where(scheduler).keys() == {"small", "as-small"}


def test_pod_whose_node_is_deleted_is_not_placed_again_under_the_same_event_id() -> None:
    scheduler = scheduler_of(4, 4)
    log = scheduler.log
    quota(log, "q", "0")
    submit(scheduler, in_quota("p", "4"))
    quota(log, "q", "4")
    scheduler.run(100.0)
    quota(log, "q", "0")
    log.remove_node(where(scheduler)["p"])
    scheduler.run(200.0)
    quota(log, "q", "4")
    scheduler.run(300.0)
    placed = [stored.event_id for stored in log.events if isinstance(CATALOGUE.read(stored), PodPlaced)]
    assert len(placed) == len(set(placed)) == 2


PODS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.sampled_from(["", "gone"])), max_size=14)


@settings(max_examples=examples(40))
@given(PODS, st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_nodes_are_never_overfull_and_only_lower_priorities_go(
    pods: list[tuple[int, int, str]], cpus: list[int]
) -> None:
    scheduler = scheduler_of(*cpus)
    log = scheduler.log
    priorities: dict[str, int] = {}
    for number, (cpu, priority, fate) in enumerate(pods):
        uid = f"p{number}"
        priorities[uid] = priority
        submit(scheduler, pod(uid, {"cpu": str(cpu)}, priority=priority), now=number * 100.0)
        if fate and uid in scheduler.state.pods:
            log.remove_pod(uid)
            scheduler.run(number * 100.0 + 50.0)
    used: dict[str, int] = {}
    on: dict[str, tuple[str, int]] = {}
    sizes = {f"n{index}": cpu * 1000 for index, cpu in enumerate(cpus)}
    preemptors = [
        (event.name, victim.name)
        for stored in log.events
        if isinstance(event := CATALOGUE.read(stored), PodNominated)
        for victim in event.victims
    ]
    assert all(priorities[victim] < priorities[name] for name, victim in preemptors)
    for stored in log.events:
        match CATALOGUE.read(stored):
            case PodPlaced() as event:
                on[event.name] = (event.node, event.requests["cpu"])
                used[event.node] = used.get(event.node, 0) + event.requests["cpu"]
                assert used[event.node] <= sizes[event.node]
            case PodReleased() as event:
                place, cpu = on.pop(event.name)
                used[place] -= cpu
            case _:
                pass


@settings(max_examples=examples(40))
@given(PODS, st.integers(1, 8))
def test_quota_is_never_over_its_limit_with_one_scheduler(pods: list[tuple[int, int, str]], limit: int) -> None:
    scheduler = scheduler_of(64)
    quota(scheduler.log, "q", str(limit))
    for number, (cpu, priority, fate) in enumerate(pods):
        uid = f"p{number}"
        submit(scheduler, in_quota(uid, str(cpu), priority), now=number * 100.0)
        if fate and uid in scheduler.state.pods:
            scheduler.log.remove_pod(uid)
            scheduler.run(number * 100.0 + 50.0)
    used = 0
    on: dict[str, int] = {}
    for stored in scheduler.log.events:
        match CATALOGUE.read(stored):
            case PodPlaced() as event:
                on[event.name] = event.requests["cpu"]
                used += on[event.name]
                assert used <= limit * 1000
            case PodReleased() as event:
                used -= on.pop(event.name)
            case _:
                pass
