"""Past moments and the audit of a busy cluster on a real Postgres are those that the whole log gives."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import psycopg
import pytest
import sqlalchemy.exc
from alembic import command
from alembic.config import Config
from koord_projector import retention as fact_retention
from koord_projector.fold import lives
from koord_projector.fold.lives import span_of
from koord_projector.fold.projection import Projection
from koord_projector.projecting import rebuilding
from koord_projector.read.descheduling import AuditQuery, read_audit
from koord_projector.read.moments import resolve, state_at
from koord_projector.read.objects import ObjectsQuery, list_objects
from koord_projector.read.pods import PodsQuery, list_pods
from koord_projector.read.search import SearchQuery, search_everything
from koord_projector.store import database as database_module
from koord_projector.store import positions
from koord_projector.store.copytext import EVENT_COLUMNS, EventLines, copy_statement
from koord_projector.store.database import Database
from koordcore.bus.archive.archived_log import archive_facts
from koordcore.events.descheduling import (
    MOST_COSTS,
    DeletionCostsCarriedOut,
    DeletionCostsDecided,
    PodCost,
    RoundDecided,
    RoundMove,
)
from koordcore.events.envelope import StoredEvent
from koordcore.events.gateway import PodEvicted, PodEvictionRequested
from koordcore.events.objects import NodeSpecAdded, NodeSpecChanged, PodSpecAdded, PodSpecDeleted
from koordcore.events.pod import PodPlaced
from koordcore.place import Place, open_place
from koordcore.protocol.objects import ObjectMeta, OwnerReference, Pod, PodSpec
from koordcore.state import ClusterState
from koordcore.state.registry import STATE_TYPES
from koordcore.stories.modifications import KINDS, AuditReader, Modification
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import unix_seconds
from koordctl.descheduling.audit import logged_modifications
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection
from support.histories.objects import node
from support.histories.recording import Recorder
from support.manual_clock import ManualClock
from support.projector.busy_month import Month
from support.projector.reading import reading_of
from support.projector.world import Projector, pods_by_fold, projector
from support.until import until

pytestmark = pytest.mark.postgres

FACTS = 4_000


@pytest.fixture(scope="module")
def facts() -> list[StoredEvent]:
    """Three hours of four nodes, so that ledgers and policies have hundreds of facts, and many pods have ended."""
    written = [each for batch in Month(facts=FACTS, nodes=4).batches() for each in batch]
    return [each.stored(seq) for seq, each in enumerate(written, 1)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions and partitions that a short history has many of."""
    monkeypatch.setattr(lives, "EVENTS_OF_VERSION", 5)
    monkeypatch.setattr(positions, "POSITIONS", 700)


def states_of(events: Sequence[StoredEvent], upto: int) -> ClusterState:
    state = ClusterState()
    for event in events[:upto]:
        state.apply(event)
    return state


def modifications_of(events: Sequence[StoredEvent]) -> list[Modification]:
    reader = AuditReader()
    return [found for event in events if event.ref.kind in KINDS for found in reader.read(event)]


async def compare_with_fold(connection: AsyncConnection, events: Sequence[StoredEvent], position: int) -> None:
    """Every list of aggregates, and the list of pods, is that of the fold up to the position."""
    state, moment = states_of(events, position), await resolve(connection, str(position))
    for kind in STATE_TYPES:
        expected = {ref.id: json.loads(codec.encode_canonical(s)) for ref, s in state if ref.kind == kind}
        found: dict[str, object] = {}
        after = ""
        while True:
            page = await list_objects(reading_of(connection, moment), ObjectsQuery(kind=kind, after=after, limit=37))
            found.update({each.id: each.state for each in page.objects})
            if page.after is None:
                break
            after = page.after
        assert found == expected, (kind, position)
    pods = await list_pods(reading_of(connection, moment), PodsQuery(limit=1000))
    assert {pod.uid: (pod.phase, pod.node) for pod in pods.pods} == pods_by_fold(state)


