"""A row that somebody changed, added or deleted is found, in every table that people read, and says where it is."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from koord_projector.comparing.comparison import Streams, compare
from koord_projector.comparing.runs import Comparisons
from koordcore.bus.archive.archived_log import ArchivedEventLog, archive_facts
from koordcore.events.envelope import StoredEvent
from koordcore.place import open_place
from koordcore.requests.comparing import ComparedTable, CompareRequest, Comparison
from support.projector.busy_month import Month
from support.projector.synthetic_cluster import SyntheticCluster
from support.projector.world import Projector, projector
from support.until import until

pytestmark = pytest.mark.postgres

FACTS = 1_500
CLUSTER = SyntheticCluster(nodes=6, pods=60, minutes=10)

# Table -> statements. Each one changes rows so that they are not what the log gives.
CHANGES: dict[str, list[str]] = {
    "events": [
        "UPDATE events SET body = replace(body, '{', '{ ') WHERE seq = 700",
        "UPDATE events SET actor = 'somebody' WHERE seq = 700",
        "DELETE FROM events WHERE seq = 700",
        "UPDATE events SET seq = 100000 WHERE seq = 1200",
        "UPDATE events SET body = e.body FROM events AS e WHERE events.seq IN (700, 701) AND e.seq = 1401 - events.seq",
        "UPDATE events SET reached_ns = reached_ns + 1 WHERE seq = 9",
    ],
    "aggregates": [
        "UPDATE aggregates SET state = state || ' ' WHERE id = (SELECT min(id) FROM aggregates)",
        "UPDATE aggregates SET events = events + 1 WHERE id = (SELECT max(id) FROM aggregates)",
    ],
    "pods": [
        "UPDATE pods SET node = 'elsewhere' WHERE from_seq = (SELECT max(from_seq) FROM pods)",
        "DELETE FROM pods WHERE from_seq = (SELECT min(from_seq) FROM pods)",
        "UPDATE pods SET to_seq = NULL, span = 0 WHERE to_seq = (SELECT max(to_seq) FROM pods)",
    ],
    "node_versions": [
        "UPDATE node_versions SET cpu_requested = cpu_requested + 1",
        "DELETE FROM node_versions WHERE seq = (SELECT max(seq) FROM node_versions)",
    ],
    "node_names": ["INSERT INTO node_names VALUES ('forged')", "DELETE FROM node_names"],
    "modifications": [
        "INSERT INTO modifications VALUES (7, 0, '', 'evict', '', 'd', 'p', 'u', 'n', '', '', '', '{}')",
        "DELETE FROM modifications",
    ],
    "cluster_series": ["UPDATE cluster_series SET nodes = 99 WHERE seq = (SELECT max(seq) FROM cluster_series)"],
    "aggregate_lives": ["DELETE FROM aggregate_lives WHERE to_seq = (SELECT max(to_seq) FROM aggregate_lives)"],
    "aggregate_versions": [
        "UPDATE aggregate_versions SET state = '{}' WHERE seq = (SELECT max(seq) FROM aggregate_versions)"
    ],
    "observations": [
        "DELETE FROM observations",
        "UPDATE observations SET cpu_used = 1 WHERE seq = 5",
        "UPDATE observations SET body = o.body FROM observations AS o WHERE observations.seq = 5 AND o.seq = 6",
    ],
    "explanations": [
        "DELETE FROM explanations WHERE seq = (SELECT max(seq) FROM explanations)",
        "UPDATE explanations SET body = '{}' WHERE seq = (SELECT min(seq) FROM explanations)",
    ],
}


@pytest.fixture(scope="module")
def facts() -> list[StoredEvent]:
    """Some hours of three nodes, so that every table has rows."""
    written = [each for batch in Month(facts=FACTS, nodes=3).batches() for each in batch]
    return [each.stored(seq) for seq, each in enumerate(written, 1)]


@asynccontextmanager
async def filled(dsn: str, facts: Sequence[StoredEvent]) -> AsyncGenerator[Projector]:
    """A projector that has stopped after it has stored everything."""
    async with projector(dsn, batch_events=170) as it:
        it.write(facts)
        for message in CLUSTER.reports:
            await it.observations.publish(message.ref, message.event, message.origin)
        for message in CLUSTER.explanations:
            await it.explanations.publish(message.ref, message.event, message.origin)
        async with it.running():
            await it.caught_up()
            await until(lambda: it.progress.observations == len(CLUSTER.reports))
            await until(lambda: it.progress.explanations == len(CLUSTER.explanations))
        yield it


async def compared(it: Projector) -> dict[str, ComparedTable]:
    found = await compare(it.context, Streams(it.observations, it.explanations), lambda position, folded: None)
    assert (found.is_done, found.trouble) == (True, "")
    return {each.table: each for each in found.tables}


def differing(tables: dict[str, ComparedTable]) -> set[str]:
    return {name for name, each in tables.items() if each.difference}


@pytest.mark.deep
async def test_each_changed_row_is_found_and_no_other(postgres_dsn: str, facts: list[StoredEvent]) -> None:
    async with filled(postgres_dsn, facts) as it:
        tables = await compared(it)
        assert {name: each.difference for name, each in tables.items() if each.difference} == {}
        assert set(tables) == set(CHANGES)
        assert all(each.rows for each in tables.values()), tables
        assert {each.left_out for each in tables.values()} == {""}
        for number in range(max(map(len, CHANGES.values()))):
            changed = {table: each[number] for table, each in CHANGES.items() if number < len(each)}
            with psycopg.connect(postgres_dsn) as connection:
                for table, statement in changed.items():
                    connection.execute(f"CREATE TABLE kept_{table} AS SELECT * FROM {table}".encode())
                    assert connection.execute(statement.encode()).rowcount > 0, statement
            found = await compared(it)
            assert differing(found) == set(changed), {name: each.difference for name, each in found.items()}
            if number == 2:
                assert found["events"].difference == "at positions 0 to 999: 998 rows, must be 999"
            with psycopg.connect(postgres_dsn) as connection:
                for table in changed:
                    connection.execute(f"DELETE FROM {table}".encode())
                    connection.execute(f"INSERT INTO {table} SELECT * FROM kept_{table}".encode())
                    connection.execute(f"DROP TABLE kept_{table}".encode())
        assert differing(await compared(it)) == set()


async def test_what_cannot_be_compared_is_said(postgres_dsn: str, facts: list[StoredEvent], tmp_path: Path) -> None:
    async with filled(postgres_dsn, facts) as it:
        log = it.context.log
        await archive_facts(log, open_place(str(tmp_path)), "dev", 400, lambda position: None)
        it.log.trim(300)
        it.observations.log.trim(5)
        tables = await compared(it)
        assert differing(tables) == set()
        assert tables["events"].rows == FACTS - 300
        assert tables["pods"].left_out == "all: the log has dropped its first facts, and the projector reads no archive"
        assert tables["observations"].left_out == "5 rows whose messages the stream does not have any more"
        # With its archive, the whole log is folded.
        object.__setattr__(it.context, "log", ArchivedEventLog(log, open_place(str(tmp_path))))
        tables = await compared(it)
        assert (differing(tables), tables["events"].rows, tables["pods"].left_out) == (set(), FACTS, "")


async def test_a_request_waits_for_the_comparison_and_a_repeated_one_gets_its_result(
    postgres_dsn: str, facts: list[StoredEvent]
) -> None:
    async with filled(postgres_dsn, facts) as it:
        comparisons = Comparisons(it.context, Streams(it.observations, it.explanations))
        answers: list[Comparison] = []
        while not answers or not answers[-1].is_done:
            answers.append(await comparisons.answer(CompareRequest("one")))
        assert (answers[-1].position, answers[-1].folded, answers[-1].trouble) == (FACTS, FACTS, "")
        assert await comparisons.answer(CompareRequest("one")) is answers[-1]
