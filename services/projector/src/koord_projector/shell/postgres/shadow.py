"""Shadow tables: the new tables of a rebuild. They are filled by COPY and exchanged with the old ones at the end.

    shadow = await Shadow.open(dsn)        1. empty tables without indexes in a schema of their own
    await shadow.add(changes)              2. COPY, as often as needed
    await shadow.exchange(...)             3. keys and indexes, then all tables in one transaction

Until then, readers see the earlier rows. If the process ends before, the next rebuild drops the shadow tables.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, LiteralString, cast

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow

from koord_projector.domain.projection import Changes
from koord_projector.shell.postgres import copytext
from koord_projector.shell.postgres.partitions import PARTITIONS, Partitions
from koord_projector.shell.postgres.tables import FOLDED
from koord_projector.shell.postgres.writer import FACTS, set_position, take_position

SCHEMA: Final = "koord_rebuild"
CANNOT_EXCHANGE: Final = (psycopg.errors.InsufficientPrivilege, psycopg.errors.DependentObjectsStillExist)
"""Errors if the user may not create a schema, or if a view depends on a table. The tables stay as they were."""
_LOCK: Final = 0x6B6F6F726472  # "koordr": one rebuild at a time
_SESSION: Final = (
    "SET synchronous_commit = off",
    "SET maintenance_work_mem = '256MB'",
    "SET jit = off",
)
_OPTIONS: Final = """
    SELECT c.relname, coalesce(array_to_string(c.reloptions, ', '), ''), coalesce(pg_get_partkeydef(c.oid), '')
      FROM pg_class AS c
     WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ANY(%s)
"""
_KEYS: Final = """
    SELECT c.conrelid::regclass::text, c.conname, pg_get_constraintdef(c.oid), '' FROM pg_constraint AS c
     WHERE c.connamespace = current_schema()::regnamespace AND c.contype = 'p' AND c.conrelid::regclass::text = ANY(%s)
"""
_INDEXES: Final = """
    SELECT i.indrelid::regclass::text, x.relname, '', pg_get_indexdef(i.indexrelid) FROM pg_index AS i
      JOIN pg_class AS x ON x.oid = i.indexrelid
     WHERE x.relnamespace = current_schema()::regnamespace AND NOT i.indisprimary
       AND i.indrelid::regclass::text = ANY(%s)
"""
_GRANTS: Final = """
    SELECT a.privilege_type, c.relname, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(r.rolname) END
      FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a LEFT JOIN pg_roles AS r ON r.oid = a.grantee
     WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ANY(%s) AND a.grantee <> c.relowner
