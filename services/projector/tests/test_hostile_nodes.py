"""Postgres stores what a hostile node writes if it is a fact, and no row for the rest, also when it is rebuilt."""

import random

import psycopg
import pytest
from koord_projector.projecting import rebuilding
from koordcore.events import CATALOGUE
from koordcore.events.envelope import StoredEvent
from support.depth import seeds
from support.histories.history import every_kind_once, history
from support.hostile_node import hostile
from support.projector.world import TABLES, projector
from support.until import until

pytestmark = pytest.mark.postgres


def interspersed(seed: int) -> list[StoredEvent]:
    """A valid history, and among its facts messages of hostile nodes. The last one is hostile."""
    rng, facts = random.Random(seed), history(every_kind_once())
    log: list[StoredEvent] = []
    for fact in facts:
        log.append(StoredEvent(len(log) + 1, fact.ref, fact.headers, fact.body, fact.stored_at_ns))
        for _ in range(rng.randrange(5)):
            log.append(hostile(rng, facts, len(log) + 1))
    log.append(StoredEvent(len(log) + 1, log[0].ref, {"Nats-Msg-Id": "x" * 5000}, b"\0"))
    return log


def tables(dsn: str) -> dict[str, list[str]]:
    with psycopg.connect(dsn) as connection:
        return {
            table: sorted(repr(row) for row in connection.execute(f"SELECT * FROM {table}".encode()))
            for table in TABLES
        }


@pytest.mark.parametrize("seed", seeds(6))
async def test_messages_of_hostile_nodes_have_rows_only_if_they_are_facts(
    postgres_dsn: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = interspersed(seed)
    facts = {message.seq for message in log if not CATALOGUE.why_passed_over(message)}
    async with projector(postgres_dsn, batch_events=41) as it:
        it.write(log)
        async with it.running():
            await it.caught_up()
            before = tables(postgres_dsn)
            with psycopg.connect(postgres_dsn) as connection:
                stored = {seq for (seq,) in connection.execute("SELECT seq FROM events")}
                assert connection.execute("SELECT position FROM projection WHERE stream = 'ev'").fetchone() == (
                    log[-1].seq,
                )
            assert stored == facts
            monkeypatch.setattr(rebuilding, "WORTH_EVENTS", 1)
            it.progress.rebuild_wanted.set()
            await until(lambda: not it.progress.rebuild_wanted.is_set())
            await it.caught_up()
            assert tables(postgres_dsn) == before
        async with it.running():  # a restart finds the log that it has folded
            await it.caught_up()
