"""Pods that wait although nothing keeps them any more: events that must wake them, one scenario each."""

from koordcore.protocol.objects import Pod
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata
from support.scheduler.volumes import user_of


def where(scheduler: Scheduler) -> dict[str, str]:
    return {uid: record.node for uid, record in scheduler.state.pods.items() if record.node}


def in_gang(wanted: Pod, gang: str, least: int, **annotations: str) -> Pod:
    """The pod as a member of a gang that only annotations describe, as of a job controller with equal labels."""
    named = {"name": gang, "min-available": str(least), **annotations}
    return with_metadata(
        wanted, annotations={f"gang.scheduling.koordinator.sh/{key}": text for key, text in named.items()}
    )


def test_small_gang_is_placed_although_large_gangs_of_equal_pods_wait_before_it() -> None:
    scheduler = Scheduler(SmallLog())
    for name, least, priority in (*((f"large{number}", 6, 9) for number in range(5)), ("small", 2, 0)):
        for index in range(least):
            member = pod(f"{name}-{index}", {"cpu": "1"}, priority=priority, preemptionPolicy="Never")
            scheduler.log.add_pod(in_gang(member, name, least))
        scheduler.run()
    scheduler.log.add_node(node("a", cpu="2"))
    scheduler.run(now=20.0)
    assert where(scheduler) == {"small-0": "a", "small-1": "a"}


def test_gang_is_placed_without_the_member_whose_claim_is_missing() -> None:
    scheduler = Scheduler(SmallLog())
    scheduler.log.add_node(node("a"))
    scheduler.log.add_pod(in_gang(pod("b", {"cpu": "1"}), "g", 2))
    scheduler.log.add_pod(in_gang(user_of("missing", uid="z"), "g", 2))
    scheduler.run()
    scheduler.log.add_pod(in_gang(pod("c", {"cpu": "1"}), "g", 2))
    scheduler.run(now=20.0)
    for now in (330.0, 360.0):
        scheduler.state.queue.tick(now)
        scheduler.run(now)
    assert where(scheduler) == {"b": "a", "c": "a"}