"""
# Writers' clocks differ, so the log returns to an earlier second now and then. The newest row of a second counts.
_ONE_ROW_A_SECOND: Final = (
    f"DELETE FROM {SCHEMA}.cluster_series AS a USING {SCHEMA}.cluster_series AS b"  # noqa: S608  constants
    " WHERE a.second = b.second AND (a.seq, a.ctid) < (b.seq, b.ctid)"
)
_NAMES: Final = [table.name for table in FOLDED]


class Shadow:
    """The shadow tables of one rebuild. Only one task may use it; `Shadow.open` creates it."""

    def __init__(self, connection: AsyncConnection[TupleRow]) -> None:
        self._connection = connection
        self._node_tokens: set[str] = set()
        self._partitions = Partitions(f"{SCHEMA}.events")

    @classmethod
    async def open(cls, dsn: str) -> "Shadow":
        """Connect to Postgres and create empty shadow tables. Waits while another process rebuilds.

        Raises:
            CANNOT_EXCHANGE: The user may not create a schema.
            WRITE_ERRORS: Postgres is unavailable.
        """
        connection = await psycopg.AsyncConnection[TupleRow].connect(
            dsn, autocommit=True, connect_timeout=5, prepare_threshold=None
        )
        try:
            for statement in _SESSION:
                await connection.execute(statement.encode())
            await connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
            await _run(connection, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}")
            for name, options, partitioned in await _all(connection, _OPTIONS):
                how = f" WITH ({options})" if options else ""
                parted = f" PARTITION BY {partitioned}" if partitioned else ""
                await _run(
                    connection,
                    f"CREATE TABLE {SCHEMA}.{name} (LIKE {name} INCLUDING DEFAULTS INCLUDING STORAGE"
                    f" INCLUDING COMPRESSION){parted}{how}",
                )
        except BaseException:
            await connection.close()
            raise
        return cls(connection)

    async def close(self) -> None:
        """End the session, and with it the lock."""
        await self._connection.close()

    async def add(self, changes: Changes) -> None:
        """Write rows that will not change any more.

        Raises:
            WRITE_ERRORS: Postgres is unavailable.
        """
        async with self._connection.cursor() as cursor:
            if changes.events:
                await self._partitions.ensure(cursor, changes.events[0].seq, changes.events[-1].seq)
            await _copy(cursor, "events", copytext.EVENT_COLUMNS, map(copytext.event_line, changes.events))
            await _copy(cursor, "aggregate_lives", copytext.LIFE_COLUMNS, map(copytext.life_line, changes.lives))
            await _copy(
                cursor, "aggregate_versions", copytext.VERSION_COLUMNS, map(copytext.version_line, changes.versions)
            )
            lines = copytext.modification_lines(changes.modifications)
            await _copy(cursor, "modifications", copytext.MODIFICATION_COLUMNS, lines)
            await _copy(
                cursor, "aggregates", copytext.AGGREGATE_COLUMNS, map(copytext.aggregate_line, changes.new_aggregates)
            )
            await _copy(cursor, "pods", copytext.POD_COLUMNS, map(copytext.pod_line, changes.pods))
            await _copy(cursor, "node_versions", copytext.NODE_COLUMNS, map(copytext.node_line, changes.nodes))
            await _copy(cursor, "cluster_series", copytext.SERIES_COLUMNS, map(copytext.series_line, changes.series))
        self._node_tokens.update(change.token for change in changes.nodes)

    async def exchange(self, after: int, position: int, event_id: str) -> None:
        """Create keys and indexes, then replace the tables by the shadow tables in one transaction.

        Args:
            after: Position that the tables must have now.
            position: Position of the rows in the shadow tables.
            event_id: Id of the fact at `position`.

        Raises:
            Moved: The tables have another position than `after`.
            CANNOT_EXCHANGE: Another object depends on a table.
            WRITE_ERRORS: Postgres is unavailable.
        """
        connection = self._connection
        async with connection.cursor() as cursor:
            names = (f"{token}\n".encode() for token in sorted(self._node_tokens))
            await _copy(cursor, "node_names", ("token",), names)
        await _run(connection, f"ANALYZE {SCHEMA}.cluster_series", _ONE_ROW_A_SECOND)
        for table, name, key, index in [*await _all(connection, _KEYS), *await _all(connection, _INDEXES)]:
            if key:
                await _run(connection, f"ALTER TABLE {SCHEMA}.{table} ADD CONSTRAINT {name} {key}")
            else:
                # `CREATE INDEX name ON schema.table USING ...`
                await _run(connection, f"CREATE INDEX {name} ON {SCHEMA}.{table} USING {index.split(' USING ', 1)[1]}")
        for name in _NAMES:
            await _run(connection, f"ANALYZE {SCHEMA}.{name}")
        async with connection.transaction(), connection.cursor() as cursor:
            await take_position(cursor, FACTS, after)
            (schema,) = (await _all(connection, "SELECT current_schema()", with_names=False))[0]
            for privilege, table, role in await _all(connection, _GRANTS):
                await _run(connection, f"GRANT {privilege} ON {SCHEMA}.{table} TO {role}")
            found = await _all(connection, PARTITIONS.format(table=f"{SCHEMA}.events"), with_names=False)
            partitions = [name for name, _ in found]
            for name in _NAMES:
                await _run(connection, f"DROP TABLE {schema}.{name}")
            for name in (*_NAMES, *partitions):
                await _run(connection, f"ALTER TABLE {SCHEMA}.{name} SET SCHEMA {schema}")
            await _run(connection, f"DROP SCHEMA {SCHEMA}")
            await set_position(cursor, FACTS, position, event_id)


async def _copy(cursor: AsyncCursor[TupleRow], table: str, columns: tuple[str, ...], lines: Iterable[bytes]) -> None:
    data = b"".join(lines)
    if not data:
        return
    async with cursor.copy(copytext.copy_statement(f"{SCHEMA}.{table}", columns).encode()) as copy:
        await copy.write(data)
    await asyncio.sleep(0)


async def _run(connection: AsyncConnection[TupleRow], *statements: str) -> None:
    for statement in statements:
        await connection.execute(statement.encode())


async def _all(
    connection: AsyncConnection[TupleRow], statement: str, *, with_names: bool = True
) -> list[tuple[str, ...]]:
    async with connection.cursor() as cursor:
        await cursor.execute(cast("LiteralString", statement), (_NAMES,) if with_names else None)
        return cast("list[tuple[str, ...]]", await cursor.fetchall())
