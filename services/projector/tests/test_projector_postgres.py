"""The projector on a real Postgres: rows and position are one, and nothing that happens to either loses the other."""

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from koord_projector.domain.pods import PodBook
from koord_projector.shell import archive, retention
from koord_projector.shell.postgres import database
from koord_projector.shell.postgres.database import Database
from koord_projector.shell.postgres.positions import Moved
from koord_projector.shell.postgres.shadow import Shadow
from koord_projector.shell.postgres.shadow_rows import ShadowRows, query
from koord_projector.shell.postgres.tables import explanations, metadata, observations
from koord_projector.shell.postgres.writer import Writer
from koord_projector.shell.projecting.recovery import FIRST_PAUSE
from koord_projector.shell.queries.moments import Moment, resolve
from koord_projector.shell.queries.nodes import list_nodes
from koord_projector.shell.queries.objects import aggregates_hash, list_objects, state_at
from koord_projector.shell.queries.pods import PodFilter, list_pods, pod_life
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.events.agents.criproxy import HookServerFailed
from koordcore.events.agents.hooks import ContainerHookApplied, HookedValue
from koordcore.events.control import EventSkipped
from koordcore.events.envelope import BasedOn, StoredEvent, name_token
from koordcore.events.objects.mirror import NamespaceObserved, PodSpecAdded
from koordcore.events.scheduling.placement_explanation import PlacementExplanation
from koordcore.events.scheduling.pod import PodPlaced
from koordcore.protocol import keys
from koordcore.protocol.objects import Namespace, ObjectMeta, Pod
from koordcore.retry import Backoff
from koordcore.service.telemetry.finished_span import FinishedSpan
from koordcore.service.telemetry.tracing import Tracer
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeLedger, NodeSpecState
from koordcore.values import codec
from koordcore.values.allocation import is_reservation
from koordcore.values.timestamps import unix_seconds
from psycopg import sql
from sqlalchemy import Connection
from structlog.testing import capture_logs
from support.histories.actions import Action
from support.histories.history import every_kind_once, history
from support.histories.recording import Recorder
from support.manual_clock import ManualClock
from support.projector.refused_facts import INCOMPRESSIBLE, REFUSED_UID, refused_fact
from support.projector.synthetic_cluster import SyntheticCluster, small
from support.projector.world import TABLES, Projector, pods_by_fold, projector
from support.servers import fresh_database
from support.until import until

pytestmark = pytest.mark.postgres


