"""Preemption of pods whose evictions are refused: they are asked ever more rarely, and others go instead."""

import pytest
from koord_scheduler.domain.loop.queue.pauses import Pauses
from koord_scheduler.domain.loop.queue.queued_pod import QueueState
from koordcore.events import CATALOGUE
from koordcore.events.gateway import PodEvictionFailed, PodEvictionRequested
from koordcore.protocol import keys
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

HOUR = 3600
JOBS = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    preEnqueue: {enabled: [{name: Coscheduling}]}
    preFilter: {enabled: [{name: Coscheduling}]}
    postFilter: {enabled: [{name: Coscheduling}], disabled: [{name: "*"}]}
    reserve: {enabled: [{name: Coscheduling}]}
    permit: {enabled: [{name: Coscheduling}]}
  pluginConfig:
  - name: Coscheduling
    args: {enablePreemption: true}
"""
MEMBER = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "1"}


class RefusingLog(SmallLog):
    """A log of a cluster whose API server refuses to delete the pods in `kept`."""

    def __init__(self, *kept: str) -> None:
        super().__init__()
        self.kept = set(kept)

    def remove_pod(self, uid: str) -> None:
        if uid in self.kept:
            self.say("eviction", uid, PodEvictionFailed(reason="Forbidden"))
        else:
            super().remove_pod(uid)


def requests(scheduler: Scheduler) -> list[str]:
    events = (CATALOGUE.read(stored) for stored in scheduler.log.events)
    return [event.name for event in events if isinstance(event, PodEvictionRequested)]


def live(scheduler: Scheduler, begin: int, end: int, every: int = 10) -> None:
    for now in range(begin, end, every):
        scheduler.run(float(now))


def with_preemptor(log: RefusingLog, configuration: str = "", *, dearer: bool = False) -> Scheduler:
    """`low` fills a node, `dearer` another one, if wanted, and `high` waits for room."""
    scheduler = Scheduler(log, configuration)
    for index, (uid, priority) in enumerate((("low", 1), ("dearer", 5)) if dearer else (("low", 1),)):
        log.add_node(node(f"n{index}", cpu="4"))
        log.add_pod(pod(uid, {"cpu": "4"}, priority=priority))
        scheduler.run(0.0)
    log.add_pod(with_metadata(pod("high", {"cpu": "4"}, priority=9), labels=MEMBER if configuration else {}))
    return scheduler


@pytest.mark.parametrize("configuration", ["", JOBS], ids=["a single pod", "a job"])
def test_victim_whose_evictions_are_refused_is_asked_ever_more_rarely(configuration: str) -> None:
    log = RefusingLog("low")
    scheduler = with_preemptor(log, configuration)
    live(scheduler, 0, 20)
    assert requests(scheduler) == ["low"] * 2, "one failure causes no pause"
    live(scheduler, 20, HOUR)
    assert len(requests(scheduler)) < 20
    log.kept.clear()
    live(scheduler, HOUR, HOUR + 400)
    assert scheduler.state.pods["high"].node == "n0", "it is asked again within five minutes"


@pytest.mark.parametrize("configuration", ["", JOBS], ids=["a single pod", "a job"])
def test_preemptor_is_woken_when_the_pause_of_its_victim_ends(configuration: str) -> None:
    log = RefusingLog("low")
    scheduler = with_preemptor(log, configuration)
    live(scheduler, 0, 30, every=1)
    asked = len(requests(scheduler))
    end = scheduler.state.nominator.spared_until("low")
    assert end > 29.0, "the eviction has been refused repeatedly"
    log.kept.clear()
    scheduler.run(end - 0.5)
    assert scheduler.state.next_due() == end
    assert len(requests(scheduler)) == asked
    scheduler.run(end)
    scheduler.run(end + 10.0)
    assert scheduler.state.pods["high"].node == "n0"


def test_of_equal_preemptors_one_is_woken_at_a_time() -> None:
    log = RefusingLog("low")
    scheduler = with_preemptor(log)
    for number in range(50):
        log.add_pod(pod(f"high{number}", {"cpu": "4"}, priority=9))
    live(scheduler, 0, 30, every=1)
    end = scheduler.state.nominator.spared_until("low")
    before = scheduler.state.queue.counts()[QueueState.UNSCHEDULABLE]
    scheduler.state.queue.tick(end)
    assert before - scheduler.state.queue.counts()[QueueState.UNSCHEDULABLE] == 1


def test_pauses_are_forgotten_with_their_pods() -> None:
    pauses = Pauses()
    for number in range(100):
        pauses.put(f"p{number}", "group", 10.0 + number)
    for number in range(100):
        pauses.drop(f"p{number}")
    assert not len(pauses)
    assert pauses.next_due() is None
    assert pauses.over(1000.0) == []


def test_pods_whose_pauses_are_over_follow_one_after_the_other() -> None:
    pauses = Pauses()
    pauses.put("late", "a", 100.0)
    pauses.put("first", "a", 10.0)
    pauses.put("second", "a", 11.0)
    pauses.put("other", "b", 10.0)
    assert pauses.next_due() == 10.0
    assert sorted(pauses.over(10.0)) == ["first", "other"]
    assert pauses.over(19.0) == []
    assert pauses.over(20.0) == ["second"]
    assert pauses.next_due() == 100.0
    pauses.put("late", "a", 50.0)
    assert pauses.over(50.0) == ["late"]


def test_refusal_says_that_a_pod_stays_because_its_evictions_have_failed() -> None:
    scheduler = with_preemptor(RefusingLog("low"))
    live(scheduler, 0, 100)
    text = str(scheduler.explanations[-1].event)
    assert "1 pod(s) stay for now, because their evictions have failed repeatedly." in text


def test_another_victim_goes_instead_of_one_whose_evictions_are_refused() -> None:
    scheduler = with_preemptor(RefusingLog("low"), dearer=True)
    live(scheduler, 0, 100)
    assert scheduler.state.pods["high"].node == "n1"
    assert requests(scheduler)[-1] == "dearer"


def test_pod_that_is_gone_leaves_no_refusals_behind() -> None:
    log = RefusingLog("low")
    scheduler = with_preemptor(log)
    live(scheduler, 0, 100)
    assert not scheduler.state.nominator.may_be_evicted("low", 25.0)
    log.kept.clear()
    log.remove_pod("low")
    live(scheduler, 100, 200)
    assert scheduler.state.nominator.may_be_evicted("low", 25.0)
    assert scheduler.state.pods["high"].node == "n0"
