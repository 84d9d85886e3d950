"""Shadow tables: the new tables of a rebuild. They are filled by COPY and exchanged with the old ones at the end.

    shadow = await Shadow.open(dsn)        1. empty tables without indexes in a schema of their own
    await shadow.add_facts(events)         2. COPY of facts, as often as needed; `ShadowRows` fills the other tables
    await shadow.index_facts()             3. keys and indexes of the table `events`
    await shadow.leave_out(...)            4. facts that the fold did not apply
    await shadow.exchange(...)             5. all tables in one transaction

Until then, readers see the earlier rows. If the process ends before, the next rebuild drops the shadow tables. The
process that folds writes its rows in one transaction, so Postgres takes them back if it is killed.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, LiteralString, cast

import psycopg
from koordcore.events.envelope import StoredEvent
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow

from koord_projector.fold.projection import Changes, has_row
from koord_projector.store import copytext
from koord_projector.store.database import LOCK_SECONDS
from koord_projector.store.positions import FACTS, PARTITIONS, Partitions, set_position, take_tables
from koord_projector.store.tables import FOLDED

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
    """The session that writes the folded rows of one rebuild. One task uses it; `ShadowRows.open` creates it.

    Methods raise one of `WRITE_ERRORS` if Postgres is unavailable.
    """

    def __init__(self, connection: AsyncConnection[TupleRow]) -> None:
        self._connection = connection
        self._node_tokens: set[str] = set()

    @classmethod
    async def open(cls, dsn: str) -> "ShadowRows":
        """The shadow tables must exist."""
        connection = await psycopg.AsyncConnection[TupleRow].connect(dsn, connect_timeout=5, prepare_threshold=None)
        await run(connection, *SESSION)
        return cls(connection)

    async def close(self) -> None:
        """Rows that were not committed are taken back."""
        await self._connection.close()

    async def add(self, changes: Changes) -> None:
        """Write rows that will not change any more, without `changes.events`."""
        async with self._connection.cursor() as cursor:
            for table, columns, rows in copytext.added_rows(changes):
                await _copy(cursor, table, columns, rows)
            await _copy(cursor, "pods", copytext.POD_COLUMNS, map(copytext.pod_line, changes.pods))
            await _copy(cursor, "cluster_series", copytext.SERIES_COLUMNS, map(copytext.series_line, changes.series))
        self._node_tokens.update(change.token for change in changes.nodes)

    async def commit(self) -> None:
        """Write the names of the nodes, create keys and indexes of all tables but `events`, and commit."""
        async with self._connection.cursor() as cursor:
            names = (f"{copytext.escape(token)}\n".encode() for token in sorted(self._node_tokens))
            await _copy(cursor, "node_names", ("token",), names)
        await run(self._connection, f"ANALYZE {SCHEMA}.cluster_series", _ONE_ROW_A_SECOND)
        await index(self._connection, _TABLES)
        await self._connection.commit()


async def _copy(cursor: AsyncCursor[TupleRow], table: str, columns: Sequence[str], lines: Iterable[bytes]) -> None:
    await copytext.copy(cursor, f"{SCHEMA}.{table}", columns, lines)


async def index(connection: AsyncConnection[TupleRow], tables: Sequence[str]) -> None:
    """Create the keys, indexes and statistics that the tables have which the shadow tables replace."""
    for table, name, key in await query(connection, _KEYS, tables):
        await run(connection, f"ALTER TABLE {SCHEMA}.{table} ADD CONSTRAINT {name} {key}")
    for table, name, definition in await query(connection, _INDEXES, tables):
        # `CREATE INDEX name ON schema.table USING ...`
        await run(connection, f"CREATE INDEX {name} ON {SCHEMA}.{table} USING {definition.split(' USING ', 1)[1]}")
    for table in tables:
        await run(connection, f"ANALYZE {SCHEMA}.{table}")


async def run(connection: AsyncConnection[TupleRow], *statements: str) -> None:
    """The statements are made of constants and names of the catalogue of Postgres."""
    for statement in statements:
        await connection.execute(statement.encode())


async def query(
    connection: AsyncConnection[TupleRow], statement: str, tables: Sequence[str] | None = None
) -> list[tuple[str, ...]]:
    """`tables`: value of its parameter; None if it has none."""
    async with connection.cursor() as cursor:
        await cursor.execute(cast("LiteralString", statement), None if tables is None else (list(tables),))
        return cast("list[tuple[str, ...]]", await cursor.fetchall())


CANNOT_EXCHANGE: Final = (psycopg.errors.InsufficientPrivilege, psycopg.errors.DependentObjectsStillExist)
"""Errors if the user may not create a schema, or if a view depends on a table. The tables stay as they were."""
TABLES_IN_USE: Final = psycopg.errors.LockNotAvailable
"""Error if queries read the old tables for long. They and the shadow tables stay as they were."""
_LOCK: Final = 0x6B6F6F726472  # "koordr": one rebuild at a time
_OPTIONS: Final = """
    SELECT c.relname, coalesce(array_to_string(c.reloptions, ', '), ''), coalesce(pg_get_partkeydef(c.oid), '')
      FROM pg_class AS c
     WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ANY(%s)
