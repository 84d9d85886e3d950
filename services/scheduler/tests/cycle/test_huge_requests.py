"""Pods that request more than a 64-bit integer holds: they wait, and others are placed."""

from collections.abc import Callable
from typing import Any

import pytest
from koord_scheduler.domain.fit.answering import check_question
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol.objects import Pod
from koordcore.requests.fit import FitRequest, PodSet
from koordcore.values.invalid import InvalidInput
from support.scheduler.devices import board, device
from support.scheduler.numa import add_numa_node, lsr_pod
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod

AMOUNTS = ("9e15", "20E")
"""Within the limit of one container, and above that of 64 bits."""
RESOURCES = (
    "cpu",
    "memory",
    "kubernetes.io/batch-cpu",
    "nvidia.com/gpu",
    "koordinator.sh/gpu-memory",
    "koordinator.sh/gpu-memory-ratio",
    "koordinator.sh/rdma",
    "example.com/x",
)


def hardware(log: SmallLog) -> None:
    add_numa_node(log, "zones")
    document: dict[str, Any] = device("plain", board())
    ref = custom_ref("devices", "", "plain")
    log.say(ref.kind, ref.id, CustomObjectObserved(object=document))


def huge(requests: dict[str, str]) -> Pod:
    """A pod of two containers with these requests each."""
    plain = pod("huge", requests)
    plain.spec.containers.append(plain.spec.containers[0])
    return plain


def pods_to_try() -> list[Any]:
    makers: dict[str, Callable[[str], Pod]] = {
        **{resource: lambda amount, name=resource: huge({"cpu": "1", name: amount}) for resource in RESOURCES},
        "LSR": lambda amount: lsr_pod("huge", amount),
        "SingleNUMANode": lambda amount: lsr_pod("huge", amount, policy="SingleNUMANode"),
        "zone-memory": lambda amount: lsr_pod("huge", 2, memory=amount, policy="Restricted"),
    }
    return [pytest.param(make(amount), id=f"{name}-{amount}") for name, make in makers.items() for amount in AMOUNTS]


@pytest.mark.parametrize("asked", pods_to_try())
def test_a_pod_that_requests_more_than_64_bits_waits_and_holds_nobody_up(asked: Pod) -> None:
    log = SmallLog()
    log.add_node(node("plain"))
    hardware(log)
    log.add_pod(asked)
    log.add_pod(pod("small", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert scheduler.state.pods["small"].node
    assert not scheduler.state.pods["huge"].node
    told = [each.event for each in scheduler.explanations if each.uid == "huge"]
    assert told
    assert all(isinstance(event, PodUnschedulable) for event in told)
    assert "integer" not in str(told), "not the wrong reason"


def test_a_huge_pod_fills_a_huge_node() -> None:
    log = SmallLog()
    log.add_node(node("plain", cpu="20E", memory="20E"))
    log.add_pod(huge({"cpu": "9e15", "memory": "9e18"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert scheduler.state.pods["huge"].node == "plain", "both count as the largest amount"
    log.add_pod(pod("next", {"cpu": "1"}))
    scheduler.run()
    assert not scheduler.state.pods["next"].node


def test_a_capacity_question_about_such_a_pod_is_refused() -> None:
    scheduler = Scheduler(SmallLog())
    request = FitRequest(pods=[PodSet(pod=huge({"cpu": "9e15"}))])
    with pytest.raises(InvalidInput, match=r"resources\[cpu\]"):
        check_question(scheduler.state, request)
