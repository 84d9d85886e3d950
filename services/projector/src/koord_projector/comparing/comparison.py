"""Compare the tables that people read with the log, while everything runs.

    one snapshot of Postgres     position P, and all rows as they are there
    events                       rows with the facts of the log: each line, by digests of 1,000 positions
    folded tables                rows with those that a fold of the log up to P gives, in a process of its own
    observations, explanations   messages that the streams still have with their rows

No second table is written, and memory does not grow with the log, except by what the fold keeps in memory anyway.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple, cast

import psycopg
from koordcore.bus.folds.skips import recorded_skips
from koordcore.bus.read.report_gate import ReportGate
from koordcore.bus.refusals import Refusals
from koordcore.events.envelope import StoredEvent
from koordcore.ports.eventlog import HistoryGone, ObservationLog
from koordcore.requests.comparing import ComparedTable, Comparison
from koordcore.stories.usage_archive import report_time

from koord_projector.context import FOLD, ProjectorContext
from koord_projector.fold.archives import LONGEST_TOKEN, ExplanationRow, best_effort_usage, explanation_row
from koord_projector.fold.projection import has_row, id_in_tables
from koord_projector.projecting.feed import LOG_ERRORS
from koord_projector.projecting.fold_process import FoldEnded, fold_process
from koord_projector.store.compared_tables import Seen, seen, stored_facts
from koord_projector.store.copytext import canonical_event_line
from koord_projector.store.database import WRITE_ERRORS, first_line
from koord_projector.store.digests import (
    BLOCK,
    EVENTS,
    TABLES,
    BlockDigests,
    Digest,
    as_copied,
    difference,
    line_hash,
    rows_in,
)

_BATCH: Final = 2_000
_MESSAGES: Final = 500
_SILENT_SECONDS: Final = 10.0
_NOT_FOLDED: Final = "all: the log has dropped its first facts, and the projector reads no archive"
_ROWS_OF_REPORTS: Final = """
    SELECT o.token, o.reported_at, o.seq, o.event_id, o.cpu_used, o.memory_used, o.be_cpu_used, o.be_memory_used,
           o.system_cpu_used, o.interval_seconds, o.body
      FROM unnest(%s::text[], %s::text[]) AS w(token, reported_at)
      JOIN observations AS o ON o.token = w.token AND o.reported_at = w.reported_at
"""
_ROWS_OF_EXPLANATIONS: Final = f"""
    SELECT {", ".join(f"e.{name}" for name in ExplanationRow.__struct_fields__)}
      FROM unnest(%s::text[], %s::text[], %s::text[]) AS w(uid, occurred_at, event_id)
      JOIN explanations AS e ON e.uid = w.uid AND e.occurred_at = w.occurred_at AND e.event_id = w.event_id