"""
_GRANTS: Final = """
    SELECT a.privilege_type, c.relname, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(r.rolname) END
      FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a LEFT JOIN pg_roles AS r ON r.oid = a.grantee
     WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ANY(%s) AND a.grantee <> c.relowner
"""
_NAMES: Final = [table.name for table in FOLDED]


class Shadow:
    """The shadow tables of one rebuild. One task uses it; `Shadow.open` creates it.

    Methods raise one of `WRITE_ERRORS` if Postgres is unavailable.
    """

    def __init__(self, connection: AsyncConnection[TupleRow]) -> None:
        self._connection = connection
        self._partitions = Partitions(f"{SCHEMA}.events")
        self._line = copytext.EventLines()

    @classmethod
    async def open(cls, dsn: str) -> "Shadow":
        """Create empty shadow tables. Waits while another process rebuilds.

        Raises:
            CANNOT_EXCHANGE: The user may not create a schema.
        """
        connection = await psycopg.AsyncConnection[TupleRow].connect(
            dsn, autocommit=True, connect_timeout=5, prepare_threshold=None
        )
        try:
            await run(connection, *SESSION)
            await connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
            await run(connection, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}")
            for name, options, partitioned in await query(connection, _OPTIONS, _NAMES):
                how = f" WITH ({options})" if options else ""
                parted = f" PARTITION BY {partitioned}" if partitioned else ""
                await run(
                    connection,
                    f"CREATE TABLE {SCHEMA}.{name} (LIKE {name} INCLUDING DEFAULTS INCLUDING STORAGE"
                    f" INCLUDING COMPRESSION){parted}{how}",
                )
        except BaseException:
            await connection.close()
            raise
        return cls(connection)

    async def discard(self) -> None:
        """Drop the shadow tables, because the rebuild goes another way."""
        await run(self._connection, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")

    async def close(self) -> None:
        """End the session, and with it the lock."""
        await self._connection.close()

    async def add_facts(self, events: Sequence[StoredEvent]) -> None:
        """Write facts, except those that Postgres cannot store."""
        async with self._connection.cursor() as cursor:
            await self._partitions.ensure(cursor, events[0].seq, events[-1].seq)
            await _copy(cursor, "events", copytext.EVENT_COLUMNS, self._lines(events))

    def _lines(self, events: Sequence[StoredEvent]) -> Iterator[bytes]:
        for event in events:
            if has_row(event):
                yield self._line(event)
            else:
                self._line.pass_over(event.stored_at_ns)

    async def index_facts(self) -> None:
        await index(self._connection, ["events"])

    async def leave_out(self, after: int, skipped: Sequence[int]) -> None:
        """Delete facts that the fold did not apply: those after position `after`, and those that it skipped."""
        await self._connection.execute(
            f"DELETE FROM {SCHEMA}.events WHERE seq > %s OR seq = ANY(%s)".encode(),  # noqa: S608  constant
            (after, list(skipped)),
        )

    async def exchange(self, after: int | None, position: int, event_id: str) -> None:
        """Replace the tables in one transaction, if they may be replaced (`take_tables`).

        `position` and `event_id` are those of the last fact in the shadow tables.

        Raises:
            TABLES_IN_USE: Queries read the tables for longer than `LOCK_SECONDS`. A later call may succeed.
            Moved: The tables have another position than `after`.
            CANNOT_EXCHANGE: Another object depends on a table.
        """
        connection = self._connection
        async with connection.transaction(), connection.cursor() as cursor:
            await run(connection, f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
            await take_tables(cursor, after)
            (schema,) = (await query(connection, "SELECT current_schema()"))[0]
            for privilege, table, role in await query(connection, _GRANTS, _NAMES):
                await run(connection, f"GRANT {privilege} ON {SCHEMA}.{table} TO {role}")
            found = await query(connection, PARTITIONS.format(table=f"{SCHEMA}.events"))
            partitions = [name for name, _ in found]
            for name in _NAMES:
                await run(connection, f"DROP TABLE {schema}.{name}")
            for name in (*_NAMES, *partitions):
                await run(connection, f"ALTER TABLE {SCHEMA}.{name} SET SCHEMA {schema}")
            await run(connection, f"DROP SCHEMA {SCHEMA}")
            await set_position(cursor, FACTS, position, event_id)
