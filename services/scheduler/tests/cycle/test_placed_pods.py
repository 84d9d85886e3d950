"""Which pods come onto which node, and what makes room for them, counts there, or is left alone."""

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef
from koordcore.events.gateway import PodBindFailed
from koordcore.events.nodepolicy import NodeHealthAssessed
from koordcore.events.pod import PodPlaced, PodReleased
from koordcore.protocol.objects import pod_from_json
from support.scheduler.placements import log_with, placements
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod


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
