"""Reservations that another scheduler made available: their status says so, and no fact of our log does."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.recording import subject_of, without_node
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koord_scheduler.domain.replay.state_hash import state_hash
from koordcore.events import CATALOGUE
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.state.aggregates import PodState, ReservationState
from koordcore.stories.reservations import reservation_view
from koordcore.values.timestamps import unix_seconds
from support.scheduler.reservations import CREATED, ReservingScheduler, fold_of, reservation, reserve, status
from support.scheduler.scheduling import SmallLog, frameworks, node, pod, with_metadata

T0 = unix_seconds(CREATED)
LATER = T0 + 1e6
"""Long after the `ttl` of every Reservation here."""


def available(cpu: str = "3", on: str = "n", *, scheduler: str = "koord-scheduler", **spec: Any) -> dict[str, Any]:
    document = reservation(requests={"cpu": "1"}, template={"schedulerName": scheduler}, **spec)
    return {**document, "status": {"phase": "Available", "nodeName": on, "allocatable": {"cpu": cpu}}}


def theirs(uid: str, cpu: str, *, on: str = "n") -> Pod:
    """A pod that another scheduler bound, and that uses the Reservation."""
    used = json.dumps({"name": "r", "uid": "uid-r"})
    made = with_metadata(pod(uid, {"cpu": cpu}), annotations={keys.RESERVATION_ALLOCATED: used})
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, node_name=on))


def started() -> tuple[SmallLog, ReservingScheduler]:
    log = SmallLog()
    log.add_node(node("n", cpu="4"))
    log.add_node(node("m", cpu="1"))
    return log, ReservingScheduler(log)


def requested(scheduler: ReservingScheduler, name: str = "n") -> int:
    row = scheduler.state.nodes.row(name)
    assert row is not None
    return int(scheduler.state.nodes.requested[scheduler.state.nodes.column("cpu"), row])


def placed_on(log: SmallLog) -> dict[str, str]:
    return {uid: state.node for uid, state in fold_of(log).of_kind(PodState).items() if state.node}


@pytest.mark.parametrize("scheduler_name", ["koord-scheduler", "volcano"])
def test_it_holds_what_its_status_says_and_is_not_placed_again(scheduler_name: str) -> None:
    log, scheduler = started()
    reserve(log, available(scheduler=scheduler_name))
    log.add_pod(pod("plain", {"cpu": "2"}))
    scheduler.live(T0)
    assert placed_on(log) == {}, "3 of 4 cores are reserved, and the other node has one"
    assert requested(scheduler) == 3000


def test_it_holds_what_its_status_says_also_after_that_has_changed() -> None:
    log, scheduler = started()
    reserve(log, available())
    log.add_pod(pod("plain", {"cpu": "2"}))
    scheduler.live(T0)
    reserve(log, available(cpu="1"))
    scheduler.live(T0 + 60)
    assert placed_on(log) == {"plain": "n"}
    restored = SchedulerState(frameworks())
    load_state(restored, b"".join(Picture(scheduler.state).pieces()))
    assert requested(scheduler) == 3000
    assert state_hash(restored) == state_hash(scheduler.state)


def test_its_owners_use_it() -> None:
    log, scheduler = started()
    reserve(log, available(allocateOnce=False))
    log.add_pod(with_metadata(pod("web", {"cpu": "2"}), labels={"app": "web"}))
    scheduler.live(T0)
    allocation = fold_of(log).of_kind(PodState)["web"].allocation
    assert allocation.reservation is not None
    assert (allocation.reservation.name, allocation.reservation.amounts) == ("r", {"cpu": 2000})
    assert requested(scheduler) == 3000


@pytest.mark.parametrize("order", list(itertools.permutations(("r", "a", "b"))))
def test_pods_that_others_bound_to_it_count_once(order: tuple[str, ...]) -> None:
    log, scheduler = started()
    for what in order:
        if what == "r":
            reserve(log, available(allocateOnce=False))
        else:
            log.add_pod(theirs(what, {"a": "1", "b": "1500m"}[what]))
        scheduler.live(T0)
    assert requested(scheduler) == 3000
    log.add_pod(with_metadata(pod("web", {"cpu": "1500m"}), labels={"app": "web"}))
    scheduler.live(T0)
    allocation = fold_of(log).of_kind(PodState)["web"].allocation
    assert allocation.reservation is not None
    assert allocation.reservation.amounts == {"cpu": 500}, "the other core comes from the node"
    assert requested(scheduler) == 4000
    assert requested(_restored(scheduler)) == 4000


def _restored(scheduler: ReservingScheduler) -> ReservingScheduler:
    data = b"".join(Picture(scheduler.state).pieces())
    again = ReservingScheduler(SmallLog())
    again.state = SchedulerState(frameworks())
    load_state(again.state, data)
    return again


def test_its_end_is_the_business_of_the_other_scheduler() -> None:
    log, scheduler = started()
    reserve(log, available())
    scheduler.live(LATER)
    assert fold_of(log).of_kind(ReservationState) == {}
    reserve(log, {**available(), "status": {"phase": "Failed", "nodeName": "n"}})
    log.add_pod(pod("plain", {"cpu": "4"}))
    scheduler.live(LATER)
    assert placed_on(log) == {"plain": "n"}, "what has ended holds nothing and is not placed again"


def test_people_see_the_status_of_the_object() -> None:
    document = available()
    document["status"]["currentOwners"] = [{"namespace": "default", "name": "a", "uid": "a"}]
    document["status"]["allocated"] = {"cpu": "3500m"}
    seen = reservation_view(document, status(SmallLog()))
    assert (seen.phase, seen.node, seen.reserved) == ("Available", "n", {"cpu": 3000})
    assert (seen.allocated, seen.unused, [owner.uid for owner in seen.owners]) == ({"cpu": 3500}, {"cpu": 0}, ["a"])


def test_a_re_run_decides_again_what_the_recording_decided() -> None:
    log, _ = started()
    reserve(log, available())
    stored = log.events[-1]
    assert subject_of(stored) == "uid-r"
    event = CATALOGUE.read(without_node(stored))
    assert "status" not in event.object  # pyright: ignore
