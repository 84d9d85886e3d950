"""Rows that are made again, and tables that are migrated."""

import asyncio

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from koord_projector.store import database
from koord_projector.store.database import Database
from koord_projector.store.shadow import Shadow, ShadowRows, query
from koord_projector.store.tables import metadata
from psycopg import sql
from sqlalchemy import Connection
from support.histories.history import every_kind_once, history
from support.projector.rows import all_rows, folded, run_to_end
from support.projector.synthetic_cluster import SyntheticCluster
from support.projector.world import projector
from support.until import until

pytestmark = pytest.mark.postgres


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


async def test_migrations_make_the_tables_that_the_statements_expect(postgres_dsn: str) -> None:
    database = Database(postgres_dsn)
    await asyncio.gather(database.migrate(), database.migrate())  # two services that start together

    def differences(connection: Connection) -> list[object]:
        found = compare_metadata(MigrationContext.configure(connection), metadata)
        return [each for each in found if "ix_" not in repr(each)]

    async with database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    await database.close()


async def test_a_database_that_a_later_release_has_migrated_is_taken_as_it_is(postgres_dsn: str) -> None:
    events = history(every_kind_once())
    await run_to_end(postgres_dsn, events)
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999_of_a_later_release'")
        connection.execute("ALTER TABLE pods ADD COLUMN later text")
    assert await run_to_end(postgres_dsn, events) == (len(events), folded(events).hash())


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