async def compare_found_facts(connection: AsyncConnection, events: Sequence[StoredEvent], position: int) -> None:
    """A search finds the newest facts up to the moment, and none that came later."""
    moment = await resolve(connection, str(position))
    placed = [event.seq for event in events[:position] if event.type == PodPlaced.__name__]
    for text, expected in (
        (PodPlaced.__name__, placed[:-6:-1]),
        (str(position), [position]),
        (str(position + 1), []),
        (events[position].event_id, []),
    ):
        found = await search_everything(reading_of(connection, moment), SearchQuery(text=text, limit=5))
        assert [fact.seq for fact in found.facts] == expected, text


@pytest.mark.deep
async def test_any_past_moment_is_that_of_the_full_fold(postgres_dsn: str, facts: list[StoredEvent]) -> None:
    chosen = random.Random(len(facts)).sample(range(1, len(facts) + 1), 12)
    async with projector(postgres_dsn, batch_events=313) as it:
        it.write(facts)
        async with it.running():
            await it.caught_up()
        async with it.database.reading() as connection:
            for position in chosen:
                await compare_with_fold(connection, facts, position)
            moment = await resolve(connection, str(chosen[0]))
            assert (
                await search_everything(reading_of(connection, moment), SearchQuery(text="team-web", limit=5))
            ).objects
            await compare_found_facts(connection, facts, FACTS // 3)
    with psycopg.connect(postgres_dsn) as connection:
        names = [name for name, _ in connection.execute(positions.PARTITIONS.format(table="events").encode())]
        assert names == [f"events_p{number:06}" for number in range(FACTS // 700 + 1)]


async def test_the_audit_is_found_by_pod_node_reason_and_time(postgres_dsn: str, facts: list[StoredEvent]) -> None:
    records = modifications_of(facts)
    one = records[len(records) // 2]
    assert one.pod
    assert one.node
    async with projector(postgres_dsn) as it:
        it.write(facts)
        async with it.running():
            await it.caught_up()

        async def found(wanted: AuditQuery, limit: int = 7) -> list[Modification]:
            kept: list[Modification] = []
            before: int | None = None
            async with it.database.reading() as connection:
                while True:
                    query = msgspec.structs.replace(wanted, before=before, limit=limit)
                    page = await read_audit(reading_of(connection), query)
                    kept += page.modifications
                    before = page.before
                    if before is None:
                        return kept[::-1]

        assert await found(AuditQuery()) == records
        for wanted in (AuditQuery(pod=one.pod), AuditQuery(pod=f"{one.namespace}/{one.pod}")):
            assert await found(wanted) == [each for each in records if each.pod == one.pod]
        assert await found(AuditQuery(pod=one.uid)) == [each for each in records if each.uid == one.uid]
        assert await found(AuditQuery(node=one.node)) == [each for each in records if each.node == one.node]
        assert await found(AuditQuery(reason="OverUtilized, cpu usage 65")) == [
            each for each in records if "overutilized, cpu usage 65" in "; ".join(each.reasons)
        ]
        between = AuditQuery(since=records[10].at, until=one.at, action="evict")
        assert await found(between) == [
            each for each in records if records[10].at <= each.at <= one.at and each.action == "evict"
        ]
        assert await found(AuditQuery(plugin="no such plugin")) == []


def hourly_retention(it: Projector, archive: Place, facts: Sequence[StoredEvent]) -> fact_retention.FactRetention:
    """Return a retention of one hour, as it runs one hour after the last fact."""
    return fact_retention.FactRetention(
        database=it.database,
        archive=archive,
        clock=ManualClock(unix_seconds(facts[-1].occurred_at) + 3600),
        days=1 / 24,
        progress=it.progress,
        metrics=it.context.metrics,
        logger=it.context.logger,
    )


async def test_old_facts_are_dropped_if_the_archive_has_them_and_later_moments_stay(
    postgres_dsn: str, facts: list[StoredEvent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fact_retention, "STATES_AT_ONCE", 11)
    monkeypatch.setattr(fact_retention, "ROWS_AT_ONCE", 13)
    place = open_place(str(tmp_path / "archive"), create=True)
    async with projector(postgres_dsn) as it:
        it.write(facts)
        async with it.running():
            await it.caught_up()
        retention = hourly_retention(it, place, facts)
        assert await fact_retention.drop_round(retention) == 0, "nothing is archived"
        await archive_facts(it.context.log, place, "dev", 2_500, lambda _: None)
        too_young = replace(retention, days=2.0)
        assert await fact_retention.drop_round(too_young) == 0
        # Partitions 0 to 2 end at 2,099, and the archive at 2,500. All facts but the last one are older than an hour.
        assert await fact_retention.drop_round(retention) == 2_099
        assert await fact_retention.drop_round(retention) == 0
        async with it.database.reading() as connection:
            for position in (2_099, 2_100, 2_613, 3_333, FACTS):
                await compare_with_fold(connection, facts, position)
            kept = modifications_of(facts)
            page = await read_audit(reading_of(connection), AuditQuery(limit=1000))
            assert page.modifications[::-1] == [each for each in kept if each.position > 2_099]
            for early in ("2098", "0", facts[1_000].occurred_at, "2001-01-01T00:00:00Z"):
                with pytest.raises(InvalidInput, match="koord replay"):
                    await resolve(connection, early)
        with psycopg.connect(postgres_dsn) as connection:
            assert connection.execute("SELECT min(seq), count(*) FROM events").fetchone() == (2_100, FACTS - 2_099)
            ended = "SELECT count(*) FROM pods WHERE to_seq <= 2099"
            assert connection.execute(ended).fetchone() == (0,)
        async with it.running():  # it goes on, and a rebuild from the log brings all facts back
            it.progress.rebuild_wanted.set()
            await until(lambda: not it.progress.rebuild_wanted.is_set())
            await it.caught_up()
        async with it.database.reading() as connection:
            await compare_with_fold(connection, facts, 300)


@pytest.mark.deep
@pytest.mark.parametrize("worth", [1, 1_000_000], ids=["by copy", "batch by batch"])
async def test_facts_of_tables_that_were_made_again_meanwhile_are_not_dropped(
    postgres_dsn: str, facts: list[StoredEvent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worth: int
) -> None:
    monkeypatch.setattr(rebuilding, "WORTH_EVENTS", worth)
    keep_states = fact_retention._keep_states  # pyright: ignore[reportPrivateUsage]
    place = open_place(str(tmp_path / "archive"), create=True)
    async with projector(postgres_dsn) as it:
        it.write(facts)
        async with it.running():
            await it.caught_up()
            await archive_facts(it.context.log, place, "dev", 2_500, lambda _: None)
            retention = hourly_retention(it, place, facts)

            async def rebuilt_meanwhile(database: Database, position: int) -> None:
                await keep_states(database, position)
                it.progress.rebuild_wanted.set()
                await until(lambda: not it.progress.rebuild_wanted.is_set())
                await it.caught_up()

            monkeypatch.setattr(fact_retention, "_keep_states", rebuilt_meanwhile)
            assert await fact_retention.drop_round(retention) == 0
            async with it.database.reading() as connection:
                await compare_with_fold(connection, facts, 300)
            monkeypatch.setattr(fact_retention, "_keep_states", keep_states)
            assert await fact_retention.drop_round(retention) == 2_099
            async with it.database.reading() as connection:
                for position in (2_099, 2_613, FACTS):
                    await compare_with_fold(connection, facts, position)


@pytest.mark.deep
async def test_old_facts_are_dropped_in_a_later_round_if_a_query_reads_facts_for_long(
    postgres_dsn: str, facts: list[StoredEvent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fact_retention, "LOCK_SECONDS", 0.1)
    place = open_place(str(tmp_path / "archive"), create=True)
    async with projector(postgres_dsn) as it:
        it.write(facts)
        async with it.running():
            await it.caught_up()
        await archive_facts(it.context.log, place, "dev", 2_500, lambda _: None)
        retention = hourly_retention(it, place, facts)
        with psycopg.connect(postgres_dsn) as reader:
            reader.execute("SELECT count(*) FROM events")
            with pytest.raises(sqlalchemy.exc.OperationalError) as refused:
                await fact_retention.drop_round(retention)
            assert isinstance(refused.value.orig, psycopg.errors.LockNotAvailable)
            assert reader.execute("SELECT min(seq) FROM events").fetchone() == (1,)
        assert await fact_retention.drop_round(retention) == 2_099


@pytest.mark.deep
async def test_a_database_of_the_version_before_keeps_its_facts_and_answers_past_moments(
    postgres_dsn: str, facts: list[StoredEvent]
) -> None:
    events, projection = facts[:1500], Projection()
    for event in events:
        projection.apply(event)
    changes = projection.take_changes()
    database = Database(postgres_dsn)

    def earlier(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(database_module.MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "0008")

    async with database.engine.begin() as connection:
        await connection.run_sync(earlier)
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as connection, connection.cursor() as cursor:
        async with cursor.copy(copy_statement("events", EVENT_COLUMNS[:-1]).encode()) as copy:
            await copy.write(b"".join(line.rpartition(b"\t")[0] + b"\n" for line in map(EventLines(), events)))
        for row in changes.new_aggregates:
            values = (row.ref.kind, row.ref.id, row.seq, row.state.decode())
            await cursor.execute("INSERT INTO aggregates (kind, id, seq, state) VALUES (%s, %s, %s, %s)", values)
        await cursor.execute(
            "INSERT INTO projection VALUES ('ev', %s, %s, 'of an earlier version')", (1500, events[-1].event_id)
        )
        for pod in changes.pods:
            await cursor.execute(
                """
                INSERT INTO pods (uid, from_seq, to_seq, namespace, name, qos, priority_class, requests, submitted_seq,
                                  submitted_at, node, placed_at, started_at)
                VALUES (%s, %s, %s, '', '', '', '', '{}', 1, '', '', '', '')
                """,
                (pod.uid, pod.from_seq, pod.to_seq),
            )
    await database.migrate()
    async with database.reading() as connection:
        for position in (1, 700, 1499, 1500):
            state, moment = states_of(events, position), await resolve(connection, str(position))
            for kind in ("podspec", "pod", "node", "migration"):
                page = await list_objects(reading_of(connection, moment), ObjectsQuery(kind=kind, limit=500))
                expected = {ref.id: json.loads(codec.encode_canonical(s)) for ref, s in state if ref.kind == kind}
                assert {each.id: each.state for each in page.objects} == expected
        assert await state_at(connection, await resolve(connection, "1500"), "node", "node-0001") is not None
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM events_before").fetchone() == (1500,)
        spans = {(uid, seq): span for uid, seq, span in connection.execute("SELECT uid, from_seq, span FROM pods")}
        assert spans == {(pod.uid, pod.from_seq): span_of(pod.from_seq, pod.to_seq) for pod in changes.pods}
    # The projector goes on behind them: the next partition begins where this one ends.
    async with projector(postgres_dsn) as it:
        it.write(facts)
        async with it.running():
            await it.caught_up()
        async with it.database.reading() as connection:
            await compare_with_fold(connection, facts, 1490)
            assert await state_at(connection, await resolve(connection, None), "node", "node-0001") is not None
    await database.close()


async def test_the_plugin_that_closes_a_node_is_known_after_a_restart(postgres_dsn: str) -> None:
    log = Recorder()
    for name in ("node-a", "node-b"):
        log.write("nodespec", name, NodeSpecAdded(object=node(name)))
    moves = [
        RoundMove(
            namespace="d", name="p", uid="u", node=name, profile="default", plugin="CustomPriority", reason="drained"
        )
        for name in ("node-a", "node-b")
    ]
    decided = RoundDecided(started_at="2026-01-01T00:00:00Z", moves=moves, closed=["node-a", "node-b"])
    log.write("descheduling", "rounds", decided)
    log.write("nodespec", "node-a", NodeSpecChanged(object=node("node-a", unschedulable=True)))
    async with projector(postgres_dsn) as it:
        it.write(log.events)
        async with it.running():
            await it.caught_up()
        written = len(log.events)
        for name, unschedulable in (("node-a", False), ("node-a", True), ("node-b", True)):
            log.write("nodespec", name, NodeSpecChanged(object=node(name, unschedulable=unschedulable)))
        it.write(log.events[written:])
        async with it.running():
            await it.caught_up()
        async with it.database.reading() as connection:
            page = await read_audit(reading_of(connection), AuditQuery(limit=9))
    assert page.modifications[::-1] == modifications_of(log.events)
    done = [(each.plugin, each.profile, each.round) for each in page.modifications if each.decision == "done"]
    by_round = ("CustomPriority", "default", decided.started_at)
    assert done == [by_round, ("", "", ""), ("", "", ""), by_round]


async def test_all_records_of_one_fact_are_on_one_page(postgres_dsn: str) -> None:
    log, at = Recorder(), "2026-01-01T00:00:00Z"
    for number in range(2):
        costs = [
            PodCost(namespace="d", name=f"p-{each}", uid=f"u-{each}", node="n", before="", after=f"{number}")
            for each in range(MOST_COSTS)
        ]
        decided = DeletionCostsDecided(started_at=at, profile="p", plugin="ScaleDownBinPack", costs=costs)
        log.write("descheduling", "costs", decided)
        log.write("descheduling", "costs", DeletionCostsCarriedOut(refused={"u-7": "forbidden"}))
    sizes: list[int] = []
    found: list[Modification] = []
    async with projector(postgres_dsn) as it:
        it.write(log.events)
        async with it.running():
            await it.caught_up()
        before: int | None = None
        while not sizes or before is not None:
            async with it.database.reading() as connection:
                query = AuditQuery(before=before, limit=MOST_COSTS + 1)
                page = await read_audit(reading_of(connection), query)
            before = page.before
            sizes.append(len(page.modifications))
            found += page.modifications
    assert sizes == [2 * MOST_COSTS, 2 * MOST_COSTS, 0], "two facts on each page"
    assert found[::-1] == modifications_of(log.events)


async def test_the_audit_of_a_workload_has_its_pods_also_of_its_replica_sets(postgres_dsn: str) -> None:
    log = Recorder()
    for number, (kind, name, namespace) in enumerate(
        (
            ("Deployment", "shop", "web"),
            ("ReplicaSet", "shop-7d4b9c", "web"),
            ("ReplicaSet", "shop-old-7d4b9c", "web"),
            ("StatefulSet", "shop", "web"),
            ("Deployment", "shop", "test"),
        )
    ):
        uid, meta = f"u-{number}", ObjectMeta(name=f"p-{number}", namespace=namespace, uid=f"u-{number}")
        meta.labels = {"pod-template-hash": "7d4b9c"}
        meta.owner_references = [OwnerReference(kind=kind, name=name, uid="w", controller=True)]
        log.write("podspec", uid, PodSpecAdded(object=Pod(metadata=meta, spec=PodSpec())))
        asked = PodEvictionRequested(namespace=namespace, name=meta.name, initiator="descheduler", reason="Descheduled")
        log.write("eviction", uid, asked)
    log.write("eviction", "u-1", PodEvicted())
    log.write("podspec", "u-1", PodSpecDeleted(namespace="web", name="p-1"))
    async with projector(postgres_dsn) as it:
        it.write(log.events)
        async with it.running():
            await it.caught_up()
        async with it.database.reading() as connection:
            for workload, uids in (
                ("Deployment/web/shop", {"u-0", "u-1"}),
                ("StatefulSet/web/shop", {"u-3"}),
                ("Job/web/shop", set[str]()),
            ):
                wanted = AuditQuery(workload=workload)
                page = await read_audit(reading_of(connection), wanted)
                expected = [each for each in modifications_of(log.events) if each.uid in uids]
                assert page.modifications[::-1] == expected
                assert await logged_modifications(it.context.log, 0, len(log.events), workload) == expected
            wanted = AuditQuery(workload="Deployment/shop")
            with pytest.raises(InvalidInput, match="KIND/NAMESPACE/NAME"):
                await read_audit(reading_of(connection), wanted)
