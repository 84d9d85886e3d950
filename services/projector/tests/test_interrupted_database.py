"""A Postgres that ends sessions, refuses writes, is restored or comes late: the projector loses and repeats nothing."""

import asyncio

import msgspec
import psycopg
import pytest
from koord_projector.store.database import Database
from psycopg import sql
from support.histories.history import every_kind_once, history
from support.histories.recording import Recorder
from support.projector.rows import all_rows, folded, observed_namespace, run_to_end, stored_hash
from support.projector.synthetic_cluster import small
from support.projector.world import TABLES, projector
from support.servers import fresh_database
from support.until import until

pytestmark = pytest.mark.postgres


@pytest.mark.deep
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
                more.write("namespace", "ns-1", observed_namespace())
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
