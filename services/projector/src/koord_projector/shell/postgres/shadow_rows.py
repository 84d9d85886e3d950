"""The folded rows of a rebuild: the shadow tables (`shadow`) except `events`, filled by COPY in one transaction.

If the process ends before `commit`, Postgres takes all its rows back. So a killed rebuild leaves none behind.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, LiteralString, cast

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow

from koord_projector.domain.projection import Changes
from koord_projector.shell.postgres import copytext

SCHEMA: Final = "koord_rebuild"
"""Schema of the shadow tables."""
SESSION: Final = (
    "SET synchronous_commit = off",
    "SET maintenance_work_mem = '256MB'",
    "SET jit = off",
    # ANALYZE of the default samples takes as long as the indexes. Autovacuum takes them when rows have changed.
    "SET default_statistics_target = 10",
    # An index of many facts takes minutes. The database may have a limit for its other users.
    "SET statement_timeout = 0",
    # The transaction of the rows waits for facts while the log is away.
    "SET idle_in_transaction_session_timeout = 0",
)
"""Settings of a session that fills shadow tables."""
_TABLES: Final = (
    *("aggregate_lives", "aggregate_versions", "modifications", "aggregates", "pods", "node_versions", "node_names"),
    "cluster_series",
)
_KEYS: Final = """
    SELECT c.conrelid::regclass::text, c.conname, pg_get_constraintdef(c.oid) FROM pg_constraint AS c
     WHERE c.connamespace = current_schema()::regnamespace AND c.contype = 'p' AND c.conrelid::regclass::text = ANY(%s)
"""
_INDEXES: Final = """
    SELECT i.indrelid::regclass::text, x.relname, pg_get_indexdef(i.indexrelid) FROM pg_index AS i
      JOIN pg_class AS x ON x.oid = i.indexrelid
     WHERE x.relnamespace = current_schema()::regnamespace AND NOT i.indisprimary
       AND i.indrelid::regclass::text = ANY(%s)
"""
# Writers' clocks differ, so the log returns to an earlier second now and then. The newest row of a second counts.
_ONE_ROW_A_SECOND: Final = (
    f"DELETE FROM {SCHEMA}.cluster_series AS a USING {SCHEMA}.cluster_series AS b"  # noqa: S608  constants
    " WHERE a.second = b.second AND (a.seq, a.ctid) < (b.seq, b.ctid)"
)


class ShadowRows:
    """A session that writes the folded rows of one rebuild. Only one task may use it; `ShadowRows.open` creates it."""

    def __init__(self, connection: AsyncConnection[TupleRow]) -> None:
        self._connection = connection
        self._node_tokens: set[str] = set()

    @classmethod
    async def open(cls, dsn: str) -> "ShadowRows":
        """Connect to Postgres. The shadow tables must exist.

        Raises:
            WRITE_ERRORS: Postgres is unavailable.
        """
        connection = await psycopg.AsyncConnection[TupleRow].connect(dsn, connect_timeout=5, prepare_threshold=None)
        await run(connection, *SESSION)
        return cls(connection)

    async def close(self) -> None:
        """End the session. Rows that were not committed are taken back."""
        await self._connection.close()

    async def add(self, changes: Changes) -> None:
        """Write rows that will not change any more. `changes.events` are left out.

        Raises:
            WRITE_ERRORS: Postgres is unavailable.
        """
        async with self._connection.cursor() as cursor:
            await copy(cursor, "aggregate_lives", copytext.LIFE_COLUMNS, map(copytext.life_line, changes.lives))
            await copy(
                cursor, "aggregate_versions", copytext.VERSION_COLUMNS, map(copytext.version_line, changes.versions)
            )
            lines = copytext.modification_lines(changes.modifications)
            await copy(cursor, "modifications", copytext.MODIFICATION_COLUMNS, lines)
            await copy(
                cursor, "aggregates", copytext.AGGREGATE_COLUMNS, map(copytext.aggregate_line, changes.new_aggregates)
            )
            await copy(cursor, "pods", copytext.POD_COLUMNS, map(copytext.pod_line, changes.pods))
            await copy(cursor, "node_versions", copytext.NODE_COLUMNS, [copytext.node_lines(changes.nodes)])
            await copy(cursor, "cluster_series", copytext.SERIES_COLUMNS, map(copytext.series_line, changes.series))
        self._node_tokens.update(change.token for change in changes.nodes)

    async def commit(self) -> None:
        """Write the names of the nodes, create keys and indexes of all tables but `events`, and commit.

        Raises:
            WRITE_ERRORS: Postgres is unavailable.
        """
        async with self._connection.cursor() as cursor:
            names = (f"{copytext.escape(token)}\n".encode() for token in sorted(self._node_tokens))
            await copy(cursor, "node_names", ("token",), names)
        await run(self._connection, f"ANALYZE {SCHEMA}.cluster_series", _ONE_ROW_A_SECOND)
        await index(self._connection, _TABLES)
        await self._connection.commit()


async def copy(cursor: AsyncCursor[TupleRow], table: str, columns: tuple[str, ...], lines: Iterable[bytes]) -> None:
    """Append rows to a shadow table.

    Args:
        cursor: Cursor of the session.
        table: Name of the table, without its schema.
        columns: Columns of the rows.
        lines: The rows as lines of COPY.
    """
    data = b"".join(lines)
    if not data:
        return
    async with cursor.copy(copytext.copy_statement(f"{SCHEMA}.{table}", columns).encode()) as copying:
        await copying.write(data)
    await asyncio.sleep(0)


async def index(connection: AsyncConnection[TupleRow], tables: Sequence[str]) -> None:
    """Create the keys, indexes and statistics of shadow tables: those that the tables have which they replace.

    Args:
        connection: Session of the shadow tables.
        tables: Names of the tables, without a schema.
    """
    for table, name, key in await query(connection, _KEYS, tables):
        await run(connection, f"ALTER TABLE {SCHEMA}.{table} ADD CONSTRAINT {name} {key}")
    for table, name, definition in await query(connection, _INDEXES, tables):
        # `CREATE INDEX name ON schema.table USING ...`
        await run(connection, f"CREATE INDEX {name} ON {SCHEMA}.{table} USING {definition.split(' USING ', 1)[1]}")
    for table in tables:
        await run(connection, f"ANALYZE {SCHEMA}.{table}")


async def run(connection: AsyncConnection[TupleRow], *statements: str) -> None:
    """Execute statements that are made of constants and names of the catalogue of Postgres."""
    for statement in statements:
        await connection.execute(statement.encode())


async def query(
    connection: AsyncConnection[TupleRow], statement: str, tables: Sequence[str] | None = None
) -> list[tuple[str, ...]]:
    """Return the rows of a query.

    Args:
        connection: Session of the shadow tables.
        statement: The query.
        tables: Value of its parameter; None if it has none.
    """
    async with connection.cursor() as cursor:
        await cursor.execute(cast("LiteralString", statement), None if tables is None else (list(tables),))
        return cast("list[tuple[str, ...]]", await cursor.fetchall())
