"""A rebuild by COPY into shadow tables gives the tables that folding batch by batch gives."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from koord_projector.fold.projection import Projection
from koord_projector.projecting import fold_process, rebuilding
from koord_projector.projecting.fold_process import FoldEnded, FoldProcess, as_sent
from koord_projector.store import shadow as shadow_module
from koord_projector.store.shadow import SCHEMA, Shadow
from koordcore.bus.client.wire import HEADER_LINE, encode_headers
from koordcore.bus.read.event_headers import EventHeaders
from koordcore.events.envelope import StoredEvent
from koordcore.events.log import EventSkipped
from psycopg import sql
from support.histories.history import every_kind_once, history
from support.histories.recording import Recorder
from support.projector.refused_facts import refused_fact
from support.projector.synthetic_cluster import small
from support.projector.world import TABLES, Projector, projector
from support.until import until

pytestmark = pytest.mark.postgres

_ROWS = sql.SQL("SELECT * FROM {}")
_SHAPE = """
    SELECT tablename, indexname, indexdef FROM pg_indexes WHERE tablename = ANY(%s) ORDER BY 1, 2
"""
_OPTIONS = "SELECT relname, reloptions FROM pg_class WHERE relname = ANY(%s) AND relkind = 'r' ORDER BY 1"
_COLUMNS = """
    SELECT table_name, column_name, is_nullable, data_type, collation_name FROM information_schema.columns
     WHERE table_name = ANY(%s) ORDER BY table_name, ordinal_position
"""


@pytest.fixture(autouse=True)
def by_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a short log is worth a COPY."""
    monkeypatch.setattr(rebuilding, "WORTH_EVENTS", 1)
    monkeypatch.setattr(rebuilding, "_BATCH", 37)


def all_of(dsn: str) -> dict[str, list[tuple[object, ...]]]:
    """Rows, keys, indexes, options and columns of all folded tables, and the position."""
    with psycopg.connect(dsn) as connection:
        found: dict[str, list[tuple[object, ...]]] = {}
        for table in TABLES:
            found[table] = sorted(connection.execute(_ROWS.format(sql.Identifier(table))), key=repr)
        for name, statement in (("shape", _SHAPE), ("options", _OPTIONS), ("columns", _COLUMNS)):
            found[name] = connection.execute(statement.encode(), (list(TABLES),)).fetchall()
        found["projection"] = connection.execute("SELECT position, event_id FROM projection").fetchall()
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (SCHEMA,)).fetchall() == []
        return found


async def rebuilt(it: Projector) -> None:
    it.progress.rebuild_wanted.set()
    await until(lambda: not it.progress.rebuild_wanted.is_set())
    await it.caught_up()


