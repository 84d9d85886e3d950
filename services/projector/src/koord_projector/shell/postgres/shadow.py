"""Shadow tables: the new tables of a rebuild. They are filled by COPY and exchanged with the old ones at the end.

    shadow = await Shadow.open(dsn)        1. empty tables without indexes in a schema of their own
    await shadow.add_facts(events)         2. COPY of facts, as often as needed; `ShadowRows` fills the other tables
    await shadow.index_facts()             3. keys and indexes of the table `events`
    await shadow.leave_out(...)            4. facts that the fold did not apply
    await shadow.exchange(...)             5. all tables in one transaction

Until then, readers see the earlier rows. If the process ends before, the next rebuild drops the shadow tables.
"""

from collections.abc import Sequence
from typing import Final

import psycopg
from koordcore.events.envelope import StoredEvent
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from koord_projector.domain.projection import why_unstorable
from koord_projector.shell.postgres import copytext
from koord_projector.shell.postgres.database import LOCK_SECONDS
from koord_projector.shell.postgres.partitions import PARTITIONS, Partitions
from koord_projector.shell.postgres.positions import FACTS, set_position, take_tables
from koord_projector.shell.postgres.shadow_rows import SCHEMA, SESSION, copy, index, query, run
from koord_projector.shell.postgres.tables import FOLDED

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
    """The shadow tables of one rebuild. Only one task may use it; `Shadow.open` creates it."""

    def __init__(self, connection: AsyncConnection[TupleRow]) -> None:
        self._connection = connection
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
        """Drop the shadow tables, because the rebuild goes another way.

        Raises:
            WRITE_ERRORS: Postgres is unavailable.
        """
        await run(self._connection, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")

    async def close(self) -> None:
        """End the session, and with it the lock."""
        await self._connection.close()

    async def add_facts(self, events: Sequence[StoredEvent]) -> None:
        """Write facts to the table `events`, except those that Postgres cannot store.

        Raises:
            WRITE_ERRORS: Postgres is unavailable.
        """
        async with self._connection.cursor() as cursor:
            await self._partitions.ensure(cursor, events[0].seq, events[-1].seq)
            lines = (copytext.event_line(event) for event in events if not why_unstorable(event))
            await copy(cursor, "events", copytext.EVENT_COLUMNS, lines)

    async def index_facts(self) -> None:
        """Create the keys and indexes of the table `events`.

        Raises:
            WRITE_ERRORS: Postgres is unavailable.
        """
        await index(self._connection, ["events"])

    async def leave_out(self, after: int, skipped: Sequence[int]) -> None:
        """Delete facts that the fold did not apply.

        Args:
            after: Position of the last fact that it applied or skipped.
            skipped: Positions that it skipped.

        Raises:
            WRITE_ERRORS: Postgres is unavailable.
        """
        await self._connection.execute(
            f"DELETE FROM {SCHEMA}.events WHERE seq > %s OR seq = ANY(%s)".encode(),  # noqa: S608  constant
            (after, list(skipped)),
        )

    async def exchange(self, after: int | None, position: int, event_id: str) -> None:
        """Replace the tables by the shadow tables in one transaction.

        Args:
            after: Position from which the tables may be replaced (`take_tables`).
            position: Position of the rows in the shadow tables.
            event_id: Id of the fact at `position`.

        Raises:
            TABLES_IN_USE: Queries read the tables for longer than `LOCK_SECONDS`. A later call may succeed.
            Moved: The tables have another position than `after`.
            CANNOT_EXCHANGE: Another object depends on a table.
            WRITE_ERRORS: Postgres is unavailable.
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
