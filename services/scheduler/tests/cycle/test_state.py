"""The fold, assumptions on top of it, and what the log's answers make of them."""

from typing import Any

from koord_scheduler.domain.cluster.record import Phase
from koord_scheduler.domain.loop.cycle.deciding import decide_next
from koord_scheduler.domain.loop.cycle.pod_explanations import abandoned
from koord_scheduler.domain.loop.queue.queued_pod import QueueState
from koord_scheduler.domain.loop.state.state import MOST_REFOLDS, Abandoned
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events import CATALOGUE
from koordcore.events.explanations import DecisionAbandoned
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.events.pod import PodNominated, PodNominationCleared, PodPlaced, PodReleased
from koordcore.protocol import keys
from support.scheduler.placements import log_with, picture, placements
from support.scheduler.scheduling import Scheduler, pod, with_metadata


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