def all_rows(dsn: str) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every folded table, and the position, in an order of their own.

    Without the stream's own time of the events: each memory log has another one.
    """
    with psycopg.connect(dsn) as connection:
        rows = {
            table: sorted(connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))), key=repr)
            for table in TABLES
        }
        rows["events"] = [(*row[:6], 0, *row[7:]) for row in rows["events"]]
        rows["projection"] = connection.execute("SELECT position FROM projection WHERE stream = 'ev'").fetchall()
        return rows


def folded(events: Sequence[StoredEvent], upto: int | None = None) -> ClusterState:
    """The fold of the events up to a position."""
    state = ClusterState()
    for event in events:
        if upto is None or event.seq <= upto:
            state.apply(event)
    return state


async def stored_hash(it: Projector) -> tuple[int, str]:
    """What `/api/hash` answers."""
    async with it.database.reading() as connection:
        found = await aggregates_hash(connection)
        return found.position, found.hash


async def run_to_end(dsn: str, events: Sequence[StoredEvent], *, batch_events: int = 2000) -> tuple[int, str]:
    """Projects all events into an empty database; position and hash of the rows."""
    async with projector(dsn, batch_events=batch_events) as it:
        it.write(events)
        async with it.running():
            await it.caught_up()
            return await stored_hash(it)


async def test_hash_of_the_rows_is_the_hash_of_the_fold(postgres_dsn: str) -> None:
    events = [*history(every_kind_once())]
    assert await run_to_end(postgres_dsn, events) == (len(events), folded(events).hash())


async def test_events_stand_in_the_table_as_they_stood_in_the_log(postgres_dsn: str) -> None:
    events = history(every_kind_once())
    odd = dict(events[0].headers) | {"Koord-Actor": "a\tb\\n\n", "Koord-Causation-Id": "c\r'\\"}
    events[0] = StoredEvent(1, events[0].ref, odd, b'{ "object": {"metadata":\t{"name": "t\\t\\u0007\\\\n"}} }\n')
    events[0].headers  # noqa: B018  the body is a node's: unusual, but valid
    await run_to_end(postgres_dsn, events)
    with psycopg.connect(postgres_dsn) as connection:
        rows = connection.execute("SELECT seq, actor, causation_id, body FROM events ORDER BY seq").fetchall()
    assert rows == [(event.seq, event.actor, event.causation_id, event.body.decode()) for event in events]


async def test_any_batching_gives_the_same_rows(postgres_server_dsn: str, postgres_dsn: str) -> None:
    events = small()
    await run_to_end(postgres_dsn, events)
    expected = all_rows(postgres_dsn)
    for batch_events in (1, 7):
        with fresh_database(postgres_server_dsn) as dsn:
            async with projector(dsn, batch_events=batch_events) as it, it.running():
                for start in range(0, len(events), 23):  # arrives in pieces
                    it.write(events[start : start + 23])
                    await asyncio.sleep(0)
                await it.caught_up()
            assert all_rows(dsn) == expected


async def test_a_restart_at_any_position_goes_on_with_the_same_rows(
    postgres_server_dsn: str, postgres_dsn: str
) -> None:
    events = history([*every_kind_once(), *(Action(what, 0, 1) for what in ("add-pod", "place", "started"))])
    await run_to_end(postgres_dsn, events)
    expected = all_rows(postgres_dsn)
    with fresh_database(postgres_server_dsn) as dsn:
        async with projector(dsn) as it:
            for start in range(0, len(events), 6):
                it.write(events[start : start + 6])
                async with it.running():
                    await it.caught_up()
        assert all_rows(dsn) == expected


async def test_a_transaction_that_fails_late_leaves_nothing_behind(postgres_dsn: str) -> None:
    events = small()
    async with projector(postgres_dsn) as it:
        await it.database.migrate()
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            connection.execute(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$"
            )
            connection.execute("CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON projection EXECUTE FUNCTION refuse()")
        it.write(events)
        with pytest.raises(ExceptionGroup) as failed:
            async with it.running():
                await it.caught_up()
        assert failed.group_contains(psycopg.errors.RaiseException)
        assert not any(all_rows(postgres_dsn).values())
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            connection.execute("DROP TRIGGER refuse ON projection")
        async with it.running():
            await it.caught_up()
            assert await stored_hash(it) == (len(events), folded(events).hash())


async def test_sessions_that_are_killed_again_and_again_lose_and_repeat_nothing(postgres_dsn: str) -> None:
    events = small()
    async with projector(postgres_dsn, batch_events=20) as it, it.running():
        for start in range(0, len(events), 60):
            it.write(events[start : start + 60])
            await until(lambda start=start: it.progress.position > start)
            with psycopg.connect(postgres_dsn, autocommit=True) as connection:
                _end_sessions(connection)
        await it.caught_up()
        assert await stored_hash(it) == (len(events), folded(events).hash())
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*), max(seq) FROM events").fetchone() == (len(events), len(events))


async def test_a_server_that_is_read_only_for_a_while_is_waited_for(postgres_dsn: str) -> None:
    events = small()
    half = len(events) // 2

    def set_read_only(value: str) -> None:
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            name = connection.info.dbname
            connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}'.encode())
            _end_sessions(connection)

    async with projector(postgres_dsn) as it, it.running():
        it.write(events[:half])
        await it.caught_up()
        set_read_only("on")  # as a standby, while another instance is promoted
        it.write(events[half:])
        await until(lambda: "read-only" in it.progress.trouble)
        set_read_only("off")
        await it.caught_up()
        assert await stored_hash(it) == (len(events), folded(events).hash())


async def test_a_database_restored_to_an_older_state_is_continued_from_there(
    postgres_server_dsn: str, postgres_dsn: str
) -> None:
    events = small()
    half = len(events) // 2
    await run_to_end(postgres_dsn, events[:half])
    backup = all_rows(postgres_dsn)
    with fresh_database(postgres_server_dsn) as dsn:
        async with projector(dsn) as it:
            it.write(events)
            async with it.running():
                await it.caught_up()
                expected = all_rows(dsn)
                _replace_rows(dsn, backup)  # under the running projector
                more = Recorder()
                more.write("namespace", "ns-1", _namespace())
                last = msgspec.structs.replace(more.events[0], seq=len(events) + 1)
                it.write([last])
                await until(lambda: it.progress.position == last.seq)
                await it.caught_up()
                assert await stored_hash(it) == (last.seq, folded([*events, last]).hash())
        now = all_rows(dsn)
        assert [row for row in now["events"] if row[0] != last.seq] == expected["events"]
        assert now["pods"] == expected["pods"]
        assert now["node_versions"] == expected["node_versions"]


def _end_sessions(connection: psycopg.Connection) -> None:
    """End the other sessions of the database."""
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"  # an autovacuum worker belongs to the superuser
    )


def _namespace() -> NamespaceObserved:
    return NamespaceObserved(object=Namespace(metadata=ObjectMeta(name="ns-1")))


def _replace_rows(dsn: str, rows: dict[str, list[tuple[object, ...]]]) -> None:
    with psycopg.connect(dsn) as connection:
        for table in TABLES:
            name = sql.Identifier(table)
            connection.execute(sql.SQL("DELETE FROM {}").format(name))
            for row in rows[table]:
                marks = sql.SQL(", ").join([sql.Placeholder()] * len(row))
                connection.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(name, marks), row)
        event_id = connection.execute("SELECT event_id FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        assert event_id is not None
        position = rows["projection"][0][0]
        connection.execute(
            "UPDATE projection SET position = %s, event_id = %s WHERE stream = 'ev'", (position, event_id[0])
        )


async def test_a_rebuild_gives_the_same_rows_and_keeps_the_archives(postgres_dsn: str) -> None:
    cluster = SyntheticCluster(nodes=8, pods=40, minutes=30)
    async with projector(postgres_dsn) as it:
        it.write(cluster.facts)
        for message in cluster.reports:
            await it.observations.publish(message.ref, message.event, message.origin)
        async with it.running():
            await it.caught_up()
            await until(lambda: it.progress.observations == len(cluster.reports))
            before = all_rows(postgres_dsn)
            it.progress.rebuild_wanted.set()
            await until(lambda: not it.progress.rebuild_wanted.is_set())
            await it.caught_up()
            assert all_rows(postgres_dsn) == before
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM observations").fetchone() == (len(cluster.reports),)


async def test_rows_of_another_version_of_the_projection_are_made_again(postgres_dsn: str) -> None:
    events = history(every_kind_once())
    await run_to_end(postgres_dsn, events)
    before = all_rows(postgres_dsn)
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("UPDATE projection SET schema = '0:old' WHERE stream = 'ev'")
        connection.execute("UPDATE pods SET name = 'stale'")
    assert await run_to_end(postgres_dsn, events) == (len(events), folded(events).hash())
    assert all_rows(postgres_dsn) == before


async def skipped_once_halted(
    it: Projector, events: list[StoredEvent], poison: int, *, trouble: str = ""
) -> StoredEvent:
    """Check that the fold halts before a fact, readable up to it. Skip the fact, and return the order to skip it."""
    await until(lambda: f"halted before event {poison}" in it.progress.trouble)
    assert trouble in it.progress.trouble
    assert not it.health.is_ready()
    assert await stored_hash(it) == (poison - 1, folded(events[: poison - 1]).hash())
    assert b'koord_bus_follower_halted{fold="projector"} 1.0' in (await it.metrics.render())[0]
    record = Recorder()
    record.write("fold", "projector", EventSkipped(seq=poison, reason="poison", operator="me"))
    skip = msgspec.structs.replace(record.events[0], seq=len(events) + 1)
    it.write([skip])
    await until(lambda: it.progress.position == skip.seq)
    assert it.health.is_ready()
    return skip


async def test_a_poison_event_halts_the_fold_readable_until_it_is_skipped(postgres_dsn: str) -> None:
    events = history(every_kind_once())
    poison = 9
    events[poison - 1] = StoredEvent(poison, events[poison - 1].ref, events[poison - 1].headers, b"{")
    async with projector(postgres_dsn) as it:
        it.write(events)
        async with it.running():
            skip = await skipped_once_halted(it, events, poison)
            expected = ClusterState()
            for event in [*events, skip]:
                if event.seq == poison:
                    expected.skip(event.seq)
                else:
                    expected.apply(event)
            assert await stored_hash(it) == (skip.seq, expected.hash())
        # The record is honoured by a fold from zero, too, which meets the poison before the record.
        it.progress.rebuild_wanted.set()
        async with it.running():
            await until(lambda: not it.progress.rebuild_wanted.is_set())
            await it.caught_up()
            assert await stored_hash(it) == (skip.seq, expected.hash())


@pytest.mark.parametrize("fails", ["the database", "the fold"])
async def test_a_fact_that_postgres_or_the_fold_refuses_halts_the_fold_until_it_is_skipped(
    postgres_dsn: str, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submitted(book: PodBook, uid: str, pod: Pod, at: StoredEvent) -> None:
        assert uid != REFUSED_UID, "a defect"
        own(book, uid, pod, at)

    if fails == "the fold":
        own = PodBook.submitted
        monkeypatch.setattr(PodBook, "submitted", submitted)
    events = history(every_kind_once())
    poison = 9
    events[poison - 1] = refused_fact(poison)
    async with projector(postgres_dsn) as it:
        it.write(events)
        async with it.running():
            skip = await skipped_once_halted(it, events, poison, trouble="cannot be stored: ")
            rest = folded([event for event in [*events, skip] if event.seq != poison])
            assert await stored_hash(it) == (skip.seq, rest.hash())
        async with it.running():  # another process begins behind the fact
            it.write([msgspec.structs.replace(_late_namespace(), seq=skip.seq + 1)])
            await it.caught_up()


def _late_namespace() -> StoredEvent:
    late = Recorder()
    late.write("namespace", "ns-late", _namespace())
    return late.events[0]


async def test_reports_that_postgres_refuses_are_counted_and_left_out(postgres_dsn: str) -> None:
    cluster = SyntheticCluster(nodes=3, pods=10, minutes=20)
    refused = [message for message in cluster.reports if message.ref == cluster.reports[-1].ref]
    async with projector(postgres_dsn) as it:
        await it.database.migrate()
        with psycopg.connect(postgres_dsn) as connection:
            token = sql.Literal(refused[0].ref.id)
            connection.execute(sql.SQL("ALTER TABLE observations ADD CHECK (token <> {})").format(token))
        for message in cluster.reports:
            await it.observations.publish(message.ref, message.event, message.origin)
        async with it.running():
            await until(lambda: it.progress.observations == len(cluster.reports))
            counted = f'koord_projector_unreadable_total{{stream="obs"}} {len(refused):.1f}'
            assert counted in (await it.metrics.render())[0].decode()
        async with it.running():  # those behind the last stored one are refused again
            first = cluster.reports[0]
            await it.observations.publish(first.ref, first.event, first.origin)
            await until(lambda: it.progress.observations == len(cluster.reports) + 1)
    with psycopg.connect(postgres_dsn) as connection:
        stored = connection.execute("SELECT count(*) FROM observations").fetchone()
        assert stored == (len(cluster.reports) - len(refused),)


async def test_a_pod_whose_gang_has_a_name_of_any_length_is_stored(postgres_dsn: str) -> None:
    recorder = Recorder()
    pod = Pod(metadata=ObjectMeta(name="p", namespace="d", annotations={keys.GANG_NAME: INCOMPRESSIBLE}))
    recorder.write("podspec", "u", PodSpecAdded(object=pod))
    assert await run_to_end(postgres_dsn, recorder.events) == (1, folded(recorder.events).hash())


async def test_a_trimmed_log_is_said_and_not_ready(postgres_dsn: str) -> None:
    async with projector(postgres_dsn) as it:
        it.write(history(every_kind_once()))
        it.log.trim(10)
        async with it.running():
            await until(lambda: "gone" in it.progress.trouble)
            assert not it.health.is_ready()


async def test_another_log_than_the_folded_one_is_said_and_not_mixed_in(postgres_dsn: str) -> None:
    events = history(every_kind_once())
    await run_to_end(postgres_dsn, events[:12])
    before = all_rows(postgres_dsn)
    async with projector(postgres_dsn) as it:
        it.write(small())
        async with it.running():
            await until(lambda: "position 12" in it.progress.trouble)
            assert not it.health.is_ready()
            assert all_rows(postgres_dsn) == before
            it.progress.rebuild_wanted.set()
            await it.caught_up()
            assert (await stored_hash(it))[1] == folded(small()).hash()


async def test_two_projectors_on_one_database_do_not_spoil_it(postgres_dsn: str) -> None:
    events = small()
    log = MemoryLog()
    async with (
        projector(postgres_dsn, batch_events=11, log=log) as one,
        projector(postgres_dsn, batch_events=13, log=log) as other,
        one.running(),
        other.running(),
    ):
        for start in range(0, len(events), 50):
            one.write(events[start : start + 50])
            await asyncio.sleep(0)
        await one.caught_up()
        assert await stored_hash(one) == (len(events), folded(events).hash())
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (len(events),)


async def test_any_past_moment_is_answered_as_a_fold_to_it_would(postgres_dsn: str) -> None:
    events = small()
    async with projector(postgres_dsn) as it:
        it.write(events)
        async with it.running():
            await it.caught_up()
        ends = [event.seq for event in events if event.type in ("PodReleased", "PodSpecDeleted")]
        for position in sorted({*range(1, len(events) + 1, 41), *ends[:6], *(seq - 1 for seq in ends[:6])}):
            state = folded(events, position)
            async with it.database.reading() as connection:
                moment = await resolve(connection, str(position))
                nodes = {node.name: node for node in await list_nodes(connection, moment, datetime.now(UTC))}
                pods = await list_pods(connection, moment, PodFilter(), limit=500, cursor=None)
                for kind in ("podspec", "node"):
                    page = await list_objects(connection, moment, kind, after="", limit=500)
                    found = {each.id: each.state for each in page.objects}
                    expected = {ref.id: json.loads(codec.encode_canonical(s)) for ref, s in state if ref.kind == kind}
                    assert found == expected
            specs, ledgers = state.of_kind(NodeSpecState), state.of_kind(NodeLedger)
            assert set(nodes) == set(specs)
            for name, node in nodes.items():
                ledger = ledgers.get(name_token(name))
                assert node.cpu_requested == (ledger.requested.get("cpu", 0) if ledger else 0)
            assert len({pod.uid for pod in pods.pods}) == len(pods.pods)
            assert {pod.uid: (pod.phase, pod.node) for pod in pods.pods} == pods_by_fold(state)
            placed = {pod.uid: pod.node for pod in pods.pods if pod.node}
            held = {
                uid: token
                for token, ledger in ledgers.items()
                for uid, entry in ledger.pods.items()
                if not is_reservation(uid, entry.allocation)
            }
            between = {events[position - 1].ref.id}  # placed, its node's ledger is the next event
            assert {uid for uid in placed if uid not in between} == {uid for uid in held if uid not in between}


async def test_a_time_means_everything_that_had_happened_by_then(postgres_dsn: str) -> None:
    events = small()
    async with projector(postgres_dsn) as it:
        it.write(events)
        async with it.running():
            await it.caught_up()
        async with it.database.reading() as connection:
            for event in events[::53]:
                at = await resolve(connection, event.occurred_at)
                last = max(other.seq for other in events if other.occurred_at <= event.occurred_at)
                assert at == Moment(position=last, occurred_at=event.occurred_at, live=False)
            assert (await resolve(connection, "2001-01-01T00:00:00Z")).position == 0
            assert (await resolve(connection, "2101-01-01T00:00:00+02:00")).position == len(events)
            assert await state_at(connection, await resolve(connection, "0"), "nodespec", "node-a-000") is None


async def test_lossy_streams_are_archived_and_what_cannot_be_read_is_counted(postgres_dsn: str) -> None:
    cluster = SyntheticCluster(nodes=5, pods=30, minutes=20)
    async with projector(postgres_dsn) as it:
        for message in cluster.reports:
            await it.observations.publish(message.ref, message.event, message.origin)
        broken = cluster.reports[0].ref
        it.observations._log.store(broken, {"Koord-Type": "NodeUsageReported", "Koord-Schema": "1"}, b"{")  # pyright: ignore[reportPrivateUsage]
        for message in cluster.explanations:
            await it.explanations.publish(message.ref, message.event, message.origin)
        for _ in range(2):  # the second run has nothing to add
            it.progress.observations = it.progress.explanations = 0
            async with it.running():
                await until(lambda: it.progress.observations == len(cluster.reports) + 1)
                await until(lambda: it.progress.explanations == len(cluster.explanations))
        page = (await it.metrics.render())[0].decode()
        assert 'koord_projector_unreadable_total{stream="obs"} 1.0' in page
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM observations").fetchone() == (len(cluster.reports),)
        assert connection.execute("SELECT count(*) FROM explanations").fetchone() == (len(cluster.explanations),)


async def pauses_of_archive(
    dsn: str, monkeypatch: pytest.MonkeyPatch, outcomes: Sequence[Exception | None]
) -> tuple[list[float], list[str]]:
    """Pauses of an archive whose batches have these outcomes (None: stored), and its warnings."""
    left, pauses = list(outcomes), list[float]()

    async def store(writer: Writer, after: int, batch: Sequence[StoredEvent]) -> int:
        outcome = left.pop(0)
        if outcome is not None:
            raise outcome
        return await archive.store_reports(writer, after, batch)

    async def note(self: Backoff) -> None:
        pauses.append(self.seconds())

    monkeypatch.setattr(Backoff, "wait", note)
    cluster = SyntheticCluster(nodes=3, pods=3, minutes=20)
    async with projector(dsn) as it:
        await it.database.migrate()
        for message in cluster.reports[: sum(outcome is None for outcome in outcomes)]:
            await it.observations.publish(message.ref, message.event, message.origin)
        kept = dataclasses.replace(it.archives[0], store=store, batch=1)
        with capture_logs() as lines:
            task = asyncio.create_task(archive.keep_archive(kept))
            await until(lambda: not left, check=lambda: task.done() and task.result())
            task.cancel()
            await asyncio.wait((task,))
    return pauses, [str(line["event"]) for line in lines]


async def test_after_a_stored_batch_an_archive_waits_as_little_as_at_first(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = [psycopg.OperationalError("away")] * 6
    pauses, _ = await pauses_of_archive(postgres_dsn, monkeypatch, [*away, None, *away[:1], None])
    assert pauses[5] > 10 * FIRST_PAUSE
    assert pauses[6] < 2 * FIRST_PAUSE


async def test_an_archive_whose_position_moves_again_and_again_waits_longer_and_says_it_once(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = [outcome for at in range(6) for outcome in (Moved("obs", at, at + 1), None)]
    pauses, lines = await pauses_of_archive(postgres_dsn, monkeypatch, moved)
    assert pauses[5] > 10 * FIRST_PAUSE
    assert lines == ["archive_moved"]


async def test_the_life_of_a_pod_has_what_hooks_did_to_it_and_to_no_other(postgres_dsn: str) -> None:
    log = Recorder()
    explanation = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="t", based_on=BasedOn())
    for name in ("a", "b"):
        spec = Pod(metadata=ObjectMeta(namespace="d", name=name, uid=name))
        log.write("podspec", name, PodSpecAdded(object=spec))
        placed = PodPlaced(
            namespace="d", name=name, node="n.1", requests={}, attempt=1, queued_at="", explanation=explanation
        )
        log.write("pod", name, placed)
        value = HookedValue(name="cpuset", plugin="CPUSetAllocator", new="0-3", old="0-7")
        hooked = ContainerHookApplied(
            uid=name, namespace="d", pod=name, container="main", stage="PreCreateContainer", mode="NRI", values=[value]
        )
        log.write("nodestate", name_token("n.1"), hooked)
    failed = HookServerFailed(
        uid="a", namespace="d", pod="a", hook="PreStartContainer", server="s", policy="Ignore", error="away"
    )
    log.write("criproxy", name_token("n.1"), failed)
    async with projector(postgres_dsn) as it:
        it.write(log.events)
        async with it.running():
            await it.caught_up()
        async with it.database.reading() as connection:
            life = await pod_life(connection, await resolve(connection, ""), "a")
    assert [entry.step for entry in life] == ["submitted", "placed", "hooked", "hook-failed"]
    assert life[2].sentence == "container main at PreCreateContainer (NRI): cpuset 0-3"
    assert life[2].body["values"] == [{"name": "cpuset", "plugin": "CPUSetAllocator", "new": "0-3", "old": "0-7"}]


async def test_old_rows_of_the_archives_are_deleted_in_small_transactions(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS_AT_ONCE", 7)
    cluster = SyntheticCluster(nodes=5, pods=30, minutes=20)
    async with projector(postgres_dsn) as it:
        for message in cluster.reports:
            await it.observations.publish(message.ref, message.event, message.origin)
        for message in cluster.explanations:
            await it.explanations.publish(message.ref, message.event, message.origin)
        async with it.running():
            await until(lambda: it.progress.observations == len(cluster.reports))
            await until(lambda: it.progress.explanations == len(cluster.explanations))
        for table, time in ((observations, "reported_at"), (explanations, "occurred_at")):
            with psycopg.connect(postgres_dsn) as connection:
                column, name = sql.Identifier(time), sql.Identifier(table.name)
                every = connection.execute(sql.SQL("SELECT {} FROM {} ORDER BY 1").format(column, name)).fetchall()
            middle = str(every[len(every) // 2][0])
            old = sum(row[0] < middle for row in every)
            assert old > 7, "several transactions are needed"
            clock = ManualClock(unix_seconds(middle) + 86_400)
            context = it.context
            policy = retention.Retention(
                database=it.database, clock=clock, days=1, metrics=context.metrics, logger=context.logger
            )
            assert await retention.prune(policy, table) == old
            with psycopg.connect(postgres_dsn) as connection:
                oldest = connection.execute(sql.SQL("SELECT min({}) FROM {}").format(column, name)).fetchone()
            assert oldest == (middle,)


async def test_a_stream_of_observations_that_was_made_again_is_followed_from_its_start(postgres_dsn: str) -> None:
    cluster = SyntheticCluster(nodes=3, pods=10, minutes=20)
    half = len(cluster.reports) // 2
    for part in (cluster.reports[:half], cluster.reports[half : half + 2]):
        async with projector(postgres_dsn) as it:
            for message in part:
                await it.observations.publish(message.ref, message.event, message.origin)
            async with it.running():
                await until(lambda part=part: it.progress.observations == len(part))
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM observations").fetchone() == (half + 2,)


class Spans:
    """Keeps spans."""

    def __init__(self) -> None:
        self.spans: list[FinishedSpan] = []

    def write(self, span: FinishedSpan) -> None:
        self.spans.append(span)

    def close(self) -> None:
        pass


async def test_every_folded_event_continues_its_trace(postgres_dsn: str) -> None:
    events, spans = history(every_kind_once()), Spans()
    async with projector(postgres_dsn, tracer=Tracer("projector", sinks=[spans])) as it:
        it.write(events)
        async with it.running():
            await it.caught_up()
    assert [span.trace_id for span in spans.spans] == [event.traceparent.split("-")[1] for event in events]
    assert spans.spans[0].parent_id == events[0].traceparent.split("-")[2]


async def test_migrations_make_the_tables_that_the_statements_expect(postgres_dsn: str) -> None:
    database = Database(postgres_dsn)
    await asyncio.gather(database.migrate(), database.migrate())  # two services that start together

    def differences(connection: Connection) -> list[object]:
        found = compare_metadata(MigrationContext.configure(connection), metadata)
        return [each for each in found if "ix_" not in repr(each)]

    async with database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    await database.close()


async def test_migrations_and_rebuilds_may_take_as_long_as_they_need(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        name = sql.Identifier(admin.info.dbname)
        admin.execute(sql.SQL("ALTER DATABASE {} SET statement_timeout = '20s'").format(name))
    limits, upgrade = list[object](), database.upgrade_to_head

    def look(connection: Connection) -> None:
        limits.append(connection.exec_driver_sql("SHOW statement_timeout").scalar())
        upgrade(connection)

    monkeypatch.setattr(database, "upgrade_to_head", look)
    migrated = Database(postgres_dsn)
    await migrated.migrate()
    async with migrated.reading() as connection:
        reading = (await connection.exec_driver_sql("SHOW statement_timeout")).scalar()
    await migrated.close()
    shadow, rows = await Shadow.open(postgres_dsn), await ShadowRows.open(postgres_dsn)
    for session in (shadow, rows):
        limits += (await query(session._connection, "SHOW statement_timeout"))[0]  # pyright: ignore[reportPrivateUsage]
        await session.close()
    assert (limits, reading) == (["0", "0", "0"], "20s")


async def test_postgres_that_comes_late_is_waited_for(postgres_dsn: str) -> None:
    from psycopg.conninfo import conninfo_to_dict

    events = history(every_kind_once())
    address = conninfo_to_dict(postgres_dsn)
    gate = asyncio.Event()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not gate.is_set():
            writer.close()
            return
        up, down = await asyncio.open_connection(str(address["host"]), int(str(address["port"])))
        await asyncio.gather(_pump(reader, down), _pump(up, writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    through = postgres_dsn.replace(f":{address['port']}/", f":{port}/")
    first = Database(postgres_dsn)
    await first.migrate()
    await first.close()
    async with projector(through) as it:
        it.write(events)
        it.database.migrate = first_migrated  # type: ignore[method-assign]  # done above, the gate is closed
        async with it.running():
            await until(lambda: "Postgres is away" in it.progress.trouble)
            assert not it.health.is_ready()
            gate.set()
            await it.caught_up()
    server.close()


async def first_migrated() -> None:
    """Nothing to do."""


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_the_writer_refuses_a_position_that_is_not_the_databases(postgres_dsn: str) -> None:
    from koord_projector.domain.projection import Projection

    database = Database(postgres_dsn)
    await database.migrate()
    writer = await Writer.open(postgres_dsn)
    projection = Projection(5)
    late = [msgspec.structs.replace(event, seq=event.seq + 5) for event in history([Action("add-pod", 0, 0)])]
    projection.apply(late[0])
    with pytest.raises(Moved, match="position 0, not 5"):
        await writer.write(projection.take_changes())
    await writer.close()
    await database.close()
    assert not any(all_rows(postgres_dsn).values())
