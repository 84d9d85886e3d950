"""GPUs and adapters of one PCIe switch: one broken adapter does not take a whole node out of use."""

import json
from typing import Any

import pytest
from koordcore.events.objects import CustomObjectObserved
from koordcore.protocol import keys
from support.scheduler.devices import CORE, RATIO, RDMA, VF_HINT, asking, board, device, gpu, nic
from support.scheduler.scheduling import Scheduler, SmallLog, node

JOINT = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
OFFERED = {"nvidia.com/gpu": "8", CORE: "800", RATIO: "800", RDMA: "400"}
PLANNED = {keys.SECONDARY_DEVICE_WELL_PLANNED: "true"}


def run(devices: list[Any], *, labels: dict[str, str] | None = None, gpus: int = 2, pods: int = 1) -> Scheduler:
    log = SmallLog()
    log.add_node(node("a", cpu="100", memory="1Ti", more=OFFERED))
    log.say("customspec", "devices=a", CustomObjectObserved(object=device("a", devices, labels=labels)))
    for number in range(pods):
        requests = {"nvidia.com/gpu": str(gpus), RDMA: "1"}
        log.add_pod(asking(f"p{number}", requests, hints=VF_HINT, joint=JOINT))
    scheduler = Scheduler(log)
    scheduler.run()
    return scheduler


def given(scheduler: Scheduler, uid: str) -> list[tuple[str, int]]:
    found = scheduler.state.assumed.ledgers.holders("a")
    return [(each.type, each.minor) for each in found[uid].allocation.devices] if uid in found else []


def without_first_adapter(how: str) -> list[Any]:
    """The board whose first switch, with GPUs 0 and 1, has no usable adapter."""
    devices = board()
    number = next(place for place, each in enumerate(devices) if each["type"] == "rdma")
    match how:
        case "absent":
            del devices[number]
        case "unhealthy":
            devices[number]["health"] = False
        case _:
            devices[number] = nic(1, numa=0, pcie="0", functions=0)
    return devices


@pytest.mark.parametrize("how", ["absent", "unhealthy", "without functions"])
@pytest.mark.parametrize("labels", [None, PLANNED])
def test_a_pod_gets_the_gpus_of_another_switch_if_the_first_one_has_no_adapter(
    how: str, labels: dict[str, str] | None
) -> None:
    assert given(run(without_first_adapter(how), labels=labels), "p0") == [("gpu", 2), ("gpu", 3), ("rdma", 2)]


def test_every_switch_with_an_adapter_is_used_before_the_node_refuses() -> None:
    scheduler = run(without_first_adapter("unhealthy"), pods=4)
    assert [len(given(scheduler, f"p{number}")) for number in range(4)].count(3) == 3
    (told,) = [each.event for each in scheduler.explanations]
    assert "Device Joint-Allocate rules violation" in json.dumps(str(told))


def test_a_pod_over_two_switches_gets_two_that_both_have_adapters() -> None:
    devices = [gpu(minor, numa=0, pcie=str(minor)) for minor in range(4)]
    devices += [nic(minor + 1, numa=0, pcie=str(minor)) for minor in (1, 3)]
    assert given(run(devices), "p0") == [("gpu", 1), ("gpu", 3), ("rdma", 2), ("rdma", 4)]


def test_one_zone_alone_is_tried_if_the_switches_of_both_zones_do_not_suit_together() -> None:
    devices = [gpu(minor, numa=minor // 2, pcie=str(minor // 2)) for minor in range(4)]
    devices += [nic(1, numa=0, pcie="0", functions=0), nic(2, numa=1, pcie="1")]
    assert given(run(devices), "p0") == [("gpu", 2), ("gpu", 3), ("rdma", 2)]


def test_a_node_that_is_said_to_be_well_planned_is_refused_by_the_filter_if_an_adapter_is_missing() -> None:
    devices = [each for each in board() if each["type"] == "gpu"] + [nic(1, numa=0, pcie="9")]
    scheduler = run(devices, labels=PLANNED)
    (told,) = [each.event for each in scheduler.explanations]
    assert "0/1 nodes are available" in str(told), "the filter has refused it, not Reserve"
    assert scheduler.state.books.devices.not_well_planned == {"a"}
