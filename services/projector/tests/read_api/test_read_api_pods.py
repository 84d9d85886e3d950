"""The read API about pods: pages and filters, the life of one, and why one is pending."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx
import msgspec
import pytest
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import memory_bus
from koordcore.events import CATALOGUE
from koordcore.events.descheduling import EvictionRefused, RoundMove
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.explanations import DecisionAbandoned, GangProgress, PodGated, PodUnschedulable
from koordcore.events.objects import PodSpecAdded
from koordcore.protocol import keys
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.stories.pending import MOST_CHARACTERS, pending_sentence
from support.projector.read_api import CLUSTER, get
from support.projector.service import serving
from support.servers import fresh_database
from support.until import DEADLINE_SECONDS

pytestmark = [pytest.mark.postgres, pytest.mark.xdist_group("read-api")]


def test_pods_are_filtered_and_paged(client: httpx.Client) -> None:
    every = get(client, "/api/pods", limit=1000)
    assert every["cursor"] is None
    assert every["total"] == len(every["pods"])
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = get(client, "/api/pods", limit=7, cursor=cursor)
        seen += [pod["uid"] for pod in page["pods"]]
        cursor = page["cursor"]
    assert seen == [pod["uid"] for pod in every["pods"]]
    for name, value in (
        ("qos", "BE"),
        ("phase", "pending"),
        ("namespace", "search"),
        ("node", next(pod["node"] for pod in every["pods"] if pod["node"])),
    ):
        found = get(client, "/api/pods", limit=1000, **{name: value})["pods"]
        assert [pod["uid"] for pod in found] == [pod["uid"] for pod in every["pods"] if pod[name] == value]
    one = every["pods"][5]
    assert get(client, "/api/pods", text=one["name"].upper())["pods"][0]["uid"] == one["uid"]
    assert get(client, "/api/pods", text="%")["total"] == 0


def test_a_pods_life_is_told_in_order_with_who_when_and_why(client: httpx.Client) -> None:
    tried = next(message.ref.id for message in CLUSTER.explanations if message.ref.id in _placed())
    answer = get(client, f"/api/pods/{tried}")
    steps = [entry["step"] for entry in answer["timeline"]]
    assert steps[0] == "submitted"
    assert steps.index("unschedulable") < steps.index("placed") < steps.index("started")
    placed = answer["timeline"][steps.index("placed")]
    fact = CLUSTER.facts[int(placed["position"]) - 1]
    assert (placed["type"], placed["actor"], placed["trace_id"]) == (
        "PodPlaced",
        fact.actor,
        fact.traceparent.split("-")[1],
    )
    assert placed["explanation"] == json.loads(fact.body)["explanation"]
    explanation = answer["timeline"][1]
    assert (explanation["stream"], explanation["explanation"]["nodes_feasible"]) == ("explanations", 0)
    by_name = get(client, f"/api/namespaces/{answer['pod']['namespace']}/pods/{answer['pod']['name']}")
    assert by_name["pod"]["uid"] == tried
    before = get(client, f"/api/pods/{tried}", at=placed["position"] - 1)
    assert before["pod"]["phase"] == "pending"
    assert before["pod"]["message"].startswith("0/20 nodes are available")
    last = [entry for entry in before["timeline"] if entry["type"] == "PodUnschedulable"][-1]
    assert before["pod"]["why"] == pending_sentence(msgspec.convert(last["body"], PodUnschedulable))
    assert answer["pod"]["why"] == ""


def _placed() -> set[str]:
    return {event.ref.id for event in CLUSTER.facts if event.type == "PodPlaced"}


def test_a_pod_that_is_gone_is_still_explained(client: httpx.Client) -> None:
    gone = next(event.ref.id for event in CLUSTER.facts if event.type == "PodReleased")
    answer = get(client, f"/api/pods/{gone}")
    assert answer["pod"]["phase"] == "gone"
    assert answer["object"] is None
    assert [entry["step"] for entry in answer["timeline"]][-3:] == ["stopped", "deleted", "released"]


def test_pending_reasons_are_counted(client: httpx.Client) -> None:
    answer = get(client, "/api/pending")
    pods = get(client, "/api/pods", phase="pending", limit=1000)
    assert answer["pending"] == pods["total"] > 0
    assert {pod["uid"] for pod in answer["pods"]} == {pod["uid"] for pod in pods["pods"]}
    assert answer["reasons"][0]["pods"] == max(reason["pods"] for reason in answer["reasons"])
    assert all(pod["message"].startswith("0/20 nodes") for pod in answer["pods"])
    assert all(0 < len(pod["why"]) <= MOST_CHARACTERS for pod in answer["pods"])


GATED = PodGated(namespace="n", name="g", message="gang group n/g has too few children")


GIVEN_UP = DecisionAbandoned(namespace="n", name="g", attempt=3, reason="refused by the log")


@pytest.mark.parametrize(("explanations", "attempts"), [((GATED,), 0), ((GIVEN_UP, GATED), 3)])
async def test_a_pod_that_may_not_be_attempted_is_told_why_and_whether_it_ever_was(
    postgres_server_dsn: str, explanations: Sequence[PodGated | DecisionAbandoned], attempts: int
) -> None:
    log = MemoryLog()
    submitted = PodSpecAdded(object=Pod(metadata=ObjectMeta(name="g", namespace="n", uid="u")))
    origin = Origin(causation_id="c", correlation_id="u", actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
    [sealed] = CATALOGUE.seal([Draft(AggregateRef("podspec", "u"), submitted, 0)], origin)
    log.store(sealed.ref, sealed.headers, sealed.body)
    bus = memory_bus(log=log)
    for second, explanation in enumerate(explanations):
        then = msgspec.structs.replace(origin, occurred_at=f"2026-01-01T00:00:0{second}.000000Z")
        await bus.explanations.publish(AggregateRef("pod", "u"), explanation, then)
    with fresh_database(postgres_server_dsn) as dsn:
        async with serving(dsn, bus) as url, httpx.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as client:
            answer: Any = {"pods": []}
            async with asyncio.timeout(DEADLINE_SECONDS):
                while [pod["message"] for pod in answer["pods"]] != [GATED.message]:
                    answer = (await client.get("/api/pending")).json()
    assert (answer["pending"], answer["examined"], answer["judged"], answer["reasons"]) == (1, 1, 1, [])
    assert (answer["attempted"], answer["pods"][0]["attempts"]) == (attempts > 0, attempts)


async def test_a_gang_is_told_with_the_number_of_its_members(postgres_server_dsn: str) -> None:
    log = MemoryLog()
    annotations = {keys.GANG_NAME: "training", keys.GANG_MIN_AVAILABLE: "3"}
    metadata = ObjectMeta(name="g", namespace="n", uid="u", annotations=annotations)
    origin = Origin(causation_id="c", correlation_id="u", actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
    submitted = PodSpecAdded(object=Pod(metadata=metadata))
    [sealed] = CATALOGUE.seal([Draft(AggregateRef("podspec", "u"), submitted, 0)], origin)
    log.store(sealed.ref, sealed.headers, sealed.body)
    progress = GangProgress(gang="n/training", needs=3, exist=1)
    bus = memory_bus(log=log)
    gated = PodGated(namespace="n", name="g", message="too few", gang=progress)
    await bus.explanations.publish(AggregateRef("pod", "u"), gated, origin)
    with fresh_database(postgres_server_dsn) as dsn:
        async with serving(dsn, bus) as url, httpx.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as client:
            pod: Any = {"pod": {"why": ""}}
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not pod["pod"]["why"]:
                    pod = (await client.get("/api/pods/u")).raise_for_status().json()
            gangs = (await client.get("/api/gangs")).raise_for_status().json()
    sentence = "Gang n/training: 0 of 3 placed, 1 of 3 exist: waits for 2 more pods."
    assert pod["pod"]["why"] == sentence
    assert [gang["why"] for gang in gangs["gangs"]] == [sentence]


async def test_a_pod_that_a_round_refused_before_it_was_pending_is_told_why_it_is_pending(
    postgres_server_dsn: str,
) -> None:
    log = MemoryLog()
    metadata = ObjectMeta(name="g", namespace="n", uid="u", annotations={keys.GANG_NAME: "gang"})
    origin = Origin(causation_id="c", correlation_id="u", actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
    [sealed] = CATALOGUE.seal(
        [Draft(AggregateRef("podspec", "u"), PodSpecAdded(object=Pod(metadata=metadata)), 0)], origin
    )
    log.store(sealed.ref, sealed.headers, sealed.body)
    bus = memory_bus(log=log)
    move = RoundMove(
        namespace="n", name="g", uid="u", node="m", profile="f", plugin="LowNodeLoad", reason="hot", round="at ten"
    )
    later = msgspec.structs.replace(origin, occurred_at="2026-01-01T00:00:09.000000Z")
    await bus.explanations.publish(AggregateRef("refusal", "u"), EvictionRefused(move=move, codes=["pvc"]), later)
    await bus.explanations.publish(AggregateRef("pod", "u"), GATED, origin)
    with fresh_database(postgres_server_dsn) as dsn:
        async with serving(dsn, bus) as url, httpx.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as client:
            paths = ("/api/pending", "/api/pods", "/api/pods/u", "/api/gangs")
            pending, pods, pod, gangs = [(await client.get(path)).raise_for_status().json() for path in paths]
    assert [pod["message"] for pod in pending["pods"]] == [GATED.message]
    assert [pod["message"] for pod in pods["pods"]] == [GATED.message]
    assert pod["pod"]["message"] == GATED.message
    assert [gang["message"] for gang in gangs["gangs"]] == [GATED.message]
    # Nothing states how many members the gang needs.
    assert [gang["why"] for gang in gangs["gangs"]] == [""]
