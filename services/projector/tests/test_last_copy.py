"""The tables may be the last copy of the facts of a log that was lost: no rebuild deletes them by mistake."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import httpx
import psycopg
import pytest
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import memory_bus
from koordcore.events.envelope import StoredEvent
from support.histories.history import every_kind_once, history
from support.projector.rows import all_rows, run_to_end
from support.projector.service import serving
from support.projector.world import Projector, projector
from support.until import DEADLINE_SECONDS, until

pytestmark = pytest.mark.postgres

EVENTS = history(every_kind_once())
LOST = 5


@asynccontextmanager
async def on_another_log(dsn: str, events: Sequence[StoredEvent]) -> AsyncGenerator[Projector]:
    """A running projector whose tables have more facts than its log, or others."""
    async with projector(dsn) as it:
        it.write(events)
        async with it.running():
            await until(lambda: it.progress.keeps_facts)
            yield it


async def refused(it: Projector) -> None:
    """Ask for a rebuild, and wait until it is refused."""
    it.progress.going_on()
    it.progress.rebuild_wanted.set()
    await until(lambda: it.progress.keeps_facts and not it.progress.rebuild_wanted.is_set())
    assert "may be the last copy of these facts: restore the log" in it.progress.trouble


@pytest.mark.parametrize("schema", ["", "0:old"], ids=["of this version", "of another version"])
async def test_facts_that_the_log_has_lost_are_deleted_only_if_somebody_gives_them_up(
    postgres_dsn: str, schema: str
) -> None:
    await run_to_end(postgres_dsn, EVENTS)
    if schema:
        with psycopg.connect(postgres_dsn) as connection:
            connection.execute("UPDATE projection SET schema = %s WHERE stream = 'ev'", (schema,))
    before = all_rows(postgres_dsn)
    async with on_another_log(postgres_dsn, EVENTS[:-LOST]) as it:
        await refused(it)
        assert all_rows(postgres_dsn) == before

        it.progress.may_discard = True
        it.progress.rebuild_wanted.set()
        await it.caught_up()
        assert not it.progress.may_discard
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (len(EVENTS) - LOST,)


async def test_facts_that_the_log_has_dropped_are_kept_where_there_is_no_archive(postgres_dsn: str) -> None:
    await run_to_end(postgres_dsn, EVENTS)
    before = all_rows(postgres_dsn)
    async with projector(postgres_dsn) as it:
        it.write(EVENTS)
        it.log.trim(LOST)
        async with it.running():
            await it.caught_up()
            await refused(it)
    assert all_rows(postgres_dsn) == before


async def test_a_request_to_rebuild_is_refused_with_the_reason_unless_it_gives_the_facts_up(postgres_dsn: str) -> None:
    await run_to_end(postgres_dsn, EVENTS)
    before = all_rows(postgres_dsn)
    async with (
        serving(postgres_dsn, memory_bus(log=MemoryLog()), waits=False) as url,
        httpx.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as client,
    ):

        async def is_refused() -> bool:
            return (await client.post("/admin/rebuild", json={})).status_code == 409

        await until(is_refused)
        answer = await client.post("/admin/rebuild", json={"discard": False})
        assert f"the log ends at 0, the tables hold facts up to {len(EVENTS)}" in answer.json()["error"]
        assert (await client.post("/admin/rebuild", json={"discrad": True})).status_code == 400
        assert all_rows(postgres_dsn) == before

        assert (await client.post("/admin/rebuild", json={"discard": True})).status_code == 202

        async def folds_the_empty_log() -> bool:
            found = (await client.get("/api/status")).json()
            return found["position"] == 0 and not found["trouble"]

        await until(folds_the_empty_log)
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)
