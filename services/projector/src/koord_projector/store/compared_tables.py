"""Read the rows of tables as lines of COPY, in one transaction that sees what another session has exported."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from koord_projector.store.copytext import quoted
from koord_projector.store.digests import EVENTS, TABLES, BlockDigests, ComparedColumns, Digest, Digests
from koord_projector.store.positions import FACTS, projection_schema

_SESSION: Final = ("SET client_encoding = 'UTF8'", "SET jit = off", "SET statement_timeout = 0")


class Seen(NamedTuple):
    """What a transaction sees: it is the state of all tables at one moment."""

    connection: AsyncConnection[TupleRow]
    snapshot: str  # Name under which other sessions can see the same
    position: int  # Position of the tables
    event_id: str  # Id of the fact there
    is_current: bool  # Whether this version of the projector has made the rows
    first: int  # Position of the oldest fact that Postgres keeps


@asynccontextmanager
async def seen(dsn: str) -> AsyncGenerator[Seen]:
    """Raises:
    WRITE_ERRORS: Postgres is unavailable.
    """
    async with _reading(dsn) as connection, connection.cursor() as cursor:
        await cursor.execute("SELECT position, event_id, schema FROM projection WHERE stream = %s", (FACTS,))
        position, event_id, schema = await cursor.fetchone() or (0, "", projection_schema())
        await cursor.execute("SELECT seq FROM events ORDER BY seq LIMIT 1")
        first = await cursor.fetchone()
        await cursor.execute("SELECT pg_export_snapshot()")
        exported = await cursor.fetchone()
        yield Seen(
            connection,
            str(exported[0]) if exported else "",
            int(position),
            str(event_id),
            schema == projection_schema(),
            int(first[0]) if first else 1,
        )


@asynccontextmanager
async def _reading(dsn: str, snapshot: str = "") -> AsyncGenerator[AsyncConnection[TupleRow]]:
    connection = await psycopg.AsyncConnection[TupleRow].connect(dsn, autocommit=True, connect_timeout=5)
    try:
        for statement in (*_SESSION, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"):
            await connection.execute(statement.encode())
        if snapshot:
            await connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
        yield connection
    finally:
        await connection.close()


async def folded_tables(dsn: str, snapshot: str, end: int) -> Digests:
    """Return the digests of the tables that are folded from facts, but `events`. `end`: position up to which facts were
    dropped; rows that a rebuild would not need are left out.
    """
    async with _reading(dsn, snapshot) as connection:
        return {
            table: await _digests(connection, table, each, each.kept.format(end=end) if end else "")
            for table, each in TABLES.items()
        }


async def stored_facts(connection: AsyncConnection[TupleRow], first: int) -> dict[int, Digest]:
    """Return the digests of the table `events` from a position on."""
    return await _digests(connection, "events", EVENTS, f"seq >= {first}")


async def _digests(
    connection: AsyncConnection[TupleRow], table: str, compared: ComparedColumns, condition: str
) -> dict[int, Digest]:
    digests = BlockDigests(compared.position)
    where = f" WHERE {condition}" if condition else ""
    statement = f"COPY (SELECT {', '.join(map(quoted, compared.columns))} FROM {table}{where}) TO STDOUT"  # noqa: S608
    rest = b""
    async with connection.cursor() as cursor, cursor.copy(statement.encode()) as copying:
        async for data in copying:
            *lines, rest = (rest + bytes(data)).split(b"\n")
            for line in lines:
                digests.add(line)
    return digests.blocks()
