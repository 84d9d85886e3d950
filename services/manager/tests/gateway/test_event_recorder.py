"""Kubernetes events are written beside nominated nodes and conditions, and no event waits for one about another pod."""

import asyncio
from typing import Any, Final

import pytest
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.pending_writes import PendingWrites
from koord_manager.domain.gateway.pod_status_writes import KubernetesEvent, failed_scheduling, scheduled
from koord_manager.shell.gateway import event_recorder
from koord_manager.shell.gateway.api import ApiResponse
from koord_manager.shell.gateway.event_recorder import ATTEMPTS, CONCURRENT
from koordcore.bus.factory import memory_bus
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Origin
from koordcore.events.explanations import Diagnosis, NodeFailure, PodUnschedulable, Shortage
from koordcore.events.objects import PodSpecAdded
from koordcore.events.pod import PlacementExplanation
from koordcore.ports.eventlog import ObservationLog
from koordcore.protocol.objects import ObjectMeta, Pod
from support.histories.recording import stored
from support.manager.event_recording import recording
from support.until import until

NOW: Final = "2026-01-01T00:00:00.000000Z"


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


class ConditionsApi:
    """An API server that stores the conditions of pods, after it has refused the first `away` requests for a while."""

    def __init__(self, away: int = 0) -> None:
        self.away = away
        self.messages: list[tuple[str, str]] = []
        self.reasons: list[str] = []

    async def request(self, method: str, path: str, *, body: dict[str, Any], **_: Any) -> ApiResponse:
        await asyncio.sleep(0)
        if self.away:
            self.away -= 1
            return ApiResponse(503, b"{}")
        if path.endswith("/status"):
            condition = body["status"]["conditions"][0]
            self.messages.append((path.split("/")[-2], condition["message"]))
            self.reasons.append(condition["reason"])
        return ApiResponse(200, b"{}")


class EventsApi:
    """An API server that keeps the writes of events: method and body."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []

    async def request(self, method: str, path: str, *, body: dict[str, Any], **_: Any) -> ApiResponse:
        await asyncio.sleep(0)
        self.requests.append((method, body))
        return ApiResponse(200, b"{}")


def bound(name: str) -> KubernetesEvent:
    return scheduled(f"uid-{name}", "d", name, "n")


def unschedulable(name: str) -> KubernetesEvent:
    return failed_scheduling(f"uid-{name}", "d", name, "no node fits")


def with_pods(*names: str) -> ManagerView:
    """A view with pods that have no node; the uid of each is `uid-` and its name."""
    view = ManagerView()
    for seq, name in enumerate(names, 1):
        add_pod(view, seq, name)
    return view


def add_pod(view: ManagerView, seq: int, name: str) -> None:
    pod = Pod(metadata=ObjectMeta(name=name, namespace="d", uid=f"uid-{name}"))
    view.fold(stored(seq, Draft(AggregateRef("podspec", f"uid-{name}"), PodSpecAdded(object=pod), 0)))


async def explain(
    explanations: ObservationLog,
    name: str,
    message: str,
    based_on: int,
    reason: str = "",
    diagnosis: Diagnosis | None = None,
) -> None:
    """Publish that no node fits a pod, as a scheduler that has folded the facts up to `based_on`."""
    examined = PlacementExplanation(
        nodes_considered=1, nodes_feasible=0, policy_version="p", based_on=BasedOn(based_on)
    )
    event = PodUnschedulable(
        namespace="d",
        name=name,
        attempt=1,
        queued_at=NOW,
        message=message,
        explanation=examined,
        diagnosis=diagnosis,
        reason=reason,
    )
    origin = Origin(causation_id=name, correlation_id=name, actor="t", occurred_at=NOW, based_on=based_on)
    await explanations.publish(AggregateRef("pod", f"uid-{name}"), event, origin)


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


@pytest.mark.parametrize(
    ("reason", "true_reasons", "written"),
    [
        ("", True, "Unschedulable"),
        ("QuotaExceeded", True, "QuotaExceeded"),
        ("QuotaExceeded", False, "Unschedulable"),
    ],
)
async def test_condition_has_the_reason_of_the_explanation(reason: str, true_reasons: bool, written: str) -> None:
    bus, api = memory_bus(), ConditionsApi()
    async with recording(api, PendingWrites(), with_pods("web"), bus.explanations, true_reasons=true_reasons):
        await explain(bus.explanations, "web", "no", 1, reason)
        await until(lambda: api.messages == [("web", "no")])
    assert api.reasons == [written]


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


async def test_an_explanation_that_comes_before_its_pod_is_written_when_the_pod_is_known() -> None:
    view, api, explanations = with_pods("old"), ConditionsApi(), memory_bus().explanations
    async with recording(api, PendingWrites(), view, explanations) as recorder:
        await explain(explanations, "old", "no memory", based_on=1)
        await until(lambda: api.messages)
        await explain(explanations, "new", "no CPU", based_on=2)
        await explain(explanations, "old", "no disk", based_on=1)
        await until(lambda: len(api.messages) == 2)
        waits = not recorder.is_idle
        add_pod(view, 2, "new")
        recorder.wake()
        await until(lambda: recorder.is_idle)

    assert waits
    assert api.messages == [("old", "no memory"), ("old", "no disk"), ("new", "no CPU")]


def lacking(cpu: int, memory: int) -> Diagnosis:
    """Of two nodes, one lacks CPU and one memory, with these largest free amounts; both lack one of four."""
    failures = [
        NodeFailure(
            plugin="NodeResourcesFit",
            reason=f"Insufficient {resource}",
            count=1,
            preempt_might_help=True,
            shortages=[Shortage(resource, 4, most, 8)],
        )
        for resource, most in (("cpu", cpu), ("memory", memory))
    ]
    return Diagnosis(questioned_key="d/web", failures=failures)


async def test_a_sentence_that_varies_between_equal_messages_is_written_once() -> None:
    message = "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."
    view, pending, explanations = with_pods("web"), PendingWrites(), memory_bus().explanations
    api, said = ConditionsApi(), EventsApi()

    class Both:
        async def request(self, method: str, path: str, *, body: dict[str, Any], **_: Any) -> ApiResponse:
            return await (said if "/events" in path else api).request(method, path, body=body)

    async with recording(Both(), pending, view, explanations) as recorder:
        for number, (cpu, memory) in enumerate([(3, 1), (1, 3), (2, 1), (1, 2)], 1):
            await explain(explanations, "web", message, based_on=1, diagnosis=lacking(cpu, memory))
            await until(lambda number=number: len(said.requests) == number and recorder.is_idle)

    sentence = "1 of 2 nodes only lacks cpu (needs 4m); 1 lacks memory (needs 4). It helps if pods leave there."
    assert api.messages == [("web", f"{message} {sentence}")]
    assert [method for method, _ in said.requests] == ["POST", "PATCH", "PATCH", "PATCH"]
    assert said.requests[0][1]["message"] == f"{message} {sentence}"
    assert said.requests[-1][1]["count"] == 4


async def test_a_condition_is_written_when_the_api_server_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "LATER_SECONDS", 0.01)
    view, api, explanations = with_pods("web"), ConditionsApi(away=2 * ATTEMPTS), memory_bus().explanations
    async with recording(api, PendingWrites(), view, explanations):
        await explain(explanations, "web", "no CPU", based_on=1)
        await until(lambda: api.messages)

    assert api.messages == [("web", "no CPU")]
