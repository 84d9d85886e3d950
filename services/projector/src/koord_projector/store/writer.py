"""Write rows and position in one transaction, so that each event is folded exactly once.

Each transaction first locks its stream's row of `projection` and checks the position and the version of the rows. So
it detects a repeated write after a lost acknowledgement, a database that was restored to an older state, and a second
projector. The caller then loads the projection again.

Each session that folds facts also holds an advisory lock (`hold_tables`), which does not exclude other sessions. If
another version has replaced the tables of a projector, it stands by as long as another session holds the lock.

Source:
    event-bus spec, 3.2 (checkpoint with the state) and 5
"""

import zlib
from collections.abc import Sequence
from typing import Final, LiteralString

import psycopg
from koordcore.events.envelope import StoredEvent
from koordcore.events.observation import NodeUsageReported
from koordcore.service.failpoints import failpoint
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow

from koord_projector.fold.archives import ExplanationRow, best_effort_usage
from koord_projector.fold.projection import Changes
from koord_projector.store import copytext
from koord_projector.store.database import LOCK_SECONDS
from koord_projector.store.positions import (
    EXPLANATIONS,
    FACTS,
    FOLD_LOCK,
    OBSERVATIONS,
    UPSERT_POSITION,
    Partitions,
    projection_schema,
    set_position,
    take_position,
    take_tables,
)
from koord_projector.store.tables import FOLDED

_POD_KEYS: Final = ("uid", "from_seq")
_STAGES: Final = (
    "CREATE TEMP TABLE stage_aggregates (LIKE aggregates) ON COMMIT DELETE ROWS",
    "CREATE TEMP TABLE stage_pods (LIKE pods) ON COMMIT DELETE ROWS",
    "CREATE TEMP TABLE stage_series (LIKE cluster_series) ON COMMIT DELETE ROWS",
    "CREATE TEMP TABLE stage_observations (LIKE observations) ON COMMIT DELETE ROWS",
    "CREATE TEMP TABLE stage_explanations (LIKE explanations) ON COMMIT DELETE ROWS",
    "CREATE TEMP TABLE stage_names (token text) ON COMMIT DELETE ROWS",
)
_SESSION: Final = (
    # A crash of Postgres may take back the last moments of commits, rows and position together: they are folded again.
    "SET synchronous_commit = off",
    # The staged rows have no statistics; without this the planner may read a whole table to change a hundred rows.
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET jit = off",
    "SET statement_timeout = '60s'",
)


def _assignments(columns: Sequence[str], keys: Sequence[str], source: str) -> str:
    return ", ".join(
        f"{copytext.quoted(name)} = {source}.{copytext.quoted(name)}" for name in columns if name not in keys
    )


_UPDATE_AGGREGATES: Final = (
    "UPDATE aggregates AS a SET seq = s.seq, state = s.state, from_seq = s.from_seq, events = s.events"
    " FROM stage_aggregates AS s"
    " WHERE a.kind = s.kind AND a.id = s.id"
)
_DELETE_AGGREGATES: Final = (
    "DELETE FROM aggregates AS a USING unnest(%s::text[], %s::text[]) AS g(kind, id)"
    " WHERE a.kind = g.kind AND a.id = g.id"
)
_UPDATE_PODS: Final = (
    f"UPDATE pods AS p SET {_assignments(copytext.POD_COLUMNS, _POD_KEYS, 's')} FROM stage_pods AS s"  # noqa: S608  constants
    " WHERE p.uid = s.uid AND p.from_seq = s.from_seq"
)
_UPSERT_SERIES: Final = (
    f"INSERT INTO cluster_series SELECT * FROM stage_series ON CONFLICT (second) DO UPDATE"  # noqa: S608  constants
    f" SET {_assignments(copytext.SERIES_COLUMNS, ('second',), 'EXCLUDED')}"
)
_OBSERVATION_COLUMNS: Final = (
    "token", "reported_at", "seq", "event_id", "cpu_used", "memory_used", "be_cpu_used", "be_memory_used",
    "system_cpu_used", "interval_seconds", "body", "stored_at_ns", "is_approximate",
)  # fmt: skip
_INSERT_OBSERVATIONS: Final = (
    "INSERT INTO observations SELECT DISTINCT ON (token, reported_at) * FROM stage_observations"
    " ORDER BY token, reported_at, seq ON CONFLICT (token, reported_at)"
    " DO UPDATE SET seq = EXCLUDED.seq, stored_at_ns = EXCLUDED.stored_at_ns, is_approximate = false"
    " WHERE observations.is_approximate AND observations.event_id = EXCLUDED.event_id"
)
_EXPLANATION_COLUMNS: Final = ExplanationRow.__struct_fields__


