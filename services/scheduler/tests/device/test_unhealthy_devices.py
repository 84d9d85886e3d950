"""The log states which devices of a pod became unhealthy: once, again after a restart only if it changed."""

from typing import Any

from koord_scheduler.domain.loop.commit.status_writes import TakenStatusWrite
from koord_scheduler.domain.loop.controllers import next_status_due, status_facts
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events import CATALOGUE
from koordcore.events.envelope import name_token
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved
from koordcore.events.pod import PodDeviceUnhealthy, UnhealthyDevice
from koordcore.state.aggregates import PodState
from koordcore.state.cluster import ClusterState
from support.scheduler.devices import asking, device, gpu
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod

SICK = UnhealthyDevice(type="gpu", minor=0, id="GPU-0")


def _put(log: SmallLog, devices: list[Any]) -> None:
    log.say("customspec", f"devices={name_token('a')}", CustomObjectObserved(object=device("a", devices)))


def _world(*pods: str) -> tuple[SmallLog, Scheduler]:
    log = SmallLog()
    log.add_node(node("a", cpu="100", more={"nvidia.com/gpu": "8"}))
    _put(log, [gpu(0), gpu(1)])
    for name in pods:
        log.add_pod(asking(name, {"nvidia.com/gpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    return log, scheduler


def _look(scheduler: Scheduler, now: float) -> None:
    scheduler.run(now)
    for write in status_facts(scheduler.state, now):
        scheduler.state.status.writes.put(write)
    scheduler.run(now)


def _stated(log: SmallLog) -> list[tuple[str, list[UnhealthyDevice]]]:
    found = [(stored.ref.id, CATALOGUE.read(stored)) for stored in log.events]
    return [(uid, event.devices) for uid, event in found if isinstance(event, PodDeviceUnhealthy)]


def _folded(log: SmallLog, uid: str) -> PodState | None:
    state = ClusterState()
    for stored in log.events:
        state.apply(stored)
    return state.of_kind(PodState).get(uid)


def test_only_the_holder_of_a_failed_device_is_told_and_only_once() -> None:
    log, scheduler = _world("first", "second")
    log.add_pod(pod("plain", {"cpu": "1"}))
    scheduler.run()
    _look(scheduler, 1.0)
    assert _stated(log) == []
    _put(log, [gpu(0, healthy=False), gpu(1)])
    for second in range(2, 6):
        _look(scheduler, float(second))
    assert _stated(log) == [("first", [SICK])]
    folded = _folded(log, "first")
    assert folded is not None
    assert folded.unhealthy_devices == [SICK]
    assert folded.node == "a"
    assert next_status_due(scheduler.state) is None, "nothing is left to look at"


def test_each_failure_and_each_recovery_is_stated() -> None:
    log, scheduler = _world("first", "second")
    for turn in range(3):
        _put(log, [gpu(0, healthy=False), gpu(1)])
        _look(scheduler, 10.0 * turn + 1)
        _put(log, [gpu(0), gpu(1)])
        _look(scheduler, 10.0 * turn + 5)
    assert _stated(log) == [("first", [SICK]), ("first", [])] * 3
    folded = _folded(log, "first")
    assert folded is not None
    assert folded.unhealthy_devices == []


def test_a_deleted_device_object_is_a_failure_of_all_devices() -> None:
    log, scheduler = _world("first", "second")
    log.say("customspec", "devices=a", CustomObjectDeleted(kind="Device", name="a"))
    _look(scheduler, 1.0)
    assert sorted(uid for uid, _ in _stated(log)) == ["first", "second"]


def test_a_device_that_is_not_in_the_object_any_more_has_failed() -> None:
    log, scheduler = _world("first", "second")
    for turn in range(2):
        _put(log, [gpu(1)])
        _look(scheduler, 10.0 * turn + 1)
        _put(log, [gpu(0), gpu(1)])
        _look(scheduler, 10.0 * turn + 5)
    assert _stated(log) == [("first", [SICK]), ("first", [])] * 2
    _look(scheduler, 30.0)
    assert next_status_due(scheduler.state) is None, "nothing is left to look at"


def test_a_device_that_vanished_before_a_restart_is_stated_after_it() -> None:
    log, scheduler = _world("first", "second")
    _put(log, [gpu(1)])
    scheduler.follow()
    restored = Scheduler(log)
    load_state(restored.state, b"".join(Picture(scheduler.state).pieces()))
    _look(restored, 1.0)
    assert _stated(log) == [("first", [SICK])]


def test_a_pod_whose_device_vanished_during_its_placement_is_told() -> None:
    log, scheduler = _world("first", "second")
    other = Scheduler(log)
    log.add_pod(asking("third", {"nvidia.com/gpu": "1"}))
    _put(log, [gpu(0), gpu(1), gpu(2)])
    scheduler.run()
    _put(log, [gpu(0), gpu(1)])
    _look(other, 1.0)
    assert [uid for uid, _ in _stated(log)] == ["third"]


def test_a_fact_that_is_too_large_for_the_log_is_stated_again_only_after_another_change() -> None:
    log, scheduler = _world("first", "second")
    _put(log, [gpu(0, healthy=False), gpu(1)])
    for turn in range(2):
        assert [taken.drafts[0].ref.id for taken in _refused(scheduler, 10.0 * turn + 1)] == ["first"]
        for second in range(2, 6):
            assert _refused(scheduler, 10.0 * turn + second) == []
        assert next_status_due(scheduler.state) is None, "nothing is left to look at"
        _put(log, [gpu(0), gpu(1)])
        assert _refused(scheduler, 10.0 * turn + 7) == [], "the log never said that it was unhealthy"
        _put(log, [gpu(0, healthy=False), gpu(1)])
    _put(log, [gpu(0, healthy=False), gpu(1, healthy=False)])
    _look(scheduler, 30.0)
    assert sorted(uid for uid, _ in _stated(log)) == ["first", "second"]


def _refused(scheduler: Scheduler, now: float) -> list[TakenStatusWrite]:
    """Look, and let the log refuse for good what is stated."""
    scheduler.follow()
    status = scheduler.state.status
    for write in status_facts(scheduler.state, now):
        status.writes.put(write)
    taken = list(iter(status.next, None))
    for each in taken:
        status.refused(each, for_good=True)
    return taken


def test_nothing_is_stated_of_a_pod_that_left_meanwhile() -> None:
    log, scheduler = _world("first", "second")
    _put(log, [gpu(0, healthy=False), gpu(1)])
    scheduler.follow()
    for write in status_facts(scheduler.state, 1.0):
        scheduler.state.status.writes.put(write)
    log.remove_pod("first")
    scheduler.run(2.0)
    assert _stated(log) == []
    _look(scheduler, 9.0)
    assert _stated(log) == []
    assert scheduler.state.books.devices.to_tell == {}


def test_a_second_scheduler_and_a_restart_state_nothing_twice() -> None:
    log, scheduler = _world("first", "second")
    other = Scheduler(log)
    _put(log, [gpu(0, healthy=False), gpu(1)])
    _look(scheduler, 1.0)
    _look(other, 2.0)
    assert _stated(log) == [("first", [SICK])]
    _put(log, [gpu(0), gpu(1)])
    scheduler.follow()
    restored = Scheduler(log)
    load_state(restored.state, b"".join(Picture(scheduler.state).pieces()))
    _look(restored, 3.0)
    _look(restored, 5.0)
    assert _stated(log) == [("first", [SICK]), ("first", [])]


def test_a_new_placement_on_healthy_devices_begins_without_failures() -> None:
    log, scheduler = _world("first")
    _put(log, [gpu(0, healthy=False), gpu(1)])
    _look(scheduler, 1.0)
    log.remove_node("a")
    scheduler.run(2.0)
    folded = _folded(log, "first")
    assert folded is not None
    assert folded.unhealthy_devices == []
    log.add_node(node("a", cpu="100", more={"nvidia.com/gpu": "8"}))
    for second in range(100, 104):
        _look(scheduler, float(second))
    assert scheduler.state.pods["first"].node == "a"
    assert _stated(log) == [("first", [SICK])]
