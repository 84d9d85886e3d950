"""A Node object may show more batch resources than were computed, because its pods request them: nothing new fits."""

from koordcore.events.explanations import PodUnschedulable
from koordcore.protocol.objects import Node
from koordcore.protocol.resource_names import BATCH_CPU
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod


def showing(cpu_milli: int) -> Node:
    return node("n", more={BATCH_CPU: str(cpu_milli)})


def refused(scheduler: Scheduler) -> set[str]:
    return {each.event.name for each in scheduler.explanations if isinstance(each.event, PodUnschedulable)}


def test_what_a_node_shows_above_the_computed_amount_is_not_free() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    log.set_batch("n", 6000, 1 << 30)
    log.add_pod(pod("runs", {BATCH_CPU: "5000"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.set_batch("n", 600, 1 << 30)
    log.add_node(showing(5000))
    log.add_pod(pod("next", {BATCH_CPU: "100"}))
    scheduler.run()
    assert refused(scheduler) == {"next"}

    # its room is not handed on, also before the node shows less
    log.remove_pod("runs")
    log.add_pod(pod("large", {BATCH_CPU: "1000"}))
    scheduler.run()
    assert refused(scheduler) == {"next", "large"}
    # ... and the pod that fits into the computed amount is placed once its back-off is over
    scheduler.run(now=60.0)
    assert (scheduler.state.pods["next"].node, scheduler.state.pods["large"].node) == ("n", "")


def test_withdrawn_resources_that_a_node_still_shows_are_not_free() -> None:
    log = SmallLog()
    log.add_node(showing(5000))
    log.set_batch("n", None, None)
    log.add_pod(pod("next", {BATCH_CPU: "100"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert refused(scheduler) == {"next"}