"""  # noqa: S608  constants


class Streams(NamedTuple):
    """The streams whose messages are archived."""

    observations: ObservationLog
    explanations: ObservationLog


async def compare(context: ProjectorContext, streams: Streams, folded: Callable[[int, int], None]) -> Comparison:
    """Compare all tables, and return the result; `trouble` names why it could not be made. `folded`: called with the
    position of the tables, and the position up to which the log was read.
    """
    try:
        async with seen(context.dsn) as tables:
            if not tables.is_current:
                return Comparison(is_done=True, position=tables.position, trouble="the tables are made again")
            folded(tables.position, 0)
            compared = [
                *await _facts(context, tables, lambda at: folded(tables.position, at)),
                await _reports(context, tables, streams.observations),
                await _explanations(tables, streams.explanations),
            ]
            return Comparison(is_done=True, position=tables.position, folded=tables.position, tables=compared)
    except (FoldEnded, HistoryGone, *LOG_ERRORS, *WRITE_ERRORS, psycopg.Error) as error:
        return Comparison(is_done=True, position=0, trouble=first_line(error))


async def _facts(context: ProjectorContext, tables: Seen, folded: Callable[[int], None]) -> list[ComparedTable]:
    head = await context.log.head()
    if tables.position > head.last_seq:
        told = f"the log ends at {head.last_seq}, the tables hold facts up to {tables.position}"
        return [ComparedTable(table=name, rows=0, difference=told) for name in ("events", *TABLES)]
    whole = await _has_first(context, tables.position)
    begin = 0 if whole else head.first_seq - 1
    first = max(tables.first, begin + 1)
    skips = await _absent(tables, await recorded_skips(context.log, FOLD, halted_at=begin + 1))
    expected, last_id, reached_ns = BlockDigests(EVENTS.position), "", 0
    if not whole:
        reached_ns = await _reached_before(tables, first)
    async with fold_process(context.dsn, skips, tables.snapshot, tables.first - 1) as fold:
        if begin < tables.position:
            async for batch in context.log.history(begin, tables.position, batch=_BATCH):
                if whole:
                    await fold.send(batch)
                for event in batch:
                    reached_ns = max(reached_ns, event.stored_at_ns)
                    if event.seq >= first and event.seq not in skips and has_row(event):
                        line = as_copied(canonical_event_line(event, reached_ns))
                        expected.add_hash(event.seq // BLOCK, line_hash(line))
                last_id = id_in_tables(batch[-1])
                folded(batch[-1].seq)
                await asyncio.sleep(0)
        result = await fold.finish() if whole else None
    found = await stored_facts(tables.connection, first)
    told = difference(found, expected.blocks())
    if not told and last_id != tables.event_id:
        told = f"at position {tables.position}: the id of the last fact must be {last_id}, got {tables.event_id}"
    dropped = f"facts up to {first - 1}, which are dropped" if first > 1 else ""
    compared = [ComparedTable(table="events", rows=rows_in(found), difference=told, left_out=dropped)]
    for name in TABLES:
        if result is None:
            compared.append(ComparedTable(table=name, rows=0, left_out=_NOT_FOLDED))
        elif result.refused:
            compared.append(ComparedTable(table=name, rows=0, difference=f"the log cannot be folded: {result.refused}"))
        else:
            compared.append(_folded(name, result.found[name], result.expected[name], tables.first - 1))
    return compared


def _folded(name: str, found: dict[int, Digest], expected: dict[int, Digest], end: int) -> ComparedTable:
    left_out = f"rows that need no fact behind {end}, which are dropped" if end and TABLES[name].kept else ""
    return ComparedTable(table=name, rows=rows_in(found), difference=difference(found, expected), left_out=left_out)


async def _has_first(context: ProjectorContext, position: int) -> bool:
    """Whether the log, or its archive, still has the first fact."""
    if position == 0:
        return True
    try:
        async for _ in context.log.history(0, 1):
            return True
    except HistoryGone:
        return False
    return True


async def _absent(tables: Seen, skips: set[int]) -> set[int]:
    """Of the facts that an operator ordered to skip, those without a row: a later version may have read the others."""
    rows = await _all(tables, "SELECT seq FROM events WHERE seq = ANY(%s)", (sorted(skips),))
    return skips - {int(row[0]) for row in rows}


async def _reached_before(tables: Seen, first: int) -> int:
    statement = "SELECT reached_ns FROM events WHERE seq < %s ORDER BY seq DESC LIMIT 1"
    rows = await _all(tables, statement, (first,))
    return int(rows[0][0]) if rows else 0


async def _reports(context: ProjectorContext, tables: Seen, source: ObservationLog) -> ComparedTable:
    gate, nodes = ReportGate(context.clock, Refusals("verify")), context.metrics.passed_over.of_node

    async def differences(batch: Sequence[StoredEvent]) -> tuple[int, str]:
        wanted: dict[tuple[str, str], tuple[StoredEvent, tuple[Any, ...]]] = {}
        for stored in batch:
            report = gate.read(stored)
            at = None if report is None else report_time(report)
            if report is None or at is None or len(stored.ref.id) > LONGEST_TOKEN:
                continue
            best_effort, usage, system = best_effort_usage(report), report.node_usage, report.system_usage
            figures = (
                usage.cpu_milli if usage else 0,
                usage.memory_bytes if usage else 0,
                best_effort.cpu_milli,
                best_effort.memory_bytes,
                system.cpu_milli if system else 0,
                report.report_interval_seconds,
            )
            wanted.setdefault((stored.ref.id, at), (stored, figures))
        rows = await _all(tables, _ROWS_OF_REPORTS, ([token for token, _ in wanted], [at for _, at in wanted]))
        found = {(str(row[0]), str(row[1])): row for row in rows}
        for key, (stored, figures) in wanted.items():
            row = found.get(key)
            if row is None:
                # Its node sends more than it may. Which reports were passed over depends on those before.
                if stored.ref.id in nodes or stored.ref.id in gate.refusals.of_node:
                    continue
                return len(found), f"the report {stored.seq} of node {key[0]}, {key[1]}, has no row"
            if str(row[3]) == stored.event_id and (tuple(row[4:10]), zlib.decompress(row[10])) != (
                figures,
                stored.body,
            ):
                return len(found), f"the report {stored.seq} of node {key[0]}, {key[1]}, has another content"
            if str(row[3]) != stored.event_id and int(row[2]) >= stored.seq:
                return len(found), f"the report {stored.seq} of node {key[0]}, {key[1]}, has another id"
        return len(found), ""

    return await _archived(tables, "observations", "obs", source, differences)


async def _explanations(tables: Seen, source: ObservationLog) -> ComparedTable:
    async def differences(batch: Sequence[StoredEvent]) -> tuple[int, str]:
        wanted = {(row.uid, row.occurred_at, row.event_id): row for row in map(explanation_row, batch) if row}
        keys = list(wanted)
        columns = [[key[number] for key in keys] for number in range(3)]
        rows = await _all(tables, _ROWS_OF_EXPLANATIONS, columns)
        found = {(str(row[0]), str(row[1]), str(row[2])): row for row in rows}
        for key, row in wanted.items():
            if key not in found:
                return len(found), f"the explanation {row.seq} of {key[0]} has no row"
            # The sequence is left out: a stream that was made again counts anew.
            if tuple(found[key])[4:] != tuple(getattr(row, name) for name in ExplanationRow.__struct_fields__)[4:]:
                return len(found), f"the explanation {row.seq} of {key[0]} has another content"
        return len(found), ""

    return await _archived(tables, "explanations", "explanations", source, differences)


async def _archived(
    tables: Seen,
    table: str,
    stream: str,
    source: ObservationLog,
    differences: Callable[[Sequence[StoredEvent]], Any],
) -> ComparedTable:
    """Compare what a stream still has, up to the position that is archived, with its rows."""
    rows = await _all(tables, "SELECT position FROM projection WHERE stream = %s", (stream,))
    upto = int(rows[0][0]) if rows else 0
    total = int((await _all(tables, f"SELECT count(*) FROM {table}"))[0][0])  # noqa: S608  a constant
    compared, told, head = 0, "", await source.head()
    last = min(upto, head.last_seq)
    if head.first_seq <= last:
        follow = source.follow(head.first_seq - 1, batch=_MESSAGES)
        async with aclosing(cast("AsyncGenerator[list[StoredEvent]]", follow)) as batches:
            while not told:
                try:
                    async with asyncio.timeout(_SILENT_SECONDS):
                        batch = await anext(batches)
                except TimeoutError:  # the last messages have left the stream meanwhile
                    break
                count, told = await differences([each for each in batch if each.seq <= last])
                compared += count
                if batch[-1].seq >= last:
                    break
    left = total - compared
    left_out = f"{left:,} rows whose messages the stream does not have any more" if left > 0 and not told else ""
    return ComparedTable(table=table, rows=compared, difference=told, left_out=left_out)


async def _all(tables: Seen, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    async with tables.connection.cursor() as cursor:
        await cursor.execute(statement.encode(), values)
        return await cursor.fetchall()
