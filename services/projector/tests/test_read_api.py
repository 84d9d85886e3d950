"""The read API over HTTP: what it answers about a believable cluster, and that its OpenAPI document is true."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import psycopg
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from koord_projector.shell.postgres.database import Database
from koord_projector.shell.progress import Progress
from koord_projector.shell.web import live
from koord_projector.shell.web.api import routes_of
from koord_projector.shell.web.handlers import Handlers
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import memory_bus
from koordcore.events import CATALOGUE
from koordcore.events.agents.observation import NodeUsageReported, Usage
from koordcore.events.descheduling.decisions import EvictionRefused, RoundMove
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.objects.custom import custom_ref
from koordcore.events.objects.mirror import PodSpecAdded, PriorityClassObserved
from koordcore.events.scheduling.explanations import DecisionAbandoned, PodGated
from koordcore.protocol import keys
from koordcore.protocol.objects import ObjectMeta, Pod, PriorityClass
from koordcore.service.clock import SystemClock
from koordcore.service.health import Condition
from koordcore.state import ClusterState
from koordcore.state.aggregates import CustomObjectState, NodeLedger, NodeSpecState
from koordcore.stories.hardware import node_hardware
from koordcore.stories.usage_archive import ReportsAnswer
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    positive_data_acceptance,  # pyright: ignore[reportUnknownVariableType]  partly untyped
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from support.projector.service import served_in_a_thread, serving
from support.projector.synthetic_cluster import SyntheticCluster, small
from support.servers import drop_database, fresh_database
from support.until import DEADLINE_SECONDS

pytestmark = [pytest.mark.postgres, pytest.mark.xdist_group("read-api")]

CLUSTER = SyntheticCluster(nodes=20, pods=200)


@pytest.fixture(scope="module")
def base_url(postgres_server_dsn: str) -> Iterator[str]:
    with fresh_database(postgres_server_dsn) as dsn, served_in_a_thread(dsn, CLUSTER) as url:
        yield url


@pytest.fixture
def client(base_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base_url, timeout=DEADLINE_SECONDS) as client:
        yield client


def get(client: httpx.Client, path: str, **query: Any) -> Any:
    response = client.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def folded(upto: int) -> ClusterState:
    state = ClusterState()
    for event in CLUSTER.facts[:upto]:
        state.apply(event)
    return state


def test_status_and_hash_are_those_of_the_log(client: httpx.Client) -> None:
    status = get(client, "/api/status")
    assert (status["position"], status["lag_events"], status["trouble"]) == (len(CLUSTER.facts), 0, "")
    assert (status["first_at"], status["last_at"]) == (CLUSTER.facts[0].occurred_at, CLUSTER.facts[-1].occurred_at)
    assert get(client, "/api/hash") == {"position": len(CLUSTER.facts), "hash": folded(len(CLUSTER.facts)).hash()}


def test_the_cluster_is_the_sum_of_its_nodes_at_every_moment(client: httpx.Client) -> None:
    for at in ("", "100", CLUSTER.facts[500].occurred_at):
        cluster, nodes = get(client, "/api/cluster", at=at), get(client, "/api/nodes", at=at)
        assert cluster["moment"] == nodes["moment"]
        for name in ("cpu_milli", "cpu_requested", "memory_requested", "batch_cpu"):
            assert cluster[name] == sum(node[name] for node in nodes["nodes"])
        pods = get(client, "/api/pods", at=at, limit=1000)
        assert {phase: count for phase, count in cluster["pods"].items() if count} == pods["counts"]


def test_the_hardware_of_a_node_is_that_of_the_moment(client: httpx.Client) -> None:
    devices = get(client, "/api/devices")["nodes"]
    assert [node["node"] for node in devices] == sorted(node["node"] for node in devices)
    name = max(devices, key=lambda node: len(node["owners"]))["node"]
    assert get(client, f"/api/nodes/{name}/hardware")["hardware"]["conflicts"] == []
    for at in (100, len(CLUSTER.facts) // 2, len(CLUSTER.facts)):
        state = folded(at)
        spec, ledger = state.get(AggregateRef("nodespec", name)), state.get(AggregateRef("node", name))
        topology, device = (state.get(custom_ref(kind, "", name)) for kind in ("noderesourcetopologies", "devices"))
        assert isinstance(spec, NodeSpecState)
        assert isinstance(topology, CustomObjectState)
        assert isinstance(device, CustomObjectState)
        expected = node_hardware(
            name,
            node=spec.object,
            topology=topology.object,
            device=device.object,
            pods=ledger.pods if isinstance(ledger, NodeLedger) else {},
        )
        answer = get(client, f"/api/nodes/{name}/hardware", at=at)
        assert answer["moment"]["position"] == at
        assert answer["hardware"] == json.loads(msgspec.json.encode(expected))
        cards = next(node["cards"] for node in get(client, "/api/devices", at=at)["nodes"] if node["node"] == name)
        in_order = sorted(expected.cards, key=lambda card: (card.type, card.minor))
        assert cards == json.loads(msgspec.json.encode(in_order))


def test_gpu_shares_of_the_list_are_those_of_the_cards_at_every_moment(client: httpx.Client) -> None:
    seen = 0
    for at in (100, len(CLUSTER.facts) // 3, len(CLUSTER.facts) // 2, len(CLUSTER.facts), ""):
        listed = {node["node"]: node["cards"] for node in get(client, "/api/devices", at=at)["nodes"]}
        for node in get(client, "/api/nodes", at=at)["nodes"]:
            gpus = [card for card in listed.get(node["name"], ()) if card["type"] == "gpu"]
            used = sum(card["percent_used"] for card in gpus)
            free = sum(100 - card["percent_used"] for card in gpus if card["percent_used"])
            shown = (node["gpu_cards"], node["gpu_share_used"], node["gpu_share_stranded"])
            assert shown == (len(gpus), used, free)
            seen += used
    assert seen > 0


def test_devices_come_in_pages(client: httpx.Client) -> None:
    everything = [node["node"] for node in get(client, "/api/devices")["nodes"]]
    for at in ("", len(CLUSTER.facts)):
        found: list[str] = []
        after = ""
        while after is not None:
            page = get(client, "/api/devices", at=at, after=after, limit=1)
            found += [node["node"] for node in page["nodes"]]
            after = page["after"]
        assert found == everything


def test_usage_belongs_to_the_moment(client: httpx.Client) -> None:
    half = CLUSTER.reports[len(CLUSTER.reports) // 2].origin.occurred_at
    known = {node["name"]: node for node in get(client, "/api/nodes", at=half)["nodes"]}
    newest: dict[str, NodeUsageReported] = {}
    moment = get(client, "/api/nodes", at=half)["moment"]["occurred_at"]
    for message in CLUSTER.reports:
        assert isinstance(message.event, NodeUsageReported)
        if message.event.updated_at <= moment:
            newest[message.ref.id] = message.event
    for name, report in newest.items():
        assert report.node_usage is not None
        assert known[name]["cpu_used"] == report.node_usage.cpu_milli
        assert known[name]["silent_seconds"] is None


def test_a_node_whose_newest_report_has_expired_counts_as_silent(client: httpx.Client) -> None:
    silent = [node for node in get(client, "/api/nodes")["nodes"] if node["reported_at"]]
    assert silent
    assert all(node["silent_seconds"] > 300 for node in silent), "the reports are of a past day"
    cluster = get(client, "/api/cluster")
    assert (cluster["nodes_silent"], cluster["nodes_reporting"]) == (len(silent), 0)


def test_archived_reports_come_in_pages_in_the_order_of_their_times_with_the_bodies_of_the_agents(
    client: httpx.Client,
) -> None:
    written = [
        (message.event.updated_at, message.ref.id, seq, codec.encode(message.event))
        for seq, message in enumerate(CLUSTER.reports, 1)
        if isinstance(message.event, NodeUsageReported)
    ]
    for since in ("", sorted(written)[len(written) // 2][0]):
        found: list[tuple[str, str, int, bytes]] = []
        next_since, after = since, ""
        while True:
            answer = client.get("/api/observations", params={"since": next_since, "after": after, "limit": 7})
            page = codec.decode(answer.content, ReportsAnswer).reports
            if not page:
                break
            found += [(each.reported_at, each.node, each.seq, bytes(each.body)) for each in page]
            next_since, after = page[-1].reported_at, page[-1].node
        assert found == sorted(each for each in written if each[0] >= since)


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


def _placed() -> set[str]:
    return {event.ref.id for event in CLUSTER.facts if event.type == "PodPlaced"}


def test_a_pod_that_is_gone_is_still_explained(client: httpx.Client) -> None:
    gone = next(event.ref.id for event in CLUSTER.facts if event.type == "PodReleased")
    answer = get(client, f"/api/pods/{gone}")
    assert answer["pod"]["phase"] == "gone"
    assert answer["object"] is None
    assert [entry["step"] for entry in answer["timeline"]][-3:] == ["stopped", "deleted", "released"]


def test_a_node_explains_what_is_reclaimed_and_held_back(client: httpx.Client) -> None:
    suppressed = next(event.ref.id for event in CLUSTER.facts if event.type == "BeCpuSuppressed")
    answer = get(client, f"/api/nodes/{suppressed}")
    terms = answer["overcommit"][0]["body"]["terms"]["cpu"]
    taken = terms["margin"] + max(terms["system_used"], terms.get("reserved", 0)) + terms["high_priority_used"]
    assert terms["result"] == max(0, terms["capacity"] - taken)
    assert answer["suppression"][0]["body"]["terms"]["threshold_percent"] == 65
    assert len(answer["usage"]) == sum(1 for message in CLUSTER.reports if message.ref.id == suppressed)
    assert {pod["node"] for pod in answer["pods"]} <= {suppressed}


def test_pending_reasons_are_counted(client: httpx.Client) -> None:
    answer = get(client, "/api/pending")
    pods = get(client, "/api/pods", phase="pending", limit=1000)
    assert answer["pending"] == pods["total"] > 0
    assert {pod["uid"] for pod in answer["pods"]} == {pod["uid"] for pod in pods["pods"]}
    assert answer["reasons"][0]["pods"] == max(reason["pods"] for reason in answer["reasons"])
    assert all(pod["message"].startswith("0/20 nodes") for pod in answer["pods"])


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


def test_events_are_paged_backwards_and_filtered(client: httpx.Client) -> None:
    seen: list[int] = []
    before: int | None = 400
    while before is not None:
        page = get(client, "/api/events", before=before, limit=90)
        seen += [event["seq"] for event in page["events"]]
        before = page["before"]
    assert seen == list(range(399, 0, -1))
    only = get(client, "/api/events", type="PodPlaced", limit=500)["events"]
    assert len(only) == sum(1 for event in CLUSTER.facts if event.type == "PodPlaced")
    whole = get(client, f"/api/events/{only[0]['seq']}")
    assert whole["body"] == json.loads(CLUSTER.facts[int(whole["seq"]) - 1].body)


def test_objects_can_be_read_as_of_any_moment(client: httpx.Client) -> None:
    uid = next(event.ref.id for event in CLUSTER.facts if event.type == "PodPlaced")
    placed = next(event.seq for event in CLUSTER.facts if event.type == "PodPlaced")
    assert get(client, f"/api/objects/pod/{uid}", at=placed - 1)["state"] is None
    assert get(client, f"/api/objects/pod/{uid}", at=placed)["state"]["seq"] == placed
    ids: list[str] = []
    after = ""
    while after is not None:
        page = get(client, "/api/objects/nodespec", at="300", limit=6, after=after)
        ids += [each["id"] for each in page["objects"]]
        after = page["after"]
    assert ids == sorted(event.ref.id for event in CLUSTER.facts[:300] if event.ref.kind == "nodespec")


def test_series_are_columns_over_the_whole_time(client: httpx.Client) -> None:
    answer = get(client, "/api/series", points=50)
    assert answer["time"] == sorted(answer["time"])
    assert {len(column) for column in answer["columns"].values()} == {len(answer["time"])}
    cluster = get(client, "/api/cluster")
    assert answer["columns"]["cpu_requested"][-1] == cluster["cpu_requested"]
    assert answer["usage"]["cpu"]
    assert {len(column) for column in answer["usage"].values()} == {len(answer["usage_time"])}


async def usage_of(dsn: str, reports: Sequence[tuple[str, int, int]]) -> tuple[list[int], list[int | None]]:
    """Seconds since the first fact and cpu of the series. reports: node, second, milli-cores; each holds 5 * 60 s."""
    began = datetime(2026, 1, 1, tzinfo=UTC)

    def origin(second: int) -> Origin:
        at = rfc3339(began + timedelta(seconds=second))
        return Origin(causation_id=str(second), correlation_id="", actor="test", occurred_at=at)

    log = MemoryLog()
    for second in (0, 1199):
        fact = PriorityClassObserved(object=PriorityClass(metadata=ObjectMeta(name=f"c{second}")))
        [sealed] = CATALOGUE.seal([Draft(AggregateRef("priorityclass", f"c{second}"), fact, 0)], origin(second))
        log.store(sealed.ref, sealed.headers, sealed.body)
    bus = memory_bus(log=log)
    for node, second, cpu in reports:
        report = NodeUsageReported(
            updated_at=origin(second).occurred_at,
            report_interval_seconds=60,
            aggregate_duration_seconds=60,
            node_usage=Usage(cpu_milli=cpu),
            system_usage=Usage(),
        )
        await bus.observations.publish(AggregateRef("node", node), report, origin(second))
    async with serving(dsn, bus) as url, httpx.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as client:
        answer = (await client.get("/api/series")).json()
    return [time - int(began.timestamp()) for time in answer["usage_time"]], answer["usage"]["cpu"]


async def test_usage_holds_until_the_next_report_and_is_unknown_once_it_has_expired(postgres_server_dsn: str) -> None:
    with fresh_database(postgres_server_dsn) as dsn:
        early, late = [("a", 70, 100), ("b", 80, 1000), ("a", 250, 300)], [("a", 430, 400), ("b", 500, 600)]
        times, cpu = await usage_of(dsn, [*early, *late, ("b", 1150, 2000)])
    assert times == list(range(60, 1201, 60))
    expected: list[int | None] = [None, *[1100] * 3, *[1300] * 3, 400, *[1000] * 5, *[None] * 6, 2000]
    assert cpu == expected


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/nodes?at=yesterday", "at"),
        ("/api/nodes?at=999999999", "at"),
        ("/api/nodes?at=2026-01-01T00:00:00", "at"),
        ("/api/pods?phase=lost", "phase"),
        ("/api/pods?limit=0", "limit"),
        ("/api/pods?cursor=x", "cursor"),
        ("/api/pods?text=%00", "text"),
        ("/api/objects/thing", "kind"),
        ("/api/events/-1", "seq"),
        ("/api/series?since=10&until=5", "until"),
        ("/api/observations?since=yesterday", "since"),
    ],
)
def test_a_bad_parameter_is_refused_with_field_rule_and_value(client: httpx.Client, path: str, field: str) -> None:
    response = client.get(path)
    assert response.status_code == 400
    body = response.json()
    assert body["field"] == field
    assert body["rule"]
    assert body["error"].startswith(f"{field}: must be ")


def test_a_rebuild_cannot_be_asked_for_by_a_form_of_another_site(client: httpx.Client) -> None:
    response = client.post("/admin/rebuild", content="", headers={"content-type": "text/plain"})
    assert response.status_code == 415


async def test_the_live_tail_sends_what_is_committed_and_ends_with_the_service(postgres_dsn: str) -> None:
    events, log = small(), MemoryLog()
    async with (
        serving(postgres_dsn, memory_bus(log=log)) as url,
        httpx.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as client,
        client.stream("GET", "/api/events/stream") as response,
    ):
        lines = response.aiter_lines()
        assert await anext(lines) == "retry: 2000"
        for event in events[:3]:
            log.store(event.ref, dict(event.headers), event.body)
        seen: list[int] = []
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(seen) < 3:
                line = await anext(lines)
                if line.startswith("data: "):
                    seen += [event["seq"] for event in json.loads(line.removeprefix("data: "))]
        assert seen == [1, 2, 3]
        for event in events[3:]:
            log.store(event.ref, dict(event.headers), event.body)
        skipped = 0
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not seen or seen[-1] < len(events):
                line = await anext(lines)
                if line.startswith("data: ["):
                    seen += [event["seq"] for event in json.loads(line.removeprefix("data: "))]
                elif line.startswith("data: "):
                    skipped += json.loads(line.removeprefix("data: "))["skipped"]
        assert seen == sorted(seen)
        assert len(seen) + skipped == len(events)


async def test_a_live_tail_behind_the_end_of_a_replaced_log_goes_on_at_its_newest_fact(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "QUIET_SECONDS", 0.1)
    events, log = small(), MemoryLog()
    for event in events[:3]:
        log.store(event.ref, dict(event.headers), event.body)
    async with (
        serving(postgres_dsn, memory_bus(log=log)) as url,
        httpx.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as client,
        client.stream("GET", "/api/events/stream", headers={"last-event-id": "1000000"}) as response,
    ):
        lines = response.aiter_lines()
        while await anext(lines) != ": still here":
            pass
        log.store(events[3].ref, dict(events[3].headers), events[3].body)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not (line := await anext(lines)).startswith("data: "):
                pass
        assert [event["seq"] for event in json.loads(line.removeprefix("data: "))] == [4]


async def test_postgres_away_is_an_answer_not_a_crash(postgres_server_dsn: str) -> None:
    with fresh_database(postgres_server_dsn) as dsn:
        async with (
            serving(dsn, memory_bus()) as url,
            httpx.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as client,
        ):
            drop_database(postgres_server_dsn, dsn.rpartition("/")[2])
            response = await client.get("/api/cluster")
            assert response.status_code == 503
            assert "Postgres" in response.json()["error"]
            assert (await client.get("/healthz")).status_code == 200
            async with asyncio.timeout(DEADLINE_SECONDS):
                while "Postgres is away" not in (await client.get("/readyz")).text:
                    pass  # asked again until its loop has noticed


async def test_a_missing_table_is_an_error_once_the_tables_were_created(postgres_dsn: str) -> None:
    async def no_stream(_: Request) -> Response:
        return Response()

    database, progress = Database(postgres_dsn), Progress(ready=Condition(""))
    handlers = Handlers(
        database, cluster="c", fold=progress, clock=SystemClock(), want_rebuild=lambda: None, stream=no_stream
    )
    transport = httpx.ASGITransport(Starlette(routes=routes_of(handlers, database)), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://projector") as client:
        before = await client.get("/api/audit")
        await database.migrate()
        created = await client.get("/api/audit")
        async with await psycopg.AsyncConnection.connect(postgres_dsn) as connection:
            await connection.execute("DROP TABLE modifications")
        dropped = await client.get("/api/audit")
    await database.close()

    assert [answer.status_code for answer in (before, created, dropped)] == [503, 200, 500]
    assert before.json()["error"] == "the tables are not created yet"


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_answer_is_as_the_openapi_document_says(base_url: str, mode: GenerationMode) -> None:
    schema: Any = schemathesis.openapi.from_url(f"{base_url}/openapi.json")
    asked: set[str] = set()
    for found in schema.exclude(path=["/api/events/stream", "/admin/rebuild"]).get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not list(operation.iter_parameters()):
            continue

        @settings(
            max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], database=None
        )
        @given(operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            # A text that is no moment or no kind is refused although its schema is just "string".
            case.call_and_validate(timeout=DEADLINE_SECONDS, excluded_checks=[positive_data_acceptance])

        check()
        asked.add(operation.path)
    assert len(asked) >= 12
