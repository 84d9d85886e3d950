"""A node that refuses a pod twice at Reserve is left out for this pod until it changes: others may have room."""

from collections.abc import Sequence

import msgspec
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.framework.outcomes import Candidates, Rejection
from koord_scheduler.domain.replay.recompute import NotRecomputable, recompute
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.pod import PodPlaced
from koordcore.values.allocation import NOTHING, Allocation
from support.scheduler.numa import node_topology, say_topology
from support.scheduler.plugins import MadeUp, scheduler_with
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod

HOT = "hot"


class Thermostat(MadeUp):
    """Refuses each pod `p` on nodes that are hot, which no filter knows."""

    name = "Thermostat"

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        if node.startswith(HOT) and pod.uid == "p":
            return Rejection(plugin=self.name, message=f"node {node} is too hot")
        return NOTHING

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        return ()


def scheduler_of(*nodes: str) -> tuple[SmallLog, Scheduler]:
    """The first node has most room, so that it is tried first."""
    log = SmallLog()
    for number, name in enumerate(nodes):
        log.add_node(node(name, cpu=str(64 >> number)))
    log.add_pod(pod("p", {"cpu": "1"}))
    return log, scheduler_with(log, Thermostat)


def messages(scheduler: Scheduler) -> list[str]:
    return [each.event.message for each in scheduler.explanations if isinstance(each.event, PodUnschedulable)]


def test_after_two_refusals_the_pod_is_placed_on_another_node() -> None:
    log, scheduler = scheduler_of("hot", "cool")
    for minute in range(12):
        scheduler.run(now=60.0 * minute)
    assert scheduler.state.pods["p"].node == "cool"
    assert messages(scheduler) == ["node hot is too hot"] * 2
    assert len(scheduler.state.refusals) == 0, "a pod with a node needs no memory"
    placed = next(stored.seq for stored in log.events if stored.type == PodPlaced.__name__)
    again = scheduler_with(SmallLog(), Thermostat).state
    found = recompute(again, log.events, (), placed)
    assert isinstance(found, NotRecomputable)
    assert "refused the pod at Reserve" in found.reason


class Picky(Thermostat):
    """Also restricts each pod to other nodes itself."""

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | Candidates | None:
        return Candidates(without=frozenset({"other"}), reason="they are unwanted")


def test_a_placement_that_a_plugin_restricted_together_with_the_memory_is_not_repeated() -> None:
    log, _ = scheduler_of("hot", "cool", "other")
    scheduler = scheduler_with(log, Picky)
    for second in range(4):
        scheduler.run(now=float(second))
    assert scheduler.state.pods["p"].node == "cool"
    placed = next(stored.seq for stored in log.events if stored.type == PodPlaced.__name__)
    found = recompute(scheduler_with(SmallLog(), Picky).state, log.events, (), placed)
    assert isinstance(found, NotRecomputable)
    assert "refused the pod at Reserve" in found.reason


def test_each_refusal_is_followed_by_a_back_off_only_and_explained() -> None:
    _, scheduler = scheduler_of("hot", "cool")
    seen: list[tuple[int, str]] = []
    for second in range(4):
        scheduler.run(now=float(second))
        seen.append((len(messages(scheduler)), scheduler.state.pods["p"].node))
    assert seen == [(1, ""), (2, ""), (2, ""), (2, "cool")]


def test_the_back_off_bounds_the_attempts_if_the_node_changes_after_each_refusal() -> None:
    log, scheduler = scheduler_of("hot", "cool")
    for second in range(120):
        log.add_node(node("hot", cpu="64", labels={"second": str(second)}))
        scheduler.run(now=float(second))
    assert scheduler.state.pods["p"].node == ""
    assert 10 < len(messages(scheduler)) <= 4 + 120 // 10 + 1


def test_a_pod_that_finds_the_memory_full_waits_for_an_event() -> None:
    log, scheduler = scheduler_of("hot", "cool")
    for number in range(1_000):
        scheduler.state.refusals.refused(f"other-{number}", "hot", 0.0)
    for second in range(60):
        scheduler.run(now=float(second))
    assert len(messages(scheduler)) == 1
    log.add_node(node("cold", cpu="1"))
    for second in range(60, 120):
        scheduler.run(now=float(second))
    assert scheduler.state.pods["p"].node == "cool"


def test_a_pod_without_another_node_is_told_why_and_is_tried_again_once_the_node_has_changed() -> None:
    log, scheduler = scheduler_of("hot")
    for minute in range(12):
        scheduler.run(now=60.0 * minute)
    told = messages(scheduler)
    assert told[:2] == ["node hot is too hot"] * 2
    assert "they refused the pod twice at Reserve and have not changed since" in told[2]
    assert "node hot is too hot" not in told[2:]
    say_topology(log, node_topology("hot"))
    for minute in range(12, 24):
        scheduler.run(now=60.0 * minute)
    assert messages(scheduler)[len(told) :].count("node hot is too hot") == 2


def test_a_change_of_the_pod_brings_the_node_back_and_a_change_of_its_status_does_not() -> None:
    log, scheduler = scheduler_of("hot")

    def refusals_until(second: int) -> int:
        for each in range(second - 60, second):
            scheduler.run(now=float(each))
        return messages(scheduler).count("node hot is too hot")

    assert refusals_until(60) == 2
    wanted = pod("p", {"cpu": "1"})
    status = msgspec.structs.replace(wanted.status, phase="Pending", qos_class="Burstable")
    log.add_pod(msgspec.structs.replace(wanted, status=status))
    assert refusals_until(120) == 2
    log.add_pod(pod("p", {"cpu": "2"}))
    assert refusals_until(180) == 4


def test_a_deleted_pod_is_forgotten() -> None:
    log, scheduler = scheduler_of("hot")
    scheduler.run()
    assert len(scheduler.state.refusals) == 1
    log.remove_pod("p")
    scheduler.run(now=1.0)
    assert len(scheduler.state.refusals) == 0


def test_a_change_of_the_amounts_alone_does_not_bring_the_node_back() -> None:
    log, scheduler = scheduler_of("hot", "cool")
    for minute in range(12):
        log.add_node(node("hot", cpu=str(64 + minute)))
        scheduler.run(now=60.0 * minute)
    assert scheduler.state.pods["p"].node == "cool"


def test_after_half_an_hour_the_node_comes_into_question_again() -> None:
    _, scheduler = scheduler_of("hot")
    for minute in range(60):
        scheduler.run(now=60.0 * minute)
    assert messages(scheduler).count("node hot is too hot") == 3


def test_the_memory_is_bounded_and_of_one_pod_only() -> None:
    log, scheduler = scheduler_of("hot")
    scheduler.run()
    for number in range(2_000):
        scheduler.state.refusals.refused(f"other-{number}", "hot", 0.0)
    assert len(scheduler.state.refusals) == 1_000
    log.add_pod(pod("q", {"cpu": "1"}))
    scheduler.run(now=1.0)
    assert scheduler.state.pods["q"].node == "hot"