@pytest.mark.parametrize("events", [history(every_kind_once()), small()], ids=["every kind", "a cluster"])
async def test_rows_keys_and_indexes_are_those_of_the_batches(
    postgres_dsn: str, events: list[StoredEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = len(events) * 2 // 3
    monkeypatch.setattr(rebuilding, "WORTH_EVENTS", len(events) + 1)
    async with projector(postgres_dsn, batch_events=41) as it:
        it.write(events[:cut])
        async with it.running():
            await it.caught_up()
            batches = all_of(postgres_dsn)
            with psycopg.connect(postgres_dsn) as connection:
                connection.execute("GRANT SELECT ON pods TO PUBLIC")
            monkeypatch.setattr(rebuilding, "WORTH_EVENTS", 1)
            await rebuilt(it)
            for table, rows in all_of(postgres_dsn).items():
                assert rows == batches[table], table
            # The projection that made them goes on, and a new one loads them.
            it.write(events[cut:])
            await it.caught_up()
        after = all_of(postgres_dsn)
        async with it.running():
            await rebuilt(it)
            assert all_of(postgres_dsn) == after
    with psycopg.connect(postgres_dsn) as connection:
        granted = connection.execute("SELECT has_table_privilege('public', 'pods', 'SELECT')").fetchone()
        assert granted == (True,)


@pytest.mark.deep
async def test_tables_are_exchanged_when_no_query_reads_them_and_other_queries_run_meanwhile(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_module, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(rebuilding, "EXCHANGE_PAUSE_SECONDS", 0.01)
    events = small()
    async with projector(postgres_dsn) as it:
        it.write(events)
        async with it.running():
            await it.caught_up()
            before = all_of(postgres_dsn)
            with psycopg.connect(postgres_dsn) as reader:
                reader.execute("SELECT count(*) FROM pods")
                it.progress.rebuild_wanted.set()
                await until(lambda: "waits for queries" in it.progress.trouble)
                with psycopg.connect(postgres_dsn) as other:
                    assert other.execute("SELECT count(*) FROM events").fetchone() == (len(events),)
            await it.caught_up()
            assert all_of(postgres_dsn) == before


@pytest.mark.deep
async def test_a_view_of_a_user_stays_and_the_rebuild_goes_batch_by_batch(postgres_dsn: str) -> None:
    events = small()
    async with projector(postgres_dsn) as it:
        it.write(events)
        async with it.running():
            await it.caught_up()
            with psycopg.connect(postgres_dsn) as connection:
                connection.execute("CREATE VIEW mine AS SELECT count(*) AS n FROM pods")
                before = connection.execute("SELECT n FROM mine").fetchall()
            await rebuilt(it)
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT n FROM mine").fetchall() == before


@pytest.mark.parametrize(
    "poison",
    [
        pytest.param(b"{", id="no JSON"),
        pytest.param(b'{"a":"\0"}', id="NUL"),
        pytest.param(None, id="refused by Postgres", marks=pytest.mark.deep),  # it is very large
    ],
)
@pytest.mark.deep
async def test_it_ends_before_a_fact_without_rows_and_obeys_a_skip(postgres_dsn: str, poison: bytes | None) -> None:
    events = history(every_kind_once())
    events[8] = refused_fact(9) if poison is None else StoredEvent(9, events[8].ref, events[8].headers, poison)
    async with projector(postgres_dsn) as it:
        it.write(events)
        async with it.running():
            await until(lambda: "halted before" in it.progress.trouble)
            assert it.progress.position == 8
            assert max(int(str(row[0])) for row in all_of(postgres_dsn)["events"]) == 8
            recorder = Recorder()
            recorder.events = list(events)
            recorder.write("fold", "projector", EventSkipped(seq=9, reason="test", operator="test"))
            it.write(recorder.events[len(events) :])
            await it.caught_up()
            skipped = all_of(postgres_dsn)
            await rebuilt(it)
            assert all_of(postgres_dsn) == skipped


@pytest.mark.deep
async def test_readers_see_the_earlier_rows_until_the_exchange(postgres_dsn: str) -> None:
    events = small()
    async with projector(postgres_dsn) as it:
        it.write(events)
        async with it.running():
            await it.caught_up()
            with psycopg.connect(postgres_dsn) as reader:
                before = reader.execute("SELECT count(*) FROM events").fetchone()
                it.progress.rebuild_wanted.set()
                with psycopg.connect(postgres_dsn, autocommit=True) as watcher:
                    built = "SELECT count(*) FROM pg_stat_all_tables WHERE schemaname = %s AND n_tup_ins > 0"
                    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    # The reader's transaction holds its lock, so the exchange waits for it.
                    await until(lambda: watcher.execute(waiting).fetchone() != (0,))
                    assert watcher.execute(built, (SCHEMA,)).fetchone() is not None
                assert reader.execute("SELECT count(*) FROM events").fetchone() == before
            await it.caught_up()
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == before


def is_folding(pid: int) -> bool:
    """Whether a process folds; False if it has ended."""
    try:
        return fold_process.__name__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def folding_processes() -> list[int]:
    """Ids of the children of this process that fold."""
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread or the child may have ended
            found += [pid for pid in map(int, path.read_text().split()) if is_folding(pid)]
    return found


@pytest.mark.deep
async def test_a_killed_fold_begins_again(postgres_dsn: str) -> None:
    async with projector(postgres_dsn) as it:
        it.write(small())
        async with it.running():
            await it.caught_up()
            once = all_of(postgres_dsn)
            it.progress.rebuild_wanted.set()
            await until(lambda: len(folding_processes()) == 1)
            (first,) = folding_processes()
            os.kill(first, signal.SIGKILL)
            await until(lambda: folding_processes() not in ([], [first]))
            await it.caught_up()
            assert all_of(postgres_dsn) == once


@pytest.mark.deep
async def test_indexes_are_given_up_with_a_fold_that_ends_before_the_session_is_closed(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, index, finish, close = list[str](), Shadow.index_facts, FoldProcess.finish, Shadow.close

    async def endless(self: Shadow) -> None:
        monkeypatch.setattr(Shadow, "index_facts", index)
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("given up")

    async def ended(self: FoldProcess) -> fold_process.Folded:
        monkeypatch.setattr(FoldProcess, "finish", finish)
        raise FoldEnded("it was killed")

    async def closed(self: Shadow) -> None:
        steps.append("closed")
        await close(self)

    async with projector(postgres_dsn) as it:
        it.write(small())
        async with it.running():
            await it.caught_up()
            once = all_of(postgres_dsn)
            monkeypatch.setattr(Shadow, "index_facts", endless)
            monkeypatch.setattr(FoldProcess, "finish", ended)
            monkeypatch.setattr(Shadow, "close", closed)
            it.progress.rebuild_wanted.set()
            await until(lambda: steps.count("closed") == 2)
            await it.caught_up()
            assert all_of(postgres_dsn) == once
    assert steps == ["given up", "closed", "closed"]


@pytest.mark.deep
async def test_a_fold_whose_parent_ends_leaves_no_row(postgres_dsn: str) -> None:
    async with projector(postgres_dsn) as it:
        await it.database.migrate()
    shadow = await Shadow.open(postgres_dsn)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", fold_process.__name__],
        input=fold_process.message(fold_process.Order(postgres_dsn, []))
        + fold_process.message(list(map(as_sent, small()))),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, b"ended before its last fact" in done.stderr) == (1, True), done.stderr
    with psycopg.connect(postgres_dsn) as connection:
        for table in TABLES:
            counted = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(SCHEMA, table))
            assert connection.execute(counted).fetchone() == (0,), table
    await shadow.close()


def test_facts_of_a_real_log_give_the_process_the_same_states() -> None:
    """Their headers are parsed late, so that the process gets few of them."""
    plain, sent = Projection(), Projection()
    for event in history(every_kind_once()):
        headers = EventHeaders(HEADER_LINE + encode_headers(dict(event.headers)) + b"\r\n")
        assert headers.texts() is not None
        fact = as_sent(StoredEvent(event.seq, event.ref, headers, event.body, event.stored_at_ns))
        assert (plain.apply(event), sent.apply(fact)) != (None, None)
        assert plain.position == sent.position == event.seq
    found, expected = sent.take_rest(), plain.take_rest()
    assert [(row.ref, row.state) for row in found.new_aggregates] == [
        (row.ref, row.state) for row in expected.new_aggregates
    ]
    assert found.modifications == expected.modifications
