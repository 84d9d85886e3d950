"""The projector on a real Postgres: rows and position are one, whatever is written and in which portions."""

import asyncio

import msgspec
import psycopg
import pytest
from koord_projector.store.database import Database
from koord_projector.store.positions import Moved
from koord_projector.store.writer import Writer
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.events.envelope import StoredEvent
from koordcore.events.objects import PodSpecAdded
from koordcore.protocol import keys
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.service.telemetry.tracing import FinishedSpan, Tracer
from support.histories.actions import Action
from support.histories.history import every_kind_once, history
from support.histories.recording import Recorder
from support.projector.refused_facts import INCOMPRESSIBLE
from support.projector.rows import all_rows, folded, run_to_end, stored_hash
from support.projector.synthetic_cluster import small
from support.projector.world import projector
from support.servers import fresh_database

pytestmark = pytest.mark.postgres


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


@pytest.mark.deep
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


async def test_a_pod_whose_gang_has_a_name_of_any_length_is_stored(postgres_dsn: str) -> None:
    recorder = Recorder()
    pod = Pod(metadata=ObjectMeta(name="p", namespace="d", annotations={keys.GANG_NAME: INCOMPRESSIBLE}))
    recorder.write("podspec", "u", PodSpecAdded(object=pod))
    assert await run_to_end(postgres_dsn, recorder.events) == (1, folded(recorder.events).hash())


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


async def test_the_writer_refuses_a_position_that_is_not_the_databases(postgres_dsn: str) -> None:
    from koord_projector.fold.projection import Projection

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
