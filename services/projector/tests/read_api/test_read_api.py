"""The read API over HTTP: what it answers about a believable cluster, and that its OpenAPI document is true."""

import asyncio
import json
from collections import Counter
from typing import Any

import httpx
import msgspec
import psycopg
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from koord_projector.context import Progress
from koord_projector.read import events
from koord_projector.read.api import routes_of
from koord_projector.store.database import Database
from koordcore.bus.factory import memory_bus
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import custom_ref
from koordcore.service.clock import SystemClock
from koordcore.service.health import Condition
from koordcore.state.aggregates import CustomObjectState, NodeLedger, NodeSpecState
from koordcore.stories.hardware import node_hardware
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    positive_data_acceptance,  # pyright: ignore[reportUnknownVariableType]  partly untyped
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from support.depth import examples, first_of
from support.projector.read_api import CLUSTER, folded_cluster, get
from support.projector.service import serving
from support.servers import drop_database, fresh_database
from support.until import DEADLINE_SECONDS

pytestmark = [pytest.mark.postgres, pytest.mark.xdist_group("read-api")]


def test_status_and_hash_are_those_of_the_log(client: httpx.Client) -> None:
    status = get(client, "/api/status")
    assert (status["position"], status["lag_events"], status["trouble"]) == (len(CLUSTER.facts), 0, "")
    assert (status["first_at"], status["last_at"]) == (CLUSTER.facts[0].occurred_at, CLUSTER.facts[-1].occurred_at)
    assert get(client, "/api/hash") == {
        "position": len(CLUSTER.facts),
        "hash": folded_cluster(len(CLUSTER.facts)).hash(),
        "trouble": "",
    }


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
        state = folded_cluster(at)
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


def test_a_node_explains_what_is_reclaimed_and_held_back(client: httpx.Client) -> None:
    suppressed = next(event.ref.id for event in CLUSTER.facts if event.type == "BeCpuSuppressed")
    answer = get(client, f"/api/nodes/{suppressed}")
    terms = answer["overcommit"][0]["body"]["terms"]["cpu"]
    taken = terms["margin"] + max(terms["system_used"], terms.get("reserved", 0)) + terms["high_priority_used"]
    assert terms["result"] == max(0, terms["capacity"] - taken)
    assert answer["suppression"][0]["body"]["terms"]["threshold_percent"] == 65
    assert len(answer["usage"]) == sum(1 for message in CLUSTER.reports if message.ref.id == suppressed)
    assert {pod["node"] for pod in answer["pods"]} <= {suppressed}


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


def test_events_of_some_kinds_are_left_out_and_a_text_is_found(client: httpx.Client) -> None:
    newest = get(client, "/api/events", without="podspec, pod", limit=500)["events"]
    expected = [event.seq for event in reversed(CLUSTER.facts) if event.ref.kind not in ("podspec", "pod")]
    assert [event["seq"] for event in newest] == expected[:500]
    uid = next(event.ref.id for event in reversed(CLUSTER.facts) if event.type == "PodPlaced")
    found = get(client, "/api/events", text=uid, limit=500)["events"]
    told = [event.seq for event in reversed(CLUSTER.facts) if uid in event.body.decode() or event.ref.id == uid]
    assert [event["seq"] for event in found] == told
    assert {event["kind"] for event in found} >= {"pod", "podspec", "node", "nodestate"}


