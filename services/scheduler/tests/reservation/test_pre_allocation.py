"""Reservations that take the place of running pods: which pods, on which nodes, and what the log says of it."""

import json
from typing import Any

import pytest
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events import CATALOGUE
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.node_ledger import NodeResourcesTaken
from koordcore.events.pod import PodReallocated
from koordcore.protocol import keys
from koordcore.state.aggregates import NodeLedger
from koordcore.state.allocation_rules import broken_rules
from koordcore.values.timestamps import unix_seconds
from support.scheduler.reservations import CREATED, ReservingScheduler, fold_of, reservation, reserve, status, sums
from support.scheduler.scheduling import SmallLog, frameworks, node, pod, with_metadata

T0 = unix_seconds(CREATED)
CLUSTER_MODE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    multiPoint: {enabled: [{name: Reservation, weight: 5000}]}
  pluginConfig:
  - name: Reservation
    args:
      preAllocationConfig: {enableClusterMode: true}
"""


def pre_allocating(requests: dict[str, str], **spec: Any) -> dict[str, Any]:
    """A Reservation for pods labelled `app: web` that takes the place of running ones."""
    document = reservation(requests=requests)
    labels = spec.pop("labels", {})
    return {
        **document,
        "metadata": {**document["metadata"], "labels": labels},
        "spec": {**document["spec"], "preAllocation": True, "allocatePolicy": "Restricted", **spec},
    }


def world(*pods: tuple[str, str], cpu: str = "4", configuration: str = "") -> tuple[SmallLog, ReservingScheduler]:
    """A node on which pods of (uid, cpu) with `app: web` run already."""
    log = SmallLog()
    log.add_node(node("n", cpu=cpu))
    scheduler = ReservingScheduler(log, configuration)
    for uid, requested in pods:
        labels = {"app": "web", keys.IS_PRE_ALLOCATABLE: "true"}
        annotations = {keys.PRE_ALLOCATABLE_PRIORITY: requested.removesuffix("m")}
        log.add_pod(with_metadata(pod(uid, {"cpu": requested}), labels=labels, annotations=annotations))
    scheduler.live(T0)
    return log, scheduler


def refusal(scheduler: ReservingScheduler) -> str:
    """Why the Reservation found no node."""
    events = [each.event for each in scheduler.explanations if each.uid == "uid-r"]
    assert isinstance(events[-1], PodUnschedulable)
    return events[-1].message


def test_a_reservation_takes_the_place_of_a_running_pod() -> None:
    log, scheduler = world(("old", "3"), ("other", "1"))
    reserve(log, pre_allocating({"cpu": "3"}, allocateOnce=False))
    scheduler.live(T0)
    found = status(log)
    assert (found.phase, [owner.uid for owner in found.owners], found.taken) == ("Available", ["old"], {"cpu": 3000})
    ledger = fold_of(log).of_kind(NodeLedger)["n"]
    assert ledger.requested == sums(ledger) == {"cpu": 4000}, "4 cores as before: the pod takes its 3 from it"
    assert broken_rules(fold_of(log)) == {}
    [changed] = [each for stored in log.events if isinstance(each := CATALOGUE.read(stored), PodReallocated)]
    assert (changed.name, changed.reason) == ("old", "pre-allocated")
    used = changed.allocation.reservation
    assert used is not None
    assert used.amounts == {"cpu": 3000}


def test_what_the_pod_leaves_stays_reserved_for_the_next_owner() -> None:
    log, scheduler = world(("old", "3"))
    reserve(log, pre_allocating({"cpu": "4"}, allocateOnce=False))
    scheduler.live(T0)
    log.remove_pod("old")
    log.add_pod(pod("stranger", {"cpu": "1"}))
    log.add_pod(with_metadata(pod("new", {"cpu": "2"}), labels={"app": "web"}))
    scheduler.live(T0)
    scheduler.live(T0 + 60)
    assert [owner.uid for owner in status(log).owners] == ["new"]
    assert fold_of(log).of_kind(NodeLedger)["n"].requested == {"cpu": 4000}, "the stranger waits"


def test_a_reservation_for_one_owner_is_used_up_at_once() -> None:
    log, scheduler = world(("old", "3"))
    reserve(log, pre_allocating({"cpu": "4"}))
    scheduler.live(T0)
    assert status(log).phase == "Succeeded"
    assert fold_of(log).of_kind(NodeLedger)["n"].requested == {"cpu": 3000}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, [], id="one pod is not enough"),
        pytest.param({"preAllocationPolicy": {"enableMultiple": True}}, ["a", "b"], id="several pods"),
    ],
)
def test_several_pods_only_if_the_reservation_allows_it(spec: dict[str, Any], expected: list[str]) -> None:
    log, scheduler = world(("a", "1500m"), ("b", "1500m"))
    reserve(log, pre_allocating({"cpu": "4"}, allocateOnce=False, **spec))
    scheduler.live(T0)
    assert [owner.uid for owner in status(log).owners] == expected


def test_a_pod_larger_than_the_reservation_keeps_its_place() -> None:
    log, scheduler = world(("large", "3"))
    reserve(log, pre_allocating({"cpu": "2"}, allocateOnce=False))
    scheduler.live(T0)
    assert status(log).phase == "Pending"


@pytest.mark.parametrize(
    ("pods", "requests", "expected"),
    [
        pytest.param((), "1", "node(s) no pod match reservation with pre allocation required", id="no pod"),
        pytest.param(
            (("large", "3"),), "1", "node(s) no pod(s) to meet the pre-allocation requirements", id="too large a pod"
        ),
    ],
)
def test_a_required_pod_is_missed(pods: tuple[tuple[str, str], ...], requests: str, expected: str) -> None:
    log, scheduler = world(*pods)
    reserve(log, pre_allocating({"cpu": requests}, labels={keys.PRE_ALLOCATION_REQUIRED: "true"}))
    scheduler.live(T0)
    assert expected in refusal(scheduler)


def test_only_policy_restricted_supports_it() -> None:
    log, scheduler = world(("old", "1"))
    reserve(log, pre_allocating({"cpu": "1"}, allocatePolicy="Aligned"))
    scheduler.live(T0)
    assert "node(s) reservation pre allocation is unsupported with current attributes" in refusal(scheduler)


def test_cluster_mode_must_be_enabled() -> None:
    log, scheduler = world(("old", "1"))
    reserve(log, pre_allocating({"cpu": "1"}, preAllocationPolicy={"mode": "Cluster"}))
    scheduler.live(T0)
    assert "reservation requires cluster mode pre-allocation which is disabled" in refusal(scheduler)


def test_in_cluster_mode_the_label_chooses_and_the_annotation_orders() -> None:
    log, scheduler = world(("low", "1"), ("high", "2"), configuration=CLUSTER_MODE)
    nobody = [{"labelSelector": {"matchLabels": {"app": "nobody"}}}]
    document = pre_allocating({"cpu": "2"}, owners=nobody, preAllocationPolicy={"mode": "Cluster"}, allocateOnce=False)
    reserve(log, document)
    scheduler.live(T0)
    assert [owner.uid for owner in status(log).owners] == ["high"]


def test_a_pod_that_wants_another_reservation_keeps_its_place() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    scheduler = ReservingScheduler(log)
    reserve(log, reservation("other", {"cpu": "3"}, allocateOnce=False))
    affinity = json.dumps({"name": "other"})
    wanting = with_metadata(
        pod("old", {"cpu": "3"}), labels={"app": "web"}, annotations={keys.RESERVATION_AFFINITY: affinity}
    )
    log.add_pod(wanting)
    scheduler.live(T0)
    reserve(log, pre_allocating({"cpu": "3"}))
    scheduler.live(T0)
    assert status(log).phase == "Pending"


def test_nothing_changes_if_the_log_refuses_and_the_pod_leaves_meanwhile() -> None:
    log, scheduler = world(("old", "3"))
    reserve(log, pre_allocating({"cpu": "4"}, allocateOnce=False))
    scheduler.follow()
    assert scheduler.decide(T0) is not None
    scheduler.send()
    log.remove_pod("old")
    log.say("node", "n", NodeResourcesTaken(pods=list(fold_of(log).of_kind(NodeLedger)["n"].pods.values())))
    scheduler.land(now=T0)
    scheduler.live(T0)
    scheduler.live(T0 + 60)
    found = status(log)
    assert (found.phase, found.owners) == ("Available", [])
    ledger = fold_of(log).of_kind(NodeLedger)["n"]
    assert ledger.requested == sums(ledger) == {"cpu": 4000}


def test_a_snapshot_and_the_log_agree_about_owners() -> None:
    log, scheduler = world(("old", "3"))
    reserve(log, pre_allocating({"cpu": "4"}, allocateOnce=False))
    scheduler.live(T0)
    restored = SchedulerState(frameworks())
    load_state(restored, b"".join(Picture(scheduler.state).pieces()))
    replayed = ReservingScheduler(log)
    replayed.follow()
    for state in (restored, replayed.state):
        entry = state.books.reservations.entries["uid-r"]
        assert (set(entry.owners), entry.unused()) == ({"old"}, {"cpu": 1000})


def test_a_waiting_reservation_is_tried_again_when_a_pod_comes() -> None:
    log, scheduler = world()
    reserve(log, pre_allocating({"cpu": "3"}, labels={keys.PRE_ALLOCATION_REQUIRED: "true"}, allocateOnce=False))
    scheduler.live(T0)
    assert status(log).phase == "Pending"
    log.add_pod(with_metadata(pod("late", {"cpu": "2"}), labels={"app": "web"}))
    scheduler.live(T0 + 60)
    scheduler.live(T0 + 61)
    assert [owner.uid for owner in status(log).owners] == ["late"]
