"""Kubernetes events are written beside nominated nodes and conditions, and no event waits for one about another pod."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.pending_writes import PendingWrites
from koord_manager.domain.gateway.pod_status_writes import KubernetesEvent, failed_scheduling, scheduled
from koord_manager.shell.gateway.api import ApiResponse
from koord_manager.shell.gateway.event_recorder import CONCURRENT, EventRecorder
from koordcore.bus.factory import memory_bus
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects import PodSpecAdded
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import logger
from support.histories.recording import stored
from support.until import until


class Api:
    """An API server that accepts everything. After each write of a nominated node, another one waits."""

    def __init__(self, pending: PendingWrites) -> None:
        self.pending = pending
        self.events = 0

    async def request(self, method: str, path: str, **_: Any) -> ApiResponse:
        await asyncio.sleep(0)
        if "/events" in path:
            self.events += 1
        else:
            self.pending.nominated["uid-web"] = "n"
        return ApiResponse(200, b"{}")


class HoldingApi:
    """An API server that answers the writes about a pod in `held` only after `release`.

    Attributes:
        held: Names of pods.
        asked: Pod and reason of each created event, or pod and nominated node, in the order of arrival.
        in_flight: Number of writes without an answer.
        most_in_flight: The largest number of them at any moment.
    """

    def __init__(self, *held: str) -> None:
        self.held = {name: asyncio.Event() for name in held}
        self.asked: list[tuple[str, str]] = []
        self.in_flight = self.most_in_flight = 0

    def release(self, name: str) -> None:
        self.held.pop(name).set()

    async def request(self, method: str, path: str, *, body: dict[str, Any], **_: Any) -> ApiResponse:
        if "/events" in path:
            name, what = body["involvedObject"]["name"], body["reason"]
        else:
            name, what = path.split("/")[-2], body["status"]["nominatedNodeName"]
        self.asked.append((name, what))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        answered = self.held.get(name)
        await (answered.wait() if answered is not None else asyncio.sleep(0))
        self.in_flight -= 1
        return ApiResponse(201, b"{}")


@contextlib.asynccontextmanager
async def recording(api: Any, pending: PendingWrites, view: ManagerView | None = None) -> AsyncGenerator[EventRecorder]:
    """Run a recorder until the context ends."""
    explanations, clock, log = memory_bus().explanations, SystemClock(), logger("t")
    recorder = EventRecorder(api, view or ManagerView(), pending, explanations, clock, log, "t")
    saying = asyncio.create_task(recorder.say())
    try:
        yield recorder
    finally:
        saying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await saying


def bound(name: str) -> KubernetesEvent:
    return scheduled(f"uid-{name}", "d", name, "n")


def unschedulable(name: str) -> KubernetesEvent:
    return failed_scheduling(f"uid-{name}", "d", name, "no node fits")


def with_pods(*names: str) -> ManagerView:
    """A view with pods that have no node; the uid of each is `uid-` and its name."""
    view = ManagerView()
    for seq, name in enumerate(names, 1):
        pod = Pod(metadata=ObjectMeta(name=name, namespace="d", uid=f"uid-{name}"))
        view.fold(stored(seq, Draft(AggregateRef("podspec", f"uid-{name}"), PodSpecAdded(object=pod), 0)))
    return view


async def test_events_do_not_wait_for_conditions_that_keep_coming() -> None:
    view, pending = with_pods("web"), PendingWrites()
    pending.nominated["uid-web"] = "n"
    pending.events.extend(bound(f"web-{number}") for number in range(20))
    api = Api(pending)
    async with recording(api, pending, view) as recorder:
        await until(lambda: api.events == 20)
        pending.events.append(bound("late"))
        recorder.wake()
        await until(lambda: api.events == 21)


async def test_a_slow_answer_delays_only_the_events_about_its_pod() -> None:
    pending, api = PendingWrites(), HoldingApi("slow")
    pending.events.extend((unschedulable("slow"), bound("slow"), *(bound(f"web-{number}") for number in range(30))))
    async with recording(api, pending) as recorder:
        await until(lambda: len(api.asked) == 31)
        asked_of_slow = [reason for name, reason in api.asked if name == "slow"]
        was_idle = recorder.is_idle
        api.release("slow")
        await until(lambda: recorder.is_idle)

    assert (asked_of_slow, was_idle) == (["FailedScheduling"], False)
    assert api.asked[-1] == ("slow", "Scheduled")


async def test_an_answer_makes_room_for_one_more_event() -> None:
    names = [f"web-{number}" for number in range(CONCURRENT + 3)]
    pending, api = PendingWrites(), HoldingApi(*names)
    pending.events.extend(bound(name) for name in names)
    async with recording(api, pending) as recorder:
        await until(lambda: len(api.asked) == CONCURRENT)
        api.release(names[CONCURRENT - 1])
        await until(lambda: len(api.asked) == CONCURRENT + 1)
        for name in list(api.held):
            api.release(name)
        await until(lambda: recorder.is_idle)

    assert api.asked == [(name, "Scheduled") for name in names]
    assert api.most_in_flight == CONCURRENT


async def test_a_slow_answer_delays_only_the_nominated_nodes_of_its_pod() -> None:
    names = ["slow", *(f"web-{number}" for number in range(30))]
    pending, api = PendingWrites(), HoldingApi("slow")
    pending.nominated.update({f"uid-{name}": "a" for name in names})
    async with recording(api, pending, with_pods(*names)) as recorder:
        await until(lambda: len(api.asked) == len(names))
        pending.nominated.update({"uid-slow": "b", "uid-web-0": "b"})
        recorder.wake()
        await until(lambda: api.asked[-1] == ("web-0", "b"))
        asked_of_slow = [node for name, node in api.asked if name == "slow"]
        was_idle = recorder.is_idle
        api.release("slow")
        await until(lambda: recorder.is_idle)

    assert (asked_of_slow, was_idle) == (["a"], False)
    assert api.asked[-1] == ("slow", "b")


async def test_only_so_many_nominated_nodes_are_written_at_once() -> None:
    names = [f"web-{number}" for number in range(CONCURRENT + 3)]
    pending, api = PendingWrites(), HoldingApi(*names)
    pending.nominated.update({f"uid-{name}": "a" for name in names})
    async with recording(api, pending, with_pods(*names)) as recorder:
        await until(lambda: len(api.asked) == CONCURRENT)
        api.release(names[0])
        await until(lambda: len(api.asked) == CONCURRENT + 1)
        for name in list(api.held):
            api.release(name)
        await until(lambda: recorder.is_idle)

    assert api.asked == [(name, "a") for name in names]
    assert api.most_in_flight == CONCURRENT
