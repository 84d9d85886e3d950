"""Pods that are resized where they run: what counts, what the log is told, and who is woken."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.loop.folding.log import fold_ahead
from koord_scheduler.domain.loop.queue.queued_pod import QueueState
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koord_scheduler.domain.replay.state_hash import state_hash
from koordcore.events import CATALOGUE
from koordcore.events.envelope import StoredEvent
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.events.pod import PodReallocated
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.protocol.pod_resources import pod_requests
from koordcore.state.aggregates import NodeLedger
from support.scheduler.placements import log_with, picture, placements
from support.scheduler.reservations import fold_of, reservation, reserve
from support.scheduler.scheduling import Scheduler, SmallLog, pod, with_metadata

Json = dict[str, object]

DEFERRED: Json = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
INFEASIBLE: Json = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}


def resized(uid: str, wanted: str, actual: str = "", allocated: str = "", *conditions: Json, node: str = "n") -> Pod:
    """A pod on a node whose cpu is resized; "": the kubelet has told nothing."""
    found = pod(uid, {"cpu": wanted}, nodeName=node)
    told: Json = {"name": "main"}
    if actual:
        told |= {"resources": {"requests": {"cpu": actual}}, "allocatedResources": {"cpu": allocated or actual}}
    status = {"phase": "Running", "containerStatuses": [told], "conditions": list(conditions)}
    return msgspec.structs.replace(found, status=pod_from_json({"status": status}).status)


def in_log(log: SmallLog, uid: str = "p", node: str = "n") -> int:
    """Milli-cores of a pod in the ledger of its node."""
    return fold_of(log).of_kind(NodeLedger)[node].pods[uid].requests.get("cpu", 0)


def counted(scheduler: Scheduler, node: str = "n") -> int:
    """Milli-cores that count on a node."""
    row = scheduler.state.nodes.row(node)
    assert row is not None
    return scheduler.state.nodes.amounts_on(row)["cpu"][1]


def restarted(scheduler: Scheduler) -> Scheduler:
    """Another scheduler that begins with a snapshot; asserts that it holds the same state, as a fold from zero does."""
    restored = Scheduler(scheduler.log)
    load_state(restored.state, b"".join(Picture(scheduler.state).pieces()))
    assert picture(restored.state) == picture(scheduler.state)
    folded = Scheduler(scheduler.log)
    folded.follow(scheduler.state.log.position)
    assert state_hash(restored.state) == state_hash(scheduler.state) == state_hash(folded.state)
    assert set(restored.state.assumed.to_resize) == set(scheduler.state.assumed.to_resize)
    return restored


def told(log: SmallLog) -> list[StoredEvent]:
    return [each for each in log.events if isinstance(CATALOGUE.read(each), PodReallocated)]


def test_a_resize_up_takes_the_room_and_is_a_fact_of_the_ledger() -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(resized("p", "3"))
    log.add_pod(pod("q", {"cpu": "3"}))
    scheduler.run()
    assert placements(log) == {"p": "n"}
    assert (in_log(log), counted(scheduler)) == (3000, 3000)
    [fact] = told(log)
    event = CATALOGUE.read(fact)
    assert isinstance(event, PodReallocated)
    assert (event.reason, event.node, event.requests) == ("resized", "n", {"cpu": 3000})
    restarted(scheduler)


def test_a_resize_down_wakes_the_pods_that_wait_for_the_node() -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "3"}))
    log.add_pod(pod("q", {"cpu": "2"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert placements(log) == {"p": "n"}
    log.add_pod(resized("p", "1", "3"))
    scheduler.run()
    assert placements(log) == {"p": "n"}, "the kubelet has not taken the rest away yet"
    assert told(log) == []
    log.add_pod(resized("p", "1", "3", "1"))
    scheduler.run()
    assert placements(log) == {"p": "n"}, "what is in force counts, too"
    log.add_pod(resized("p", "1", "1"))
    scheduler.run(now=60.0)
    assert placements(log) == {"p": "n", "q": "n"}
    assert (in_log(log), counted(scheduler)) == (1000, 3000)


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (resized("p", "3", "1", "1", DEFERRED), 3000),
        (resized("p", "3", "1", "3"), 3000),
        (resized("p", "64", "1", "1", INFEASIBLE), 1000),
        (resized("p", "64", "1", "2", INFEASIBLE), 2000),
    ],
)
def test_each_state_of_a_resize_counts_as_with_kube_scheduler(change: Pod, counts: int) -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(change)
    scheduler.run()
    assert (in_log(log), counted(scheduler)) == (counts, counts)
    assert len(told(log)) == (counts != 1000)


def test_equal_pods_with_other_statuses_are_told_apart() -> None:
    log = log_with("n", "m")
    for uid, node in (("p", "n"), ("q", "m")):
        log.add_pod(resized(uid, "1", node=node))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(resized("q", "1", "3", node="m"))
    scheduler.run()
    assert (counted(scheduler, "n"), counted(scheduler, "m")) == (1000, 3000)


@pytest.mark.parametrize(("before", "after"), [("1", "3"), ("3", "1")])
def test_a_pod_of_another_scheduler_counts_alike_after_a_restart(before: str, after: str) -> None:
    log = log_with("n")
    log.add_pod(resized("p", before))
    log.add_pod(pod("q", {"cpu": "2"}))
    scheduler = Scheduler(log)
    scheduler.run()
    first = state_hash(scheduler.state)
    log.add_pod(resized("p", after))
    scheduler.run(now=60.0)
    assert state_hash(scheduler.state) != first
    assert placements(log) == {"q": "n"}
    assert counted(scheduler) == 1000 * int(after) + 2000
    assert told(log) == [], "the log has not placed it"
    restarted(scheduler)


def test_a_pod_of_another_scheduler_that_becomes_unreadable_counts_alike_after_a_restart() -> None:
    log = log_with("n")
    scheduler = Scheduler(log)
    for cpu in ("1", "zz"):
        log.add_pod(pod("p", {"cpu": cpu}, nodeName="n"))
        scheduler.run()
    assert counted(scheduler) == counted(restarted(scheduler)) == 0


@pytest.mark.parametrize("cpu", ["1", "2"], ids=["placed", "resized"])
def test_a_placed_pod_that_becomes_unreadable_counts_as_after_a_restart_until_it_can_be_read(cpu: str) -> None:
    log = log_with("n")
    ref = custom_ref("elasticquotas", "default", "team")
    document = {"metadata": {"namespace": "default", "name": "team"}, "spec": {"max": {"cpu": "8"}}}
    log.say(ref.kind, ref.id, CustomObjectObserved(object=document))
    labels = {keys.QUOTA_NAME: "team", keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "1"}
    scheduler = Scheduler(log)

    def change(found: Pod) -> tuple[int, int, list[str]]:
        """What it counts with on its node, of how many pods the quota knows, and which the gang knows."""
        log.add_pod(with_metadata(found, labels=labels))
        scheduler.run()
        restored = restarted(scheduler)
        both = [
            (counted(each), len(each.state.books.quotas.pods), sorted(each.state.books.gangs.roster.members))
            for each in (scheduler, restored)
        ]
        assert both[0] == both[1]
        return both[0]

    assert change(pod("p", {"cpu": "1"})) == (1000, 1, ["p"])
    assert change(resized("p", cpu)) == (1000 * int(cpu), 1, ["p"])
    assert change(resized("p", cpu, "zz")) == (1000 * int(cpu), 0, [])
    assert change(resized("p", "3")) == (3000, 1, ["p"])


def test_the_hash_of_the_state_contains_what_counts_on_nodes() -> None:
    def state_with(cpu: str) -> str:
        log = log_with("n")
        log.add_pod(resized("p", cpu))
        scheduler = Scheduler(log)
        scheduler.follow()
        return state_hash(scheduler.state)

    assert state_with("1") == state_with("1") != state_with("3")


def test_a_leader_that_follows_tells_what_the_last_one_did_not() -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler, standby = Scheduler(log), Scheduler(log)
    scheduler.run()
    standby.follow()
    log.add_pod(resized("p", "3"))
    scheduler.follow()
    standby.follow()
    restored = restarted(scheduler)
    assert (in_log(log), counted(scheduler), counted(standby), counted(restored)) == (1000, 3000, 3000, 3000)
    restored.run()
    assert in_log(log) == 3000
    for each in (scheduler, standby):
        each.run()
        assert counted(each) == 3000
        restarted(each)
    assert len(told(log)) == 1


def test_a_placement_on_its_way_is_withdrawn_if_a_resize_takes_its_room() -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(pod("q", {"cpu": "3"}))
    scheduler.follow()
    scheduler.decide()
    assert len(scheduler.state.assumed.outbox) == 1
    log.add_pod(resized("p", "2"))
    scheduler.run()
    assert placements(log) == {"p": "n"}
    assert counted(scheduler) == 2000


def test_a_pod_that_is_changed_while_its_placement_is_on_its_way_counts_with_the_change() -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.follow()
    scheduler.decide()
    scheduler.send()
    log.add_pod(pod("p", {"cpu": "3"}))
    scheduler.follow()
    assert counted(scheduler) == 3000
    scheduler.land()
    scheduler.run()
    assert placements(log) == {"p": "n"}
    assert (in_log(log), counted(scheduler)) == (3000, 3000)


def test_a_resize_that_the_log_refuses_is_told_again_under_another_id() -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(resized("p", "3"))
    scheduler.follow()
    assert scheduler.state.assumed.resize_due() == 1
    scheduler.send()
    other = pod("other", {"cpu": "500m"})
    log.add_pod(other)
    second = Scheduler(log)
    second.state.assumed.to_resize.clear()
    second.follow()
    second.decide()
    second.send()
    second.land()
    scheduler.land()
    assert (scheduler.conflicts, len(told(log))) == (1, 0)
    scheduler.run()
    assert (in_log(log), counted(scheduler), len(told(log))) == (3000, 3500, 1)


def test_a_scheduler_that_knows_the_ledger_before_the_object_does_not_tell_the_old_amount_again() -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "3"}))
    scheduler, behind = Scheduler(log), Scheduler(log)
    scheduler.run()
    behind.follow()
    log.add_pod(resized("p", "1"))
    scheduler.run()
    for stored in log.events[behind.state.log.position :]:
        if stored.ref.kind in ("node", "pod"):  # what is read ahead after a conflict
            fold_ahead(behind.state, stored)
    assert behind.state.assumed.resize_due() == 0
    behind.run()
    assert (in_log(log), counted(behind), len(told(log))) == (1000, 1000, 1)


def test_up_and_down_again_are_facts_with_ids_of_their_own() -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    for cpu in ("3", "1", "3", "1"):
        log.add_pod(resized("p", cpu))
        scheduler.run()
        assert in_log(log) == 1000 * int(cpu)
        restarted(scheduler)
    ids = [each.event_id for each in log.events if each.ref.kind in ("pod", "node")]
    assert len(set(ids)) == len(ids)
    assert len(told(log)) == 4


def test_a_resized_pod_that_is_deleted_counts_with_what_the_log_has_until_it_is_released() -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(resized("p", "3"))
    log.remove_pod("p")
    scheduler.follow()
    restored = Scheduler(log)
    load_state(restored.state, b"".join(Picture(scheduler.state).pieces()))
    assert counted(scheduler) == counted(restored) == 1000
    assert state_hash(scheduler.state) == state_hash(restored.state)
    scheduler.run()
    assert (placements(log), told(log)) == ({}, [])


def test_an_owner_that_shrinks_leaves_the_rest_to_its_reservation() -> None:
    log = log_with("n")
    reserve(log, reservation(requests={"cpu": "3"}, allocateOnce=False))
    owner = with_metadata(pod("p", {"cpu": "2"}), labels={"app": "web"})
    log.add_pod(owner)
    scheduler = Scheduler(log)
    scheduler.run()
    assert counted(scheduler) == fold_of(log).of_kind(NodeLedger)["n"].requested["cpu"] == 3000
    for cpu, requested in (("1", 3000), ("3", 5000)):
        log.add_pod(with_metadata(resized("p", cpu), labels={"app": "web"}))
        scheduler.run()
        ledger = fold_of(log).of_kind(NodeLedger)["n"]
        used = ledger.pods["p"].allocation.reservation
        assert used is not None
        assert used.amounts == {"cpu": 1000}
        assert counted(scheduler) == ledger.requested["cpu"] == requested
        restarted(scheduler)


def test_a_resize_counts_in_the_pods_quota_as_on_its_node() -> None:
    log = log_with("n", cpu="64")
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(resized("p", "2", "3"))
    scheduler.run()
    quotas = scheduler.state.books.quotas
    assert quotas.pods["p"].facts.requests["cpu"] == counted(scheduler) == in_log(log) == 3000


def test_a_resize_down_wakes_the_pods_that_wait_for_the_quota() -> None:
    log = log_with("n", cpu="64")
    ref = custom_ref("elasticquotas", "default", "team")
    spec = {"max": {"cpu": "4", "memory": "64Gi"}, "min": {"cpu": "4"}}
    document = {"metadata": {"namespace": "default", "name": "team"}, "spec": spec}
    log.say(ref.kind, ref.id, CustomObjectObserved(object=document))
    labels = {keys.QUOTA_NAME: "team"}
    for uid, cpu in (("p", "3"), ("q", "2")):
        log.add_pod(with_metadata(pod(uid, {"cpu": cpu}), labels=labels))
    scheduler = Scheduler(log)
    scheduler.run()
    assert placements(log) == {"p": "n"}
    log.add_pod(with_metadata(resized("p", "1", "1"), labels=labels))
    scheduler.run(now=30.0)
    assert placements(log) == {"p": "n", "q": "n"}


def test_pods_that_plugins_change_are_hashed_as_they_are_written() -> None:
    log = log_with("n", cpu="64")
    changed = {keys.REPLACE_RESOURCES: "cpu:"}
    log.add_pod(with_metadata(pod("p", {"cpu": "1"}), annotations=changed))
    log.add_pod(with_metadata(resized("others", "2"), annotations=changed))
    scheduler = Scheduler(log, gates=SchedulerGates(replace_resources_transformer=True))
    scheduler.run()
    log.add_pod(with_metadata(resized("p", "3"), annotations=changed))
    scheduler.run()
    assert "cpu" not in scheduler.state.nodes.amounts_on(0) or counted(scheduler) == 0
    assert told(log) == []
    restarted(scheduler)  # by schedulers without the gate


def test_a_pod_that_only_plugins_make_readable_is_placed() -> None:
    log = log_with("n")
    changed = {keys.REPLACE_RESOURCES: "example.com/x:"}
    log.add_pod(with_metadata(pod("p", {"cpu": "1", "example.com/x": "zz"}), annotations=changed))
    scheduler = Scheduler(log, gates=SchedulerGates(replace_resources_transformer=True))
    scheduler.run()
    assert placements(log) == {"p": "n"}


steps = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("123"), st.sampled_from(" 123")), max_size=12)


@example(changes=[(0, "2", " "), (0, "1", " ")], by_others=False)  # resized back before the log was told
@given(changes=steps, by_others=st.booleans())
def test_at_rest_log_and_schedulers_count_every_pod_as_its_object_says(
    changes: list[tuple[int, str, str]], by_others: bool
) -> None:
    log = log_with("n", "m", cpu="16")
    for number in range(3):
        log.add_pod(pod(f"p{number}", {"cpu": "1"}, nodeName="m" if by_others and not number else ""))
    scheduler, standby = Scheduler(log), Scheduler(log)
    scheduler.run()
    wanted = {f"p{number}": pod_requests(pod("", {"cpu": "1"}))["cpu"] for number in range(3)}
    where = {**({"p0": "m"} if by_others else {}), **placements(log)}
    for number, cpu, actual in changes:
        uid = f"p{number}"
        changed = resized(uid, cpu, actual.strip(), node=where[uid])
        wanted[uid] = pod_requests(changed)["cpu"]
        log.add_pod(changed)
        if number:
            scheduler.run()
            standby.follow()
        else:
            scheduler.follow()
    restarted(scheduler)
    scheduler.run()
    standby.follow()
    restarted(standby)
    for node in ("n", "m"):
        total = sum(amount for uid, amount in wanted.items() if where[uid] == node)
        if total:
            assert counted(scheduler, node) == counted(standby, node) == total
    assert {uid: in_log(log, uid, node) for uid, node in placements(log).items()} == {
        uid: wanted[uid] for uid in placements(log)
    }
    assert scheduler.state.queue.counts()[QueueState.ACTIVE] == 0
