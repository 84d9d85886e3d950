"""Nominations that end or that somebody else wrote: who is attempted again, and which node comes first."""

from typing import Any

import msgspec
import pytest
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events import CATALOGUE
from koordcore.events.pod import PodNominated, PodNominationCleared
from koordcore.protocol.objects import Pod, PodCondition
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod


class SlowEvictions(SmallLog):
    """Pods that are evicted leave only when the test says so."""

    def remove_pod(self, uid: str) -> None:
        pass

    def leave(self, uid: str) -> None:
        super().remove_pod(uid)


def facts(log: SmallLog) -> list[Any]:
    events = (CATALOGUE.read(stored) for stored in log.events)
    return [event for event in events if isinstance(event, PodNominated | PodNominationCleared)]


def outranked(top_cpu: str, *, is_written: bool = False) -> tuple[Scheduler, SlowEvictions]:
    """Low pods on a and b; mid is nominated to a, then top takes a. No victim has left. `is_written`: whether the
    nomination of mid is in its status.
    """
    log = SlowEvictions()
    scheduler = Scheduler(log)
    for name, priority in (("a", 0), ("b", 50)):
        log.add_node(node(name))
        log.add_pod(pod(f"l{name}", {"cpu": "4"}, priority=priority))
        scheduler.run()
    mid = pod("mid", {"cpu": "4"}, priority=60)
    log.add_pod(mid)
    scheduler.run(10.0)
    if is_written:
        log.add_pod(named(mid, "a"))
        scheduler.run(10.5)
    log.add_pod(pod("top", {"cpu": top_cpu}, priority=1000))
    scheduler.run(11.0)
    return scheduler, log


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("cpu", ["3", "4"], ids=["of another class", "of the same class"])
def test_outranked_preemptor_preempts_elsewhere_at_once(cpu: str, is_written: bool) -> None:
    scheduler, log = outranked(cpu, is_written=is_written)
    names = [(type(event).__name__, event.name, event.node) for event in facts(log)]
    assert names == [
        ("PodNominated", "mid", "a"),
        ("PodNominationCleared", "mid", "a"),
        ("PodNominated", "top", "a"),
        ("PodNominated", "mid", "b"),
    ]
    log.leave("lb")
    scheduler.run(40.0)
    assert scheduler.state.pods["mid"].node == "b"


def test_flush_passes_over_a_head_that_waits_for_its_victims() -> None:
    log = SlowEvictions()
    scheduler = Scheduler(log)
    log.add_node(node("a"))
    log.add_pod(pod("low", {"cpu": "4"}))
    scheduler.run()
    log.add_pod(pod("first", {"cpu": "4"}, priority=60))
    log.add_pod(pod("second", {"cpu": "4"}, priority=60))
    scheduler.run(10.0)
    attempts = {uid: queued.attempts for uid in ("first", "second") if (queued := scheduler.state.queue.get(uid))}
    scheduler.run(400.0)
    later = {uid: queued.attempts for uid in ("first", "second") if (queued := scheduler.state.queue.get(uid))}
    assert all(later[uid] > attempts[uid] for uid in later), (attempts, later)


def test_node_of_an_ended_nomination_counts_no_more_until_the_status_names_another() -> None:
    scheduler, log = outranked("4", is_written=True)
    folded, restored = Scheduler(log), Scheduler(log)
    folded.follow()
    load_state(restored.state, b"".join(Picture(scheduler.state).pieces()))
    for each in (scheduler, folded, restored):
        assert each.state.pods["mid"].left_node == "a"
    mid = scheduler.state.pods["mid"]
    for name in ("b", "a"):
        assert mid.pod is not None
        log.add_pod(named(mid.pod, name))
        scheduler.follow()
        assert mid.left_node == ""


def test_node_of_an_ended_nomination_counts_no_more_if_the_status_names_it_late() -> None:
    scheduler, log = outranked("4", is_written=False)
    mid = scheduler.state.pods["mid"]
    assert mid.pod is not None
    for name, left in (("", "a"), ("a", "a"), ("", ""), ("a", "")):
        log.add_pod(named(mid.pod, name))
        scheduler.follow()
        restored = Scheduler(log)
        load_state(restored.state, b"".join(Picture(scheduler.state).pieces()))
        assert (mid.left_node, restored.state.pods["mid"].left_node) == (left, left)


def named(one: Pod, node_name: str) -> Pod:
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, nominated_node_name=node_name))


def nominated(uid: str, node_name: str, **spec: Any) -> Pod:
    return named(pod(uid, {"cpu": "1"}, **spec), node_name)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_node_that_somebody_else_nominated_is_tried_first(name: str) -> None:
    scheduler = Scheduler(SmallLog())
    for each in "abc":
        scheduler.log.add_node(node(each))
    scheduler.log.add_pod(nominated("p", name))
    scheduler.run()
    assert scheduler.state.pods["p"].node == name


@pytest.mark.parametrize("name", ["full", "unknown"])
def test_node_of_somebody_else_that_does_not_fit_is_a_preference_only(name: str) -> None:
    scheduler = Scheduler(SmallLog())
    scheduler.log.add_node(node("full", cpu="0"))
    scheduler.log.add_node(node("free"))
    scheduler.log.add_pod(nominated("p", name))
    scheduler.run()
    assert scheduler.state.pods["p"].node == "free"


def test_pod_for_which_the_scheduler_before_us_preempts_does_not_preempt_again() -> None:
    log = SlowEvictions()
    scheduler = Scheduler(log)
    victim = pod("victim", {"cpu": "4"}, nodeName="a")
    condition = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    meta = msgspec.structs.replace(victim.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    status = msgspec.structs.replace(victim.status, conditions=[condition])
    log.add_node(node("a"))
    log.add_node(node("b"))
    log.add_pod(msgspec.structs.replace(victim, metadata=meta, status=status))
    log.add_pod(pod("other", {"cpu": "4"}, nodeName="b"))
    log.add_pod(nominated("p", "a", priority=10))
    scheduler.run()
    assert facts(log) == []
    log.leave("victim")
    scheduler.run(30.0)
    assert scheduler.state.pods["p"].node == "a"
