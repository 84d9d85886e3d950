"""Marks are found by an index, however many other facts of their kinds there are."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from koord_projector.context import Progress
from koord_projector.read.endpoint import Reading
from koord_projector.read.marks import STATEMENTS, MarksAnswer, MarksQuery, read_marks
from koord_projector.read.moments import END_OF_TIME, PRESENT
from koord_projector.store.database import Database
from koordcore.service.clock import SystemClock
from koordcore.service.health import Condition
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

pytestmark = pytest.mark.postgres

FACTS = 30_000
EACH = 500  # one of so many facts is marked
TYPES = (  # kind, type that is marked, type that is not
    ("config", "ConfigRejected", "ConfigWarned"),
    ("eviction", "PodEvicted", "PodEvictionDelayed"),
    ("descheduler", "DeschedulerConfigured", "DryRunAnswered"),
    ("nodestate", "InterferenceDetected", "KnobsChanged"),
    ("nodestate", "PodsEvictedByAgent", "BeCpuSuppressed"),
)
BODY = '{"data":{"a":"b"},"reasons":{"a":"a: must be 1, but was \\u00002"}}'


def rows() -> Iterator[tuple[int | str, ...]]:
    for seq in range(1, FACTS + 1):
        kind, marked, other = TYPES[seq // EACH % len(TYPES)]
        type_ = other if seq % EACH else marked
        yield seq, kind, "d=c", type_, 1, "", 0, "", "", "", "", 0, 0, "", BODY, seq


async def fill(dsn: str) -> Database:
    """A database with facts of the kinds that have marks, of which few are marked."""
    database = Database(dsn)
    await database.migrate()
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE events_p PARTITION OF events FOR VALUES FROM (MINVALUE) TO (1000000)")
        with connection.cursor().copy("COPY events FROM STDIN") as copy:
            for row in rows():
                copy.write_row(row)
        connection.execute("ANALYZE events")
    return database


def steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from steps(each)


async def read(connection: AsyncConnection, **query: int) -> MarksAnswer:
    return await read_marks(
        Reading(
            connection=connection,
            moment=PRESENT,
            clock=SystemClock(),
            now=datetime.now(UTC),
            progress=Progress(ready=Condition("")),
            cluster="c",
        ),
        MarksQuery(**query),
    )


async def test_marks_are_read_without_the_facts_beside_them_and_say_from_where_on_none_is_missing(
    postgres_dsn: str,
) -> None:
    database = await fill(postgres_dsn)
    async with database.reading() as connection:
        for _, statement in STATEMENTS:
            asked = {"after": 0, "before": END_OF_TIME, "limit": 300}
            [plan] = (await connection.execute(text(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"), asked)).scalar_one()
            taken = list(steps(plan["Plan"]))
            assert any("Index Name" in step for step in taken), plan
            assert all(step.get("Rows Removed by Filter", 0) == 0 for step in taken), plan
            assert not any(step["Node Type"] == "Seq Scan" for step in taken), plan
        marked = list(range(EACH, FACTS + 1, EACH))
        whole = await read(connection)
        part = await read(connection, after=2 * EACH, before=FACTS - EACH, limit=2)
    await database.close()
    assert ([mark.seq for mark in whole.marks], whole.complete_after) == (marked, 0)
    refused = next(mark for mark in whole.marks if mark.type == "ConfigRejected")
    assert refused.summary == "configuration d/c was refused: a: must be 1, but was \ufffd2"
    newest = [seq for seq in marked if 2 * EACH < seq < FACTS - EACH][-2 * len(TYPES) :]
    assert [mark.seq for mark in part.marks] == newest
    assert part.complete_after == newest[0] - EACH, "the newest mark that is left out"
