"""The fold, assumptions on top of it, and what the log's answers make of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any, Final

from hypothesis import event, given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.cycle.deciding import decide_next
from koord_scheduler.domain.cycle.pod_explanations import abandoned
from koord_scheduler.domain.folding.log import fold
from koord_scheduler.domain.pods.record import Phase
from koord_scheduler.domain.queue.queued_pod import QueueState
from koord_scheduler.domain.replay.comparing import facts_digest
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koord_scheduler.domain.state.commits import MOST_REFOLDS, Abandoned
from koord_scheduler.domain.state.state import SchedulerState
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef
from koordcore.events.management.adjustment import NodeHealthAssessed
from koordcore.events.objects.custom import CustomObjectObserved, custom_ref
from koordcore.events.objects.gateway import PodBindFailed
from koordcore.events.scheduling.explanations import DecisionAbandoned
from koordcore.events.scheduling.node_ledger import NodeResourcesReturned, NodeResourcesTaken
from koordcore.events.scheduling.pod import PodNominated, PodNominationCleared, PodPlaced, PodReleased
from koordcore.protocol import keys
from koordcore.protocol.objects import pod_from_json
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod, with_metadata


def picture(state: SchedulerState) -> dict[str, Any]:
    """Everything that a decision depends on, by name instead of by row."""
    nodes = state.nodes
    return {
        "position": state.log.position,
        "nodes": {
            name: {
                **nodes.amounts_on(row),
                "non_zero": nodes.non_zero[:, row].tolist(),
                "pods": sorted(state.assumed.ledgers.pods(name)),
            }
            for name in sorted(nodes.node_names())
            if (row := nodes.row(name)) is not None
        },
        "pods": {uid: (pod.phase, pod.node, pod.seq) for uid, pod in sorted(state.pods.items())},
        "known": {
            (name, pod_info.uid)
            for name in nodes.node_names()
            for pod_info in state.assumed.ledgers.pod_infos(name)
            if pod_info.kind is not None
        },
        "nominations": sorted(state.nominator.items()),
        "evictions": state.nominator.evictions,
    }


def log_with(*names: str, **node_fields: str) -> SmallLog:
    log = SmallLog()
    for name in names:
        log.add_node(node(name, **node_fields))  # type: ignore[arg-type]
    return log


def placements(log: SmallLog) -> dict[str, str]:
    """Pod -> node by the log; asserts that no pod is placed twice."""
    where: dict[str, str] = {}
    for stored in log.events:
        match CATALOGUE.read(stored):
            case PodPlaced(node=name):
                assert stored.ref.id not in where, f"{stored.ref.id} is placed twice"
                where[stored.ref.id] = name
            case PodReleased():
                del where[stored.ref.id]
            case _:
                pass
    return where


def test_pod_is_placed_by_two_facts_in_one_append() -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    placed, taken = log.events[-2:]
    assert (placed.type, taken.type) == ("PodPlaced", "NodeResourcesTaken")
    body = CATALOGUE.read(placed)
    assert isinstance(body, PodPlaced)
    assert (body.node, body.attempt, body.requests) == ("n", 1, {"cpu": 1000})
    assert body.explanation.based_on.ev == 2
    assert scheduler.state.pods["p"].phase is Phase.PLACED


def test_a_scheduler_that_does_not_lead_keeps_nothing_of_pods_that_are_gone() -> None:
    log = log_with("n")
    standby = Scheduler(log)
    for number in range(3):
        gated, nominated = f"g{number}", f"p{number}"
        log.add_pod(with_metadata(pod(gated), labels={keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "2"}))
        log.add_pod(pod(nominated, {"cpu": "4"}))
        about: dict[str, Any] = {"namespace": "default", "name": nominated, "node": "n"}
        log.say("pod", nominated, PodNominated(**about, victims=[], plugin="DefaultPreemption", candidates=1))
        standby.follow()
        assert standby.state.queue.gated.keys() == {gated}
        log.remove_pod(gated)
        log.remove_pod(nominated)
        log.say("pod", nominated, PodNominationCleared(**about, reason="deleted"))
        standby.follow()
    assert not standby.state.queue.gated
    assert not len(standby.state.status.writes), "the leader has said that they are no longer nominated"
    assert not standby.state.pods


def test_an_object_that_stays_malformed_does_not_add_to_the_state_for_ever() -> None:
    log = log_with("n")
    ref = custom_ref("elasticquotas", "default", "q")
    for number in range(1200):
        meta = {"namespace": "default", "name": "q", "generation": number}
        log.say(ref.kind, ref.id, CustomObjectObserved(object={"metadata": meta, "spec": {"max": "nonsense"}}))
    scheduler = Scheduler(log)
    scheduler.follow()
    assert 0 < len(scheduler.state.cluster.warnings) <= 1000


def test_pods_of_one_node_are_merged_into_one_fact_of_the_node() -> None:
    log = log_with("n")
    for uid in "abc":
        log.add_pod(pod(uid, {"cpu": "1"}))
    Scheduler(log).run()
    taken = [CATALOGUE.read(stored) for stored in log.events if stored.ref.kind == "node"]
    assert [[item.uid for item in event.pods] for event in taken if isinstance(event, NodeResourcesTaken)] == [
        ["a", "b", "c"]
    ]


def test_assumption_taken_back_leaves_what_was_there() -> None:
    log = log_with("n", "m")
    log.add_pod(pod("p", {"cpu": "1", "memory": "1Gi"}))
    scheduler = Scheduler(log)
    scheduler.follow()
    before = picture(scheduler.state)
    scheduler.decide()
    assert picture(scheduler.state) != before
    [work] = scheduler.state.assumed.outbox.take().works
    scheduler.state.commits.refused(work, 0.0)
    assert picture(scheduler.state) == before
    assert scheduler.state.queue.counts()[QueueState.ACTIVE] == 1
    assert len(scheduler.state.assumed.outbox) == 0


def test_second_work_for_a_node_waits_for_the_first() -> None:
    log = log_with("n")
    for uid in "ab":
        log.add_pod(pod(uid, {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.follow()
    scheduler.decide()
    scheduler.send()
    scheduler.decide()
    assert scheduler.state.assumed.outbox.take().works == []
    scheduler.land()
    scheduler.send()
    scheduler.land()
    assert placements(log) == {"a": "n", "b": "n"}


def test_our_own_facts_that_the_follower_brings_change_nothing() -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    known = picture(scheduler.state)
    again = Scheduler(log)
    again.follow()
    assert picture(again.state) == known


def test_pod_deleted_while_its_placement_is_in_flight_is_released() -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.follow()
    scheduler.decide()
    scheduler.send()
    log.remove_pod("p")
    scheduler.follow()
    scheduler.land()
    scheduler.run()
    assert placements(log) == {}
    assert [type(CATALOGUE.read(stored)) for stored in log.events[-2:]] == [PodReleased, NodeResourcesReturned]
    assert scheduler.state.pods == {}
    assert int(scheduler.state.nodes.requested.sum()) == 0


def test_pods_of_a_node_that_is_gone_are_placed_elsewhere() -> None:
    log = log_with("n")
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.remove_node("n")
    scheduler.run()
    assert placements(log) == {}
    released = [event for stored in log.events if isinstance(event := CATALOGUE.read(stored), PodReleased)]
    assert [event.reason for event in released] == ["node-gone"]
    log.add_node(node("m"))
    scheduler.run(now=20.0)
    assert placements(log) == {"p": "m"}


def test_binding_that_fails_again_and_again_is_tried_after_longer_and_longer_back_offs() -> None:
    log = SmallLog()
    log.add_node(node("a"))
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    now = 0.0
    for back_off in (1.0, 2.0, 4.0, 8.0, 10.0):
        scheduler.run(now)
        placed = scheduler.state.pods["p"]
        assert placed.node == "a"
        log.say("podspec", "p", PodBindFailed(node="a", placement=placed.seq, reason="NodeLocked", message="held"))
        scheduler.run(now)
        scheduler.run(now + back_off - 0.1)
        assert placed.node == ""
        now += back_off
    released = [event for event in map(CATALOGUE.read, log.events) if isinstance(event, PodReleased)]
    assert [event.reason for event in released] == ["bind-failed"] * 5
    ids = [stored.event_id for stored in log.events if stored.ref.kind == "pod"]
    assert len(set(ids)) == len(ids) == 10, "the log takes an event id once"


def test_deleting_a_pod_makes_room_for_a_waiting_one() -> None:
    log = log_with("n", cpu="1")
    log.add_pod(pod("a", {"cpu": "1"}))
    log.add_pod(pod("b", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert placements(log) == {"a": "n"}
    log.remove_pod("a")
    scheduler.run(now=5.0)
    assert placements(log) == {"b": "n"}


def test_overcommit_lets_best_effort_pods_run() -> None:
    log = log_with("n")
    log.add_pod(pod("be", {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "1Gi"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert placements(log) == {}
    log.set_batch("n", 1000, 1 << 31)
    scheduler.run(now=5.0)
    assert placements(log) == {}
    log.set_batch("n", 2000, 1 << 31)
    scheduler.run(now=10.0)
    assert placements(log) == {"be": "n"}


def test_deprecated_resource_names_and_reserved_resources_are_understood() -> None:
    log = SmallLog()
    reserved = {"node.koordinator.sh/reservation": '{"resources":{"cpu":"3"}}'}
    log.add_node(node("n", annotations=reserved, more={"koordinator.sh/batch-cpu": "500"}))
    log.add_pod(pod("old", {"koordinator.sh/batch-cpu": "500"}))
    log.add_pod(pod("one", {"cpu": "1"}))
    log.add_pod(pod("more", {"cpu": "1m"}))
    Scheduler(log).run()
    assert placements(log) == {"old": "n", "one": "n"}


def test_snapshot_keeps_what_decides() -> None:
    log = log_with("n", "m", cpu="2")
    log.set_batch("n", 500, 1 << 30)
    for uid in ("a", "b", "bound"):
        log.add_pod(pod(uid, {"cpu": "1"}, nodeName="m" if uid == "bound" else ""))
    log.add_pod(pod("be", {"kubernetes.io/batch-cpu": "600"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.remove_node("m")
    scheduler.follow()
    restored = Scheduler(log)
    load_state(restored.state, b"".join(Picture(scheduler.state).pieces()))
    assert picture(restored.state) == picture(scheduler.state)
    assert restored.state.assumed.to_release == scheduler.state.assumed.to_release
    assert restored.state.queue.get("be") is not None
    log.set_batch("n", 600, 1 << 30)
    restored.run(now=20.0)
    assert placements(log)["be"] == "n"


def test_pod_that_the_api_has_bound_counts_once() -> None:
    log = log_with("n", cpu="2")
    log.add_pod(pod("bound", {"cpu": "1"}, nodeName="n"))
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(pod("p", {"cpu": "1"}, nodeName="n"))  # the gateway has carried our placement out
    log.add_pod(pod("q", {"cpu": "1"}))
    scheduler.run()
    assert placements(log) == {"p": "n"}
    row = scheduler.state.nodes.row("n")
    assert row is not None
    assert scheduler.state.nodes.requested[:2, row].tolist() == [2, 2000]


def test_finished_pod_does_not_count() -> None:
    log = log_with("n", cpu="1")
    log.add_pod(pod("a", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    done = pod("a", {"cpu": "1"})
    done.status.phase = "Succeeded"
    log.add_pod(done)
    log.add_pod(pod("b", {"cpu": "1"}))
    scheduler.run(now=5.0)
    scheduler.run(now=7.0)  # its first attempt came before the release
    assert placements(log) == {"b": "n"}


def test_pods_of_other_schedulers_are_left_alone() -> None:
    log = log_with("n")
    log.add_pod(pod("theirs", schedulerName="somebody"))
    labelled = pod("labelled")
    labelled.metadata.labels["scheduling.koordinator.sh/scheduler-name"] = "somebody"
    log.add_pod(labelled)
    log.add_pod(pod("gated", schedulingGates=[{"name": "wait"}]))
    log.add_pod(pod("ours", schedulerName="koord-scheduler"))
    scheduler = Scheduler(log)
    scheduler.run()
    assert placements(log) == {"ours": "n"}
    log.add_pod(pod("gated"))
    scheduler.run()
    assert placements(log) == {"ours": "n", "gated": "n"}


def test_pod_whose_request_is_no_quantity_harms_nobody() -> None:
    log = log_with("n")
    log.add_pod(pod("bad", {"cpu": "much"}))
    log.add_pod(pod("good", {"cpu": "1"}))
    Scheduler(log).run()
    assert placements(log) == {"good": "n"}


def test_decision_that_is_refused_eight_times_is_abandoned_for_a_while() -> None:
    log = log_with("n")
    log.add_pod(pod("p"))
    scheduler = Scheduler(log)
    scheduler.follow()
    given_up: list[Abandoned] = []
    for _ in range(MOST_REFOLDS):
        assert not given_up
        scheduler.decide()
        [work] = scheduler.state.assumed.outbox.take().works
        given_up = scheduler.state.commits.refused(work, now=100.0)
    assert [type(abandoned(*each).event) for each in given_up] == [DecisionAbandoned]
    assert decide_next(scheduler.state, 100.0) is None
    assert scheduler.state.queue.counts()[QueueState.BACKOFF] == 1


def test_unschedulable_pods_do_not_keep_the_scheduler_busy() -> None:
    log = log_with("n", cpu="1")
    for number in range(300):
        log.add_pod(pod(f"p{number}", {"cpu": "2"}))
    scheduler = Scheduler(log)
    scheduler.run()
    attempts = sum(1 for _ in iter(scheduler.decide, None))
    assert attempts == 0
    log.add_node(node("m", cpu="2"))
    scheduler.follow()
    tried = list(iter(lambda: scheduler.decide(60.0), None))
    assert len(tried) == 1  # the one that fits; for the next of its kind there is no room again


@dataclass(frozen=True)
class Op:
    """One step of a random history; numbers choose among what exists."""

    what: str
    who: int
    number: int


STEPS: Final = (
    *("add_node", "remove_node", "add_pod", "add_pod", "add_pod", "remove_pod", "grow", "release"),
    *("follow", "follow", "follow_some", "decide", "decide", "decide", "send", "send", "land", "land", "land_last"),
)


def some_history(seed: int) -> list[Op]:
    """Steps of two schedulers and their surroundings, enough of them that pods are placed, refused and released."""
    random = Random(seed)
    history = [Op("add_node", 0, 0), Op("add_node", 0, 1)]
    return history + [Op(random.choice(STEPS), random.randrange(2), random.randrange(8)) for _ in range(150)]


def check_ledgers(log: SmallLog, allocatable: dict[str, dict[str, int]]) -> None:
    """No node holds more than it ever had (allocatable only grows here), and no pod is on two nodes."""
    held: dict[str, dict[str, dict[str, int]]] = {}
    for stored in log.events:
        match CATALOGUE.read(stored):
            case NodeResourcesTaken(pods=pods):
                on_node = held.setdefault(stored.ref.id, {})
                for item in pods:
                    assert item.uid not in on_node
                    on_node[item.uid] = item.requests
            case NodeResourcesReturned(pods=uids):
                for uid in uids:
                    del held[stored.ref.id][uid]
            case _:
                pass
    for name, pods in held.items():
        for resource, most in allocatable[name].items():
            total = len(pods) if resource == "pods" else sum(requests.get(resource, 0) for requests in pods.values())
            assert total <= most, f"{name}: {resource} {total} > {most}"
    everywhere = [uid for pods in held.values() for uid in pods]
    assert sorted(everywhere) == sorted(set(everywhere))
    assert {uid: name for name, pods in held.items() for uid in pods} == placements(log)


class Painted(Scheduler):
    """Pictures of its state are taken down while it works, a piece at each step."""

    def __init__(self, log: SmallLog) -> None:
        super().__init__(log)
        self._pictures: list[tuple[Picture, Iterator[bytes], list[bytes]]] = []

    def begin_picture(self) -> None:
        taken = Picture(self.state)
        self._pictures.append((taken, taken.pieces(), []))

    def paint(self) -> None:
        for _, coming, pieces in self._pictures:
            pieces += islice(coming, 1)

    def painted(self) -> list[bytes]:
        return [b"".join((*pieces, *coming)) for _, coming, pieces in self._pictures]

    def follow(self, most: int | None = None) -> None:
        for stored in self.log.events[self.state.log.position :][:most]:
            for taken, _, _ in self._pictures:
                taken.keep(stored.ref)
            fold(self.state, stored)
        self.state.hints.wake()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32).map(some_history))
def test_two_schedulers_in_any_interleaving(ops: list[Op]) -> None:
    log = SmallLog()
    schedulers = [Painted(log), Painted(log)]
    allocatable: dict[str, dict[str, int]] = {}
    alive: set[str] = set()
    pods: set[str] = set()
    submitted, now = 0, 0.0
    for step, op in enumerate(ops):
        scheduler = schedulers[op.who]
        name = f"n{op.number % 3}"
        match op.what:
            case "add_node" | "grow":
                known = allocatable.setdefault(name, {"cpu": 1000, "pods": 2})
                if op.what == "grow":
                    known["cpu"] += 1000
                log.add_node(node(name, cpu=f"{known['cpu']}m", pods=str(known["pods"])))
                alive.add(name)
            case "remove_node":
                if name in alive:
                    alive.remove(name)
                    log.remove_node(name)
            case "add_pod":
                uid = f"p{submitted}"
                submitted += 1
                pods.add(uid)
                log.add_pod(pod(uid, {"cpu": f"{300 * (1 + op.number % 3)}m"}, priority=op.number % 2))
            case "remove_pod":
                if pods:
                    uid = sorted(pods)[op.number % len(pods)]
                    pods.remove(uid)
                    log.remove_pod(uid)
            case "follow":
                scheduler.follow()
            case "follow_some":
                scheduler.follow(op.number)
            case "decide":
                now += 1.0
                scheduler.decide(now)
            case "release":
                scheduler.state.assumed.release_due()
            case "send":
                scheduler.send(1 + op.number)
            case "land" | "land_last":
                if scheduler.in_flight:
                    scheduler.land(0 if op.what == "land" else -1, now)
            case _:
                raise AssertionError(op)
        if step % 7 == 0:
            check_ledgers(log, allocatable)
        for each in schedulers:
            each.paint()
        if step % 31 == 0:
            scheduler.begin_picture()
    event(f"placed and refused some: {bool(placements(log)) and any(one.conflicts for one in schedulers)}")
    for scheduler in schedulers:
        scheduler.send()
        while scheduler.in_flight:
            scheduler.land(now=now)
    for scheduler in schedulers * 6:  # preemption makes room only for the next round
        now += 400.0
        scheduler.run(now)
    check_ledgers(log, allocatable)
    assert set(placements(log).values()) <= alive
    fresh = SchedulerState(frameworks())
    for stored in log.events:
        fold(fresh, stored)
    for data in [data for scheduler in schedulers for data in scheduler.painted()]:
        restored = SchedulerState(frameworks())
        load_state(restored, data)
        for stored in log.events[restored.log.position :]:
            fold(restored, stored)
        assert picture(restored) == picture(fresh)
        assert facts_digest(restored) == facts_digest(fresh)
    for scheduler in schedulers:
        scheduler.follow()
        assert picture(scheduler.state) == picture(fresh)
        for uid in (pods & scheduler.state.pods.keys()) - placements(log).keys():
            subject = scheduler.state.pods[uid].subject
            assert subject is not None
            assert not scheduler.state.has_room(subject), f"{uid} fits and was left waiting"


def test_builder_reads_the_pod_as_written() -> None:
    assert pod("x", {"cpu": "1"}) == pod_from_json(
        {
            "metadata": {"namespace": "default", "name": "x", "uid": "x"},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}], "priority": 0},
        }
    )


def test_unhealthy_node_is_taken_last_and_its_loss_is_told() -> None:
    log = log_with("a", "b")
    sick = NodeHealthAssessed(
        level="Warning", weight=40, reported_weight=40, abnormality=0.6, reasons=["cpuUtil"], cause="level"
    )
    log.say("nodepolicy", "a", sick)
    for number in range(4):
        log.add_pod(pod(f"p{number}", {"cpu": "100m"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert set(placements(log).values()) == {"b"}
    [placed] = [CATALOGUE.read(one) for one in log.events if one.ref == AggregateRef("pod", "p0")]
    assert isinstance(placed, PodPlaced)
    lost = {entry.node: entry.parts["NodeHealth"] for entry in placed.explanation.top}
    assert lost["b"] == 0
    assert lost["a"] < 0
    assert all(sum(entry.parts.values()) == entry.total for entry in placed.explanation.top)