class Writer:
    """A database session that writes rows and positions. One task uses it; `Writer.open` creates it.

    Methods raise one of `WRITE_ERRORS` if Postgres is unavailable. Those that write rows raise `Moved` if the database
    has another position than `after`.
    """

    def __init__(self, connection: AsyncConnection[TupleRow]) -> None:
        self._connection = connection
        self._partitions = Partitions("events")
        self._reported_ns: int | None = None

    @classmethod
    async def open(cls, dsn: str) -> "Writer":
        connection = await psycopg.AsyncConnection[TupleRow].connect(
            dsn, autocommit=True, connect_timeout=5, prepare_threshold=1
        )
        try:
            for statement in (*_SESSION, *_STAGES):
                await connection.execute(statement.encode())
        except BaseException:
            await connection.close()
            raise
        return cls(connection)

    @property
    def connection(self) -> AsyncConnection[TupleRow]:
        return self._connection

    async def close(self) -> None:
        await self._connection.close()

    async def hold_tables(self) -> None:
        """Show until the end of the session that it folds facts. Other sessions may do so, too."""
        await self._connection.execute("SELECT pg_advisory_lock_shared(%s)", (FOLD_LOCK,))

    async def tables_of_others(self) -> bool:
        """Whether another version of the projector has made the tables."""
        async with self._connection.cursor() as cursor:
            await cursor.execute("SELECT schema FROM projection WHERE stream = %s", (FACTS,))
            row = await cursor.fetchone()
            return row is not None and row[0] != projection_schema()

    async def is_folded(self) -> bool:
        """Whether some projector folds facts into the tables now. Call it before `hold_tables`."""
        async with self._connection.cursor() as cursor:
            await cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", (FOLD_LOCK,))
            return await cursor.fetchone() == (False,)

    async def write(self, changes: Changes) -> None:
        """Write all rows of a batch of facts, and the new position, in one transaction.

        After an error, load the projection again. Its position then shows whether the batch was written. It raises
        `Moved` also if another version has made the tables.
        """
        async with self._connection.transaction(), self._connection.cursor() as cursor:
            await take_position(cursor, FACTS, changes.after)
            if changes.events:
                await self._partitions.ensure(cursor, changes.events[0].seq, changes.events[-1].seq)
            lines = map(copytext.event_line, changes.events, changes.reached_ns)
            await copytext.copy(cursor, "events", copytext.EVENT_COLUMNS, lines)
            for table, columns, rows in copytext.added_rows(changes):
                await copytext.copy(cursor, table, columns, rows)
            if changes.changed_aggregates:
                lines = map(copytext.aggregate_line, changes.changed_aggregates)
                await copytext.copy(cursor, "stage_aggregates", copytext.AGGREGATE_COLUMNS, lines)
                await cursor.execute(_UPDATE_AGGREGATES)
            if changes.gone_aggregates:
                kinds = [ref.kind for ref in changes.gone_aggregates]
                ids = [ref.id for ref in changes.gone_aggregates]
                await cursor.execute(_DELETE_AGGREGATES, (kinds, ids))
            added = [copytext.pod_line(pod) for pod in changes.pods if not pod.stored]
            await copytext.copy(cursor, "pods", copytext.POD_COLUMNS, added)
            stored = [copytext.pod_line(pod) for pod in changes.pods if pod.stored]
            if stored:
                await copytext.copy(cursor, "stage_pods", copytext.POD_COLUMNS, stored)
                await cursor.execute(_UPDATE_PODS.encode())
            if changes.nodes:
                tokens = list(dict.fromkeys(change.token for change in changes.nodes))
                await cursor.execute(
                    "INSERT INTO node_names SELECT * FROM unnest(%s::text[]) ON CONFLICT DO NOTHING", (tokens,)
                )
            if changes.series:
                lines = map(copytext.series_line, changes.series)
                await copytext.copy(cursor, "stage_series", copytext.SERIES_COLUMNS, lines)
                await cursor.execute(_UPSERT_SERIES.encode())
            await set_position(cursor, FACTS, changes.position, changes.event_id)
            failpoint("rows_written_before_commit")
        failpoint("rows_committed")
        for pod in changes.pods:
            pod.stored = True

    async def clear(self, after: int | None) -> None:
        """Delete all rows that are folded from facts and set their position to 0. Archives stay.

        Raises:
            Moved: The tables may not be replaced from position `after` (`take_tables`).
            WRITE_ERRORS: Postgres is unavailable, or queries read the tables for longer than `LOCK_SECONDS`.
        """
        async with self._connection.transaction(), self._connection.cursor() as cursor:
            await cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'".encode())
            await take_tables(cursor, after)
            # Partitions may begin at any position, because old ones are dropped.
            await self._partitions.drop_all(cursor)
            await cursor.execute(f"TRUNCATE {', '.join(table.name for table in FOLDED)}".encode())
            await cursor.execute(UPSERT_POSITION, (FACTS, 0, "", projection_schema()))

    async def archive_reports(
        self, after: int, position: int, reports: Sequence[tuple[StoredEvent, NodeUsageReported, str]]
    ) -> None:
        """Write usage reports and the new position of their stream in one transaction. Those that are stored are
        skipped, unless their time of storing is approximate: then they get it.

        `reports`: (message, its report, time of the report) each, in the order of the stream. Their time of storing
        never decreases, also if the clock of the server was set back, so its order is that of the stream.
        """
        async with self._connection.transaction(), self._connection.cursor() as cursor:
            await take_position(cursor, OBSERVATIONS, after)
            reached_ns = self._reported_ns
            if reached_ns is None:
                known = "SELECT max(stored_at_ns) FROM observations WHERE NOT is_approximate"
                reached_ns = await _number(cursor, known)
            lines: list[bytes] = []
            for report in reports:
                reached_ns = max(reached_ns, report[0].stored_at_ns)
                lines.append(_observation_line(*report, reached_ns))
            await copytext.copy(cursor, "stage_observations", _OBSERVATION_COLUMNS, lines)
            await cursor.execute(_INSERT_OBSERVATIONS.encode())
            await cursor.execute(UPSERT_POSITION, (OBSERVATIONS, position, "", ""))
        self._reported_ns = reached_ns

    async def archive_explanations(self, after: int, position: int, rows: Sequence[ExplanationRow]) -> None:
        """As `archive_reports`."""
        async with self._connection.transaction(), self._connection.cursor() as cursor:
            await take_position(cursor, EXPLANATIONS, after)
            lines = [copytext.line_of(getattr(row, name) for name in _EXPLANATION_COLUMNS) for row in rows]
            await copytext.copy(cursor, "stage_explanations", _EXPLANATION_COLUMNS, lines)
            await cursor.execute("INSERT INTO explanations SELECT * FROM stage_explanations ON CONFLICT DO NOTHING")
            await cursor.execute(UPSERT_POSITION, (EXPLANATIONS, position, "", ""))

    async def position_of(self, stream: str) -> int:
        """Up to where a stream is folded or archived; 0 if there is none."""
        async with self._connection.cursor() as cursor:
            await cursor.execute("SELECT position FROM projection WHERE stream = %s", (stream,))
            row = await cursor.fetchone()
            return int(row[0]) if row else 0

    async def begin_stream_again(self, stream: str) -> None:
        """Set the position of an archived stream to 0, because the stream was created again on the server."""
        async with self._connection.cursor() as cursor:
            await cursor.execute(UPSERT_POSITION, (stream, 0, "", ""))


async def _number(cursor: AsyncCursor[TupleRow], statement: LiteralString) -> int:
    """Return the integer that a statement selects; 0 if it selects none."""
    await cursor.execute(statement)
    row = await cursor.fetchone()
    return int(row[0] or 0) if row else 0


def _observation_line(stored: StoredEvent, report: NodeUsageReported, reported_at: str, stored_at_ns: int) -> bytes:
    best_effort = best_effort_usage(report)
    return copytext.line_of(
        (
            stored.ref.id,
            reported_at,
            stored.seq,
            stored.event_id,
            report.node_usage.cpu_milli if report.node_usage else 0,
            report.node_usage.memory_bytes if report.node_usage else 0,
            best_effort.cpu_milli,
            best_effort.memory_bytes,
            report.system_usage.cpu_milli if report.system_usage else 0,
            report.report_interval_seconds,
            # Reports are the largest rows of all and hardly ever read again: a third of the bytes for 40 us.
            "\\x" + zlib.compress(stored.body, 1).hex(),
            stored_at_ns,
            False,
        )
    )
