"""The day on which devices fail: each rule of its audit finds what breaks it, and every node with GPUs has its turn."""

from collections.abc import Sequence
from typing import Any

import pytest
from koordcore.events.envelope import AggregateRef, BasedOn, Event, StoredEvent
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved
from koordcore.events.pod import PlacementExplanation, PodDeviceUnhealthy, PodPlaced, PodReleased, UnhealthyDevice
from koordcore.values.allocation import AllocatedDevice, Allocation
from koordctl.demo.device_health import DeviceAudit, DeviceId
from koordctl.demo.failing_devices import WAVES, waves
from koordctl.demo.trace import TraceNode, TracePod, pod_manifest, with_rdma

OBJECT = "customspec.devices=n"


def board(*unhealthy: int, gpus: int = 2) -> tuple[str, Event]:
    devices: list[dict[str, Any]] = [
        {"type": "gpu", "minor": minor, "health": minor not in unhealthy} for minor in range(gpus)
    ]
    return OBJECT, CustomObjectObserved(object={"metadata": {"name": "n"}, "spec": {"devices": devices}})


def deleted() -> tuple[str, Event]:
    return OBJECT, CustomObjectDeleted(kind="Device", name="n")


def placed(uid: str, minor: int, *, based_on: int) -> tuple[str, Event]:
    explanation = PlacementExplanation(
        nodes_considered=1, nodes_feasible=1, policy_version="v", based_on=BasedOn(ev=based_on)
    )
    return f"pod.{uid}", PodPlaced(
        namespace="d",
        name=uid,
        node="n",
        requests={},
        attempt=1,
        queued_at="",
        allocation=Allocation(devices=(AllocatedDevice(type="gpu", minor=minor),)),
        explanation=explanation,
    )


def told(uid: str, *minors: int) -> tuple[str, Event]:
    devices = [UnhealthyDevice(type="gpu", minor=minor, id="") for minor in minors]
    return f"pod.{uid}", PodDeviceUnhealthy(namespace="d", name=uid, node="n", devices=devices)


def released(uid: str) -> tuple[str, Event]:
    return f"pod.{uid}", PodReleased(namespace="d", name=uid, node="n", reason="deleted")


def audited(*events: tuple[str, Event]) -> DeviceAudit:
    audit = DeviceAudit()
    for seq, (subject, event) in enumerate(events, 1):
        kind, _, id_ = subject.partition(".")
        audit.see(StoredEvent(seq, AggregateRef(kind, id_), {}, b""), event)
    return audit


def test_a_day_as_it_should_be_breaks_no_rule() -> None:
    audit = audited(
        board(), placed("a", 0, based_on=1), board(0), told("a", 0), placed("b", 1, based_on=3), board(), told("a")
    )
    assert (audit.on_unhealthy, audit.missed, audit.untold()) == ([], [], [])
    assert (audit.placed, audit.told, audit.holders) == (2, 1, 2)
    assert (audit.failed, audit.recovered) == ({"gpu": 1}, {"gpu": 1})


@pytest.mark.parametrize("failure", [board(0), board(gpus=0), deleted()], ids=["unhealthy", "vanished", "deleted"])
def test_a_placement_on_a_failed_device_is_found(failure: tuple[str, Event]) -> None:
    audit = audited(board(), failure, placed("a", 0, based_on=2))
    assert audit.on_unhealthy == ["pod d/a got gpu 0 of n at position 3, based on 2; the device was not healthy"]


def test_a_placement_decided_before_the_failure_is_fine_and_has_to_be_told() -> None:
    audit = audited(board(), board(0), placed("a", 0, based_on=1))
    assert audit.on_unhealthy == []
    assert audit.untold() == ["pod d/a on n: unhealthy of its devices are gpu 0, and its last fact names none"]


@pytest.mark.parametrize("failure", [board(0), board(gpus=0), deleted()], ids=["unhealthy", "vanished", "deleted"])
def test_a_pod_that_was_never_told_is_found_also_after_the_recovery(failure: tuple[str, Event]) -> None:
    events: Sequence[tuple[str, Event]] = (board(), placed("a", 0, based_on=1), failure)
    assert len(audited(*events).untold()) == 1
    assert audited(*events, board()).missed == ["pod d/a on n was not told that gpu 0 was unhealthy from position 3 on"]


def test_a_recovery_that_is_not_told_is_found() -> None:
    audit = audited(board(), placed("a", 0, based_on=1), board(0), told("a", 0), board())
    assert audit.untold() == ["pod d/a on n: unhealthy of its devices are none, and its last fact names gpu 0"]


def test_a_pod_that_ended_has_nothing_to_hear() -> None:
    audit = audited(board(), placed("a", 0, based_on=1), board(0), released("a"))
    assert (audit.holders, audit.untold()) == (0, [])


def test_each_node_fails_at_most_once_a_day_and_every_kind_of_failure_occurs() -> None:
    nodes = [
        TraceNode(name=f"n{number}", cpu_milli=1000, memory_mib=1024, gpus=number % 3 * 4, model="T4")
        for number in range(60)
    ]
    day = waves(nodes)
    assert len(day) == WAVES
    names = [name for wave in day for name in {name for name, _ in wave.devices()}]
    assert len(names) == len(set(names)) == 40
    for wave in day:
        assert {device.type for _, device in wave.single} == {"gpu", "rdma"}
        assert wave.vanishing
    assert day[0].vanishing["n10"] == (
        *(DeviceId("gpu", n) for n in range(4)),
        *(DeviceId("rdma", n) for n in range(2)),
    )
    assert waves([]) == [type(day[0])(single=(), vanishing={})] * WAVES


def test_a_pod_with_rdma_is_the_pod_of_the_trace_and_a_function_beside_its_gpus() -> None:
    plain = pod_manifest(
        TracePod(name="p", cpu_milli=1000, memory_mib=1024, gpus=1, gpu_milli=1000, models=(), qos="Guaranteed")
    )
    both = with_rdma(plain)
    amounts = both["spec"]["containers"][0]["resources"]
    assert amounts["requests"]["koordinator.sh/rdma"] == amounts["limits"]["koordinator.sh/rdma"] == "1"
    assert both["metadata"]["annotations"].items() > plain["metadata"].get("annotations", {}).items()
    assert "koordinator.sh/rdma" not in plain["spec"]["containers"][0]["resources"]["requests"]
