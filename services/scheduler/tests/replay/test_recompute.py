"""A decision recomputed from its own event gives the same node for the same reasons."""

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.recompute import NotRecomputable, Recomputed, recompute
from koordcore.events.envelope import StoredEvent
from support.depth import examples
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod
from support.scheduler.stories import play

pytestmark = pytest.mark.slow


def again(log: SmallLog, reports: list[StoredEvent] | None = None) -> list[Recomputed | NotRecomputable]:
    return [
        recompute(SchedulerState(frameworks()), log.events, reports or [], stored.seq)
        for stored in log.events
        if stored.type == "PodPlaced"
    ]


def test_decisions_on_top_of_others_in_flight_are_recomputed() -> None:
    log = SmallLog()
    for name in "abc":
        log.add_node(node(name))
    for number in range(9):
        log.add_pod(pod(f"p{number}", {"cpu": "1", "memory": "1Gi"}))
    scheduler = Scheduler(log)
    scheduler.follow()
    for _ in range(3):
        for _ in range(3):
            scheduler.decide(10.0)
        scheduler.send()
    while scheduler.in_flight:
        scheduler.land(-1)
    scheduler.run()
    answers = again(log)
    assert len(answers) == 9
    assert all(isinstance(answer, Recomputed) and answer.agrees for answer in answers)


def test_decisions_beside_a_resize_that_is_on_its_way_are_recomputed() -> None:
    log = SmallLog()
    log.add_node(node("a"))
    log.add_node(node("b", cpu="3"))
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    for number, cpu in enumerate(("3", "2", "1")):
        log.add_pod(pod("p", {"cpu": cpu}))
        log.add_pod(pod(f"q{number}", {"cpu": "2"}))
        scheduler.follow()
        scheduler.state.assumed.resize_due()
        scheduler.send()
        scheduler.decide(10.0)
        scheduler.send()
        while scheduler.in_flight:
            scheduler.land(-1)
    scheduler.run(400.0)
    answers = again(log)
    assert len(answers) == 3, "two of the three fit"
    assert all(isinstance(answer, Recomputed) and answer.agrees for answer in answers)


def test_decision_on_top_of_one_that_was_never_stored_is_not_guessed() -> None:
    log = SmallLog()
    for name in "ab":
        log.add_node(node(name))
    for uid in "pq":
        log.add_pod(pod(uid, {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.follow()
    scheduler.decide()
    scheduler.decide()
    scheduler.send(1)
    scheduler.send(1)
    scheduler.land(1)
    log.remove_pod("p")  # its placement is stored for nobody: it is released again, but the log has both
    scheduler.in_flight.clear()
    [answer] = again(log)
    assert answer == NotRecomputable("a decision that never came into the log was still counted in")


@settings(max_examples=examples(30))
@example(5592)  # a node returns under its name after its report was read
@given(st.integers(0, 1 << 32))
def test_every_decision_of_a_story_is_recomputed(seed: int) -> None:
    world = play(seed)
    answers = again(world.log, world.observed)
    for answer in answers:
        if isinstance(answer, Recomputed):
            assert answer.agrees, (answer.placed, answer.node, answer.explanation)
    told = sum(isinstance(answer, Recomputed) for answer in answers)
    event(f"recomputed: {10 * round(10 * told / len(answers)) if answers else 100} %")
