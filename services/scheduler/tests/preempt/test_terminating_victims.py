"""Preemption while victims terminate: the API server has accepted their evictions, and they still hold their nodes."""

from koordcore.events import CATALOGUE
from koordcore.events.gateway import PodEvicted, PodEvictionRequested
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod


class GracefulLog(SmallLog):
    """A log of a cluster in which evicted pods stay until `ends`."""

    def remove_pod(self, uid: str) -> None:
        self.say("eviction", uid, PodEvicted())

    def ends(self, uid: str) -> None:
        super().remove_pod(uid)


def scheduler_of(*cpus: int) -> Scheduler:
    log = GracefulLog()
    for index, cpu in enumerate(cpus):
        log.add_node(node(f"n{index}", cpu=str(cpu)))
    return Scheduler(log)


def submit(scheduler: Scheduler, uid: str, cpu: str, priority: int, now: float) -> None:
    scheduler.log.add_pod(pod(uid, {"cpu": cpu}, priority=priority))
    scheduler.run(now)


def where(scheduler: Scheduler) -> dict[str, str]:
    return {uid: record.node for uid, record in scheduler.state.pods.items() if record.node}


def evicted(scheduler: Scheduler) -> list[str]:
    events = (CATALOGUE.read(stored) for stored in scheduler.log.events)
    return sorted(event.name for event in events if isinstance(event, PodEvictionRequested))


def with_victims() -> Scheduler:
    """`high` is nominated to `n0`, whose two pods terminate. The pods of `n1` are worth more, and stay."""
    scheduler = scheduler_of(4)
    submit(scheduler, "a", "2", 1, now=0.0)
    submit(scheduler, "b", "2", 2, now=0.0)
    scheduler.log.add_node(node("n1", cpu="4"))
    submit(scheduler, "c", "4", 5, now=0.0)
    submit(scheduler, "high", "4", 9, now=20.0)
    assert evicted(scheduler) == ["a", "b"]
    assert scheduler.state.nominator.node_of("high") == "n0"
    return scheduler


def test_preemptor_evicts_nobody_else_while_its_victims_terminate_one_after_another() -> None:
    scheduler = with_victims()
    assert isinstance(scheduler.log, GracefulLog)
    scheduler.log.ends("a")
    scheduler.run(now=40.0)
    assert evicted(scheduler) == ["a", "b"]
    assert scheduler.state.nominator.node_of("high") == "n0"
    scheduler.log.ends("b")
    scheduler.run(now=60.0)
    assert where(scheduler) == {"c": "n1", "high": "n0"}


def test_preemptor_does_not_wait_for_victims_on_a_node_that_takes_it_no_more() -> None:
    scheduler = with_victims()
    scheduler.log.add_node(node("n0", cpu="4", unschedulable=True))
    scheduler.run(now=40.0)
    assert evicted(scheduler) == ["a", "b", "c"]
    assert scheduler.state.nominator.node_of("high") == "n1"


def test_preemptor_does_not_wait_for_victims_on_a_deleted_node() -> None:
    scheduler = with_victims()
    scheduler.log.remove_node("n0")
    scheduler.log.add_pod(pod("high", {"cpu": "3"}, priority=9))
    scheduler.run(now=40.0)
    assert evicted(scheduler) == ["a", "b", "c"]
    assert scheduler.state.nominator.node_of("high") == "n1"
