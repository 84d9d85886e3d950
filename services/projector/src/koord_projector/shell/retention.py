"""Delete old rows of the archives: reports of agents, explanations, rounds of the descheduler.

Rows that follow from facts are not deleted. They are as old as the log.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import sqlalchemy.exc
from koordcore.ports.clock import Clock
from koordcore.service.telemetry.logging import Logger
from koordcore.values.timestamps import rfc3339
from sqlalchemy import Executable, Table, delete, select, tuple_

from koord_projector.shell.metrics import ProjectorMetrics
from koord_projector.shell.postgres.database import READ_ERRORS, Database
from koord_projector.shell.postgres.tables import explanations, observations

LOOK_SECONDS: Final = 600.0
"""Time between two searches for old rows or partitions."""
ROWS_AT_ONCE: Final = 5_000
"""Rows that one transaction deletes, so that no other statement waits long for it."""
_TIMES: Final = {observations.name: "reported_at", explanations.name: "occurred_at"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The parts of the loop that deletes old rows.

    Attributes:
        database: The database.
        clock: Clock of the run. Reports have its times.
        days: Age in days from which rows are deleted.
        metrics: The projector's metrics.
        logger: The projector's logger.
    """

    database: Database
    clock: Clock
    days: float
    metrics: ProjectorMetrics
    logger: Logger


async def delete_old_rows(retention: Retention) -> None:
    """Delete old rows now and every ten minutes, until cancelled. While Postgres is unavailable, try again later."""
    while True:
        try:
            for table in (observations, explanations):
                await prune(retention, table)
        except (*READ_ERRORS, sqlalchemy.exc.DBAPIError) as error:
            retention.logger.warning("retention_waits", error=str(error).splitlines()[0])
        await retention.clock.sleep(LOOK_SECONDS)


async def prune(retention: Retention, table: Table) -> int:
    """Delete the old rows of one archive, in transactions of at most `ROWS_AT_ONCE` rows.

    Args:
        retention: Age of old rows, and where they are.
        table: The archive.

    Returns:
        Number of deleted rows.

    Raises:
        READ_ERRORS: Postgres is unavailable. What was deleted stays deleted.
    """
    before = rfc3339(retention.clock.now() - timedelta(days=retention.days))
    key, time = tuple_(*table.primary_key.columns), table.c[_TIMES[table.name]]
    oldest = select(*table.primary_key.columns).where(time < before).order_by(time).limit(ROWS_AT_ONCE)
    old = delete(table).where(key.in_(oldest))
    return await delete_in_parts(retention.database, retention.metrics, table.name, old, {}, ROWS_AT_ONCE)


async def delete_in_parts(
    database: Database, metrics: ProjectorMetrics, table: str, statement: Executable, values: dict[str, int], rows: int
) -> int:
    """Repeat a statement that deletes a limited number of rows, each time in a transaction, until it has deleted all.

    Args:
        database: The database.
        metrics: Counts the deleted rows.
        table: Name of the table.
        statement: The statement.
        values: Values of its parameters.
        rows: Its limit.

    Returns:
        Number of deleted rows.

    Raises:
        READ_ERRORS: Postgres is unavailable. What was deleted stays deleted.
    """
    total = 0
    while True:
        async with database.engine.begin() as connection:
            deleted = (await connection.execute(statement, values)).rowcount
        total += deleted
        metrics.pruned(table, deleted)
        if deleted < rows:
            return total
