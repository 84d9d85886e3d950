"""Delete old rows of the archives (reports, explanations, rounds), and drop old facts that the archive of the log has.

Rows that follow from facts are as old as the log. Facts are dropped as whole partitions:

    1. droppable       partitions whose facts are all old, archived, and folded
    2. keep_states     the state of each aggregate at their end becomes a version, on which later moments are based
    3. drop            the partitions, and rows about what ended before

Moments before the end of the dropped partitions cannot be asked for any more (`read.moments`). `koord replay --to`
reads them from the archive. A rebuild makes all rows again from the archive, and the next round drops them again.

Source:
    event-bus spec, 7
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import sqlalchemy.exc
from koordcore.bus.archive.files import InvalidArchive, read_list
from koordcore.place import Place, PlaceTrouble
from koordcore.ports.clock import Clock
from koordcore.service.clock import host_moment
from koordcore.service.telemetry.logging import Logger
from koordcore.state.registry import STATE_TYPES
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339, unix_nanos
from sqlalchemy import Executable, Table, delete, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.context import Progress, ProjectorMetrics
from koord_projector.read.moments import Moment, living_then, states_at
from koord_projector.store.database import LOCK_SECONDS, READ_ERRORS, Database
from koord_projector.store.positions import PARTITIONS, Partition, read_partition
from koord_projector.store.tables import explanations, observations

LOOK_SECONDS: Final = 600.0
"""Time between two searches for old rows or partitions."""
ROWS_AT_ONCE: Final = 5_000
"""Rows that one transaction deletes, so that no other statement waits long for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    database: Database
    clock: Clock  # Clock of the run
    days: float  # Age in days from which rows are deleted
    metrics: ProjectorMetrics  # The projector's metrics
    logger: Logger  # The projector's logger


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
    """Delete the old rows of one archive, and return their number.

    Raises:
        READ_ERRORS: Postgres is unavailable. What was deleted stays deleted.
    """
    before = retention.clock.now() - timedelta(days=retention.days)
    if table is observations:  # whose writers are many, each with a clock of its own
        time, limit = table.c.stored_at_ns, unix_nanos(host_moment(retention.clock, before)) - 999
    else:
        time, limit = table.c.occurred_at, rfc3339(before)
    key = tuple_(*table.primary_key.columns)
    oldest = select(*table.primary_key.columns).where(time < limit).order_by(time).limit(ROWS_AT_ONCE)
    old = delete(table).where(key.in_(oldest))
    return await delete_in_parts(retention.database, retention.metrics, table.name, old, {}, ROWS_AT_ONCE)


async def delete_in_parts(
    database: Database, metrics: ProjectorMetrics, table: str, statement: Executable, values: dict[str, int], rows: int
) -> int:
    """Repeat a statement that deletes at most `rows` rows, each time in a transaction, until it has deleted all.

    Return their number.

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


STATES_AT_ONCE: Final = 1_000

_POSITION: Final = text("SELECT position FROM projection WHERE stream = 'ev'")
_LOCK_POSITION: Final = text("SELECT position FROM projection WHERE stream = 'ev' FOR UPDATE")
_TABLES: Final = text(
    "SELECT name, CAST(CAST(to_regclass(name) AS oid) AS bigint) AS id FROM unnest(CAST(:names AS text[])) AS n(name)"
)
_LIVING: Final = text(
    f"SELECT id FROM ({living_then('kind = :kind AND id > :after')}) AS q ORDER BY id LIMIT :limit"  # noqa: S608  constants
)
_KEEP: Final = text(
    """
    INSERT INTO aggregate_versions (kind, id, seq, state)
    SELECT :kind, v.* FROM unnest(CAST(:ids AS text[]), CAST(:seqs AS bigint[]), CAST(:states AS text[])) AS v
        ON CONFLICT DO NOTHING
    """
)
_ENDED: Final = {
    "aggregate_lives": "SELECT ctid FROM aggregate_lives WHERE to_seq <= :end LIMIT :limit",
    "aggregate_versions": """
        SELECT v.ctid FROM aggregate_versions AS v
         WHERE v.seq <= :end AND EXISTS (
               SELECT 1 FROM aggregate_versions AS w
                WHERE w.kind = v.kind AND w.id = v.id AND w.seq > v.seq AND w.seq <= :end
         ) LIMIT :limit
    """,
    "pods": "SELECT ctid FROM pods WHERE to_seq <= :end LIMIT :limit",
    "node_versions": """
        SELECT v.ctid FROM node_versions AS v
         WHERE v.seq <= :end AND EXISTS (
               SELECT 1 FROM node_versions AS w WHERE w.token = v.token AND w.seq > v.seq AND w.seq <= :end
         ) LIMIT :limit
    """,
    "cluster_series": "SELECT ctid FROM cluster_series WHERE seq <= :end LIMIT :limit",
    "modifications": "SELECT ctid FROM modifications WHERE position <= :end LIMIT :limit",
}
"""Table -> statement that selects rows that no moment from `:end` on needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRetention:
    database: Database
    archive: Place  # Place of the archive of the log
    clock: Clock  # Clock of the run
    days: float  # Age in days from which facts are dropped
    progress: Progress  # Progress of the fold. While the tables are made again, nothing is dropped.
    metrics: ProjectorMetrics  # The projector's metrics
    logger: Logger  # The projector's logger


