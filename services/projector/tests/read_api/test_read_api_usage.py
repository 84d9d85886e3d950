"""The read API about usage: reports of the moment, archived reports, and series over time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import memory_bus
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.objects import PriorityClassObserved
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.protocol.objects import ObjectMeta, PriorityClass
from koordcore.stories.usage_archive import ReportsAnswer
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339
from support.projector.read_api import CLUSTER, get
from support.projector.service import serving
from support.servers import fresh_database
from support.until import DEADLINE_SECONDS

pytestmark = [pytest.mark.postgres, pytest.mark.xdist_group("read-api")]


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
    assert sum(node["cpu_used"] for node in silent) > 0
    assert cluster["cpu_used"] == 0, "an expired report counts in no total, as in the series"


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


def test_series_are_columns_over_the_whole_time(client: httpx.Client) -> None:
    answer = get(client, "/api/series", points=50)
    assert answer["time"] == sorted(answer["time"])
    assert answer["positions"] == sorted(answer["positions"])
    assert (len(answer["positions"]), answer["positions"][-1]) == (len(answer["time"]), len(CLUSTER.facts))
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