def test_a_text_is_sought_among_so_many_facts_of_one_aggregate_at_once(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = Counter(event.ref for event in CLUSTER.facts).most_common(1)[0][0]
    written = [event.seq for event in reversed(CLUSTER.facts) if event.ref == ref]
    monkeypatch.setattr(events, "_READ_FOR_TEXT", 3)
    assert len(written) > 3
    asked = {"kind": ref.kind, "id": ref.id, "text": ref.id}
    first = get(client, "/api/events", **asked)
    assert ([event["seq"] for event in first["events"]], first["before"]) == (written[:3], written[3] + 1)
    found, before = [event["seq"] for event in first["events"]], first["before"]
    while before is not None:
        page = get(client, "/api/events", **asked, before=before)
        found, before = [*found, *(event["seq"] for event in page["events"])], page["before"]
    assert found == written
    none = get(client, "/api/events", kind=ref.kind, id=ref.id, text="no fact has this")
    assert (none["events"], none["before"]) == ([], written[3] + 1)


def test_marks_are_changes_of_configuration_evictions_and_disturbances(client: httpx.Client) -> None:
    marked = ("ConfigAccepted", "ConfigRejected", "PodsEvictedByAgent", "InterferenceDetected")
    expected = [(event.seq, event.type, event.occurred_at) for event in CLUSTER.facts if event.type in marked]
    marks = get(client, "/api/marks")["marks"]
    assert [(mark["seq"], mark["type"], mark["occurred_at"]) for mark in marks] == expected
    assert {mark["type"]: mark["kind"] for mark in marks} == {
        "ConfigAccepted": "configuration",
        "ConfigRejected": "configuration",
        "PodsEvictedByAgent": "eviction",
        "InterferenceDetected": "disturbance",
    }
    newest = get(client, "/api/marks", limit=1)["marks"]
    assert [mark["seq"] for mark in newest] == sorted(
        max(seq for seq, type_, _ in expected if type_ in types) for types in (marked[:2], marked[2:3], marked[3:])
    )


def test_objects_are_those_with_a_prefix(client: httpx.Client) -> None:
    topologies = sorted(event.ref.id for event in CLUSTER.facts if event.ref.id.startswith("noderesourcetopologies="))
    assert len(topologies) > 6
    for at in ("", len(CLUSTER.facts)):
        found: list[str] = []
        after = ""
        while after is not None:
            page = get(client, "/api/objects/customspec", at=at, prefix="noderesourcetopologies=", after=after, limit=6)
            found += [each["id"] for each in page["objects"]]
            after = page["after"]
        assert found == topologies
        for absent in ("elasticquotas=", "noderesourcetopologies>", "zzz"):
            page = get(client, "/api/objects/customspec", at=at, prefix=absent)
            assert (page["objects"], page["after"]) == ([], None)


def test_a_node_holds_best_effort_back_if_its_quota_is_below_their_requests(client: httpx.Client) -> None:
    answer, nodes = get(client, "/api/colocation"), get(client, "/api/nodes")["nodes"]
    limited = {node["name"]: node for node in nodes if node["be_quota_us"] >= 0 and node["be_pods"] > 0}
    held = {name for name, node in limited.items() if node["be_quota_us"] // 100 < node["batch_cpu_requested"]}
    assert 0 < len(held) < len(limited)
    assert {node["name"] for node in nodes if node["be_held_back"]} == held
    assert (answer["suppressed_nodes"], answer["limited_nodes"]) == (len(held), len(limited))
    assert {each["node"] for each in answer["suppressed"]} == held


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
    def no_stream(_request: Request, _after: int | None) -> Response:
        return Response()

    database, progress = Database(postgres_dsn), Progress(ready=Condition(""))
    routes = routes_of(database, cluster="c", progress=progress, clock=SystemClock(), tail=no_stream)
    transport = httpx.ASGITransport(Starlette(routes=routes), raise_app_exceptions=False)
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


@pytest.mark.fuzz
@pytest.mark.parametrize("mode", first_of([GenerationMode.POSITIVE, GenerationMode.NEGATIVE]))
def test_every_answer_is_as_the_openapi_document_says(base_url: str, mode: GenerationMode) -> None:
    schema: Any = schemathesis.openapi.from_url(f"{base_url}/openapi.json")
    schema.config.checks.negative_data_rejection.expected_statuses.append("414")
    asked: set[str] = set()
    for found in schema.exclude(path=["/api/events/stream", "/admin/rebuild"]).get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not list(operation.iter_parameters()):
            continue

        @settings(
            max_examples=examples(12),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            database=None,
        )
        @given(operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            # A text that is no moment or no kind is refused although its schema is just "string".
            case.call_and_validate(timeout=DEADLINE_SECONDS, excluded_checks=[positive_data_acceptance])

        check()
        asked.add(operation.path)
    assert len(asked) >= 12