async def drop_old_facts(retention: FactRetention) -> None:
    """Drop old facts now and every ten minutes, until cancelled. After an error, try again later."""
    while True:
        try:
            if not retention.progress.trouble:
                await drop_round(retention)
        except (*READ_ERRORS, sqlalchemy.exc.DBAPIError, PlaceTrouble, InvalidArchive) as error:
            retention.logger.warning("fact_retention_waits", error=str(error).splitlines()[0])
        await retention.clock.sleep(LOOK_SECONDS)


async def drop_round(retention: FactRetention) -> int:
    """Return the position of the newest dropped fact; 0 if none was dropped.

    Raises:
        READ_ERRORS: Postgres is unavailable, or queries read facts for longer than `LOCK_SECONDS`. No partition is
            dropped, as if the tables are made again meanwhile. A later round tries again.
        PlaceTrouble, InvalidArchive: The archive cannot be read.
    """
    archived = await read_list(retention.archive)
    before = retention.clock.now() - timedelta(days=retention.days)
    async with retention.database.reading() as connection:
        partitions = await _droppable(
            connection, 0 if archived is None else archived.last, unix_nanos(host_moment(retention.clock, before))
        )
        tables = await _tables_of(connection, partitions)
    if not partitions:
        return 0
    end = partitions[-1].end - 1
    await _keep_states(retention.database, end)
    async with retention.database.engine.begin() as connection:
        await connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"))
        # Whoever makes the tables again locks the position, too. New tables have no versions from `_keep_states`.
        await connection.execute(_LOCK_POSITION)
        if await _tables_of(connection, partitions) != tables:
            retention.logger.info("facts_not_dropped", upto=end, reason="the tables were made again meanwhile")
            return 0
        for partition in partitions:
            await connection.execute(text(f"DROP TABLE {partition.name}"))
    retention.logger.info("facts_dropped", upto=end, partitions=len(partitions), older_than=rfc3339(before))
    for table, ended in _ENDED.items():
        statement = text(f"DELETE FROM {table} WHERE ctid = ANY(ARRAY({ended}))")  # noqa: S608  constants
        values = {"end": end, "limit": ROWS_AT_ONCE}
        await delete_in_parts(retention.database, retention.metrics, table, statement, values, ROWS_AT_ONCE)
    return end


async def _droppable(connection: AsyncConnection, archived: int, before_ns: int) -> list[Partition]:
    """The oldest partitions whose facts were all stored before a time, and are in the archive and folded."""
    position = (await connection.execute(_POSITION)).scalar() or 0
    rows = await connection.execute(text(PARTITIONS.format(table="events")))
    found: list[Partition] = []
    for partition in sorted((read_partition(*row) for row in rows), key=lambda each: each.end):
        if partition.end - 1 > min(archived, position):
            break
        newest = text(f"SELECT max(reached_ns) FROM {partition.name}")  # noqa: S608  a name from the catalogue
        if ((await connection.execute(newest)).scalar() or 0) >= before_ns:
            break
        found.append(partition)
    return found


async def _tables_of(connection: AsyncConnection, partitions: Sequence[Partition]) -> dict[str, int | None]:
    """Name of a partition -> id of its table, None if there is none. A table made again has another id."""
    rows = await connection.execute(_TABLES, {"names": [partition.name for partition in partitions]})
    return {row.name: row.id for row in rows}


async def _keep_states(database: Database, position: int) -> None:
    """Store the state of each aggregate at a position as a version. Repeated calls change nothing."""
    moment = Moment(position=position, occurred_at="", stored_at_ns=0, live=False)
    for kind in STATE_TYPES:
        after = ""
        while True:
            asked = {"kind": kind, "after": after, "position": position, "limit": STATES_AT_ONCE}
            async with database.engine.begin() as connection:
                ids = [row.id for row in await connection.execute(_LIVING, asked)]
                states = await states_at(connection, moment, kind, ids)
                kept = {
                    "kind": kind,
                    "ids": list(states),
                    "seqs": [state.seq for state in states.values()],
                    "states": [codec.encode_canonical(state).decode() for state in states.values()],
                }
                await connection.execute(_KEEP, kept)
            if len(ids) < STATES_AT_ONCE:
                break
            after = ids[-1]
