"""Connections to Postgres, and the migration of its tables at start.

Reads go through SQLAlchemy (`Database.engine`), each in one repeatable-read transaction; the writer (`writer`) uses a
psycopg connection of its own, because COPY, temporary tables and session settings have no place in a pool.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import psycopg
import sqlalchemy.exc
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from koordcore.retry import retry
from koordcore.service.telemetry.logging import Logger
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

MIGRATIONS: Final = Path(__file__).parent / "migrations"
MIGRATION_LOCK: Final = 0x6B6F6F7264  # "koord": one advisory lock for all projectors of one database
READ_ERRORS: Final = (sqlalchemy.exc.OperationalError, sqlalchemy.exc.InterfaceError, sqlalchemy.exc.TimeoutError)
"""Errors of reads while Postgres is unavailable or ended the session. A later attempt may succeed."""
WRITE_ERRORS: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,  # a standby answers while another instance is promoted
    OSError,
)
"""Errors of the writer's connection while Postgres is unavailable. A later attempt may succeed."""


REFUSED: Final = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)
"""Errors because of a value, for example one that is too long for an index. The same rows are refused again.

Handle them before `WRITE_ERRORS`, because the last one is also an `OperationalError`.
"""
LOCK_SECONDS: Final = 2
"""Longest wait for queries that read a table that is to be dropped. Later queries wait behind the drop meanwhile."""


class Database:
    """Connections to Postgres for the read API, and the migration of the tables. Methods raise `READ_ERRORS` without
    Postgres.

    Args:
        dsn: `postgresql://user:password@host:port/database`.
        pool_size: Number of connections to keep open; under load there are up to twice as many.
        statement_seconds: Time after which Postgres cancels a statement.
    """

    def __init__(self, dsn: str, *, pool_size: int = 5, statement_seconds: float = 20.0) -> None:
        self.dsn = dsn
        # Whether `migrate` has succeeded, so that a table that is missing was removed by somebody.
        self.is_migrated = False
        milliseconds = int(statement_seconds * 1000)
        self.engine: AsyncEngine = create_async_engine(
            _sqlalchemy_url(dsn),
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_timeout=5,
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": 5,
                "options": f"-c statement_timeout={milliseconds} -c jit=off",
                # A database with the encoding SQL_ASCII would otherwise return bytes instead of text.
                "client_encoding": "utf8",
            },
        )

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[AsyncConnection]:
        """Open a read-only transaction that sees one consistent state of all tables."""
        async with self.engine.connect() as connection:
            await connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            yield connection

    async def migrate(self) -> None:
        """Migrate the tables to the version of this code. Several projectors that start at once wait for each other."""
        async with self.engine.begin() as connection:
            # With a limit, a migration of many facts would be cancelled and begin again, without end.
            await connection.execute(text("SET LOCAL statement_timeout = 0"))
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
            await connection.run_sync(upgrade_to_head)
        self.is_migrated = True

    async def migrate_patiently(self, log: Logger) -> None:
        """While Postgres is unavailable, log it and try again."""

        def note(error: Exception, delay: float) -> None:
            log.warning("postgres_away", error=str(error).splitlines()[0], retry_seconds=round(delay, 1))

        await retry(self.migrate, READ_ERRORS, on_retry=note)

    async def close(self) -> None:
        await self.engine.dispose()


def upgrade_to_head(connection: Connection) -> None:
    """Run all migrations that the database lacks, in the transaction of this connection.

    No-op if a later release has migrated it. From 0012 on, a migration only adds, so the release before can go on.
    """
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    present = MigrationContext.configure(connection).get_current_revision()
    known = {each.revision for each in ScriptDirectory.from_config(config).walk_revisions()}
    if present is None or present in known:
        command.upgrade(config, "head")


def _sqlalchemy_url(dsn: str) -> str:
    for scheme in ("postgresql://", "postgres://"):
        if dsn.startswith(scheme):
            return "postgresql+psycopg://" + dsn.removeprefix(scheme)
    return dsn


def first_line(error: BaseException) -> str:
    """Database drivers add details in further lines."""
    return (str(error).splitlines() or [type(error).__name__])[0]
