"""A moment is what the server had stored by then, and the newest report is the last one that it stored."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from koord_projector.read.moments import resolve
from koord_projector.read.nodes import list_nodes
from koord_projector.store import database as database_module
from koord_projector.store.database import Database
from koordcore.bus.folds.replay import position_at_time
from koordcore.bus.refusals import Refused
from koordcore.events.envelope import AggregateRef, Origin
from koordcore.events.nodestate import PodsStarted
from koordcore.events.objects import NodeSpecAdded
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.protocol.objects import Node, ObjectMeta
from koordcore.service.clock import ScaledClock
from koordcore.values.timestamps import rfc3339, unix_nanos
from sqlalchemy import Connection
from support.histories.recording import Recorder
from support.projector.world import Projector, projector
from support.until import until

pytestmark = pytest.mark.postgres

BEGAN = datetime(2026, 11, 28, 13, 0, tzinfo=UTC)


def at(second: float) -> datetime:
    return BEGAN + timedelta(seconds=second)


def append(it: Projector, stored: list[int], said: list[int], *, after: int = 0) -> None:
    """Append facts that the server stored at these seconds, and that their writers dated at those.

    `after`: number of the first facts that the log has.
    """
    times = iter(stored[after:])
    it.log.time_of_storing = lambda _: unix_nanos(at(next(times)))
    log = Recorder()
    for number, second in enumerate(said):
        log.write("nodestate", f"n{number}", PodsStarted(pods=["p"]), at=rfc3339(at(second)))
    it.write(log.events[after:])


async def test_a_node_with_a_wrong_clock_moves_no_moment_and_replay_means_the_same(postgres_dsn: str) -> None:
    # The third fact is dated half an hour back, and the fourth one a day ahead.
    stored, said = [0, 10, 20, 30, 40], [0, 10, -1780, 86_400, 40]
    async with projector(postgres_dsn) as it:
        append(it, stored, said)
        async with it.running():
            await it.caught_up()
        async with it.database.reading() as connection:
            found = {second: (await resolve(connection, rfc3339(at(second)))).position for second in range(-5, 50, 5)}
        for second, position in found.items():
            assert position == sum(each <= second for each in stored)
            assert position == await position_at_time(it.context.log, unix_nanos(at(second)))


async def test_a_clock_of_the_server_that_is_set_back_gives_one_meaning_and_no_earlier_position_later(
    postgres_dsn: str,
) -> None:
    stored = [0, 10, 3620, 3640, 25, 35, 3600, 3650]
    async with projector(postgres_dsn) as it:
        append(it, stored[:5], stored[:5])
        async with it.running():
            await it.caught_up()
        append(it, stored, stored, after=5)
        # A projector that starts again goes on with the greatest time that it had reached.
        async with it.running():
            await it.caught_up()
        before = 0
        async with it.database.reading() as connection:
            for second in (-1, 0, 15, 30, 3600, 3620, 3630, 3640, 3645, 3650):
                position = (await resolve(connection, rfc3339(at(second)))).position
                assert position == await position_at_time(it.context.log, unix_nanos(at(second)))
                assert position >= before
                before = position
    assert before == len(stored)


async def test_a_time_is_that_of_the_run_although_the_server_has_the_time_of_its_host(postgres_dsn: str) -> None:
    clock = ScaledClock(origin_real_unix=BEGAN.timestamp(), origin_unix=BEGAN.timestamp(), speed=60)
    async with projector(postgres_dsn) as it:
        append(it, [0, 1, 2, 3], [0, 60, 120, 180])
        async with it.running():
            await it.caught_up()
        async with it.database.reading() as connection:
            found = [(await resolve(connection, rfc3339(at(each)), clock)).position for each in (-1, 30, 61, 125, 999)]
    assert found == [0, 1, 2, 3, 4]


async def report(it: Projector, stored: float, said: float, cpu_milli: int, node: str = "a") -> None:
    """Publish a usage report that the server stores at a second, and that the agent dates at another one."""
    it.observations.log.time_of_storing = lambda _: unix_nanos(at(stored))
    usage = NodeUsageReported(
        updated_at=rfc3339(at(said)),
        report_interval_seconds=60,
        aggregate_duration_seconds=60,
        node_usage=Usage(cpu_milli=cpu_milli),
    )
    origin = Origin(causation_id=str(stored), correlation_id="", actor="agent", occurred_at=rfc3339(at(said)))
    await it.observations.publish(AggregateRef("node", node), usage, origin)


async def used(it: Projector, moment: str = "") -> int | None:
    async with it.database.reading() as connection:
        (node,) = await list_nodes(connection, await resolve(connection, moment), at(200))
    return node.cpu_used


async def test_the_usage_of_a_node_is_its_last_report_and_none_that_is_dated_ahead(postgres_dsn: str) -> None:
    log = Recorder()
    for number in range(3):
        log.write("nodespec", "a", NodeSpecAdded(object=Node(metadata=ObjectMeta(name="a"))), at=rfc3339(at(number)))
    async with projector(postgres_dsn) as it:
        times = iter((0, 70, 130))
        it.log.time_of_storing = lambda _: unix_nanos(at(next(times)))
        it.write(log.events)
        await report(it, 60, 60, 4703)
        await report(it, 120, 120 - 3600, 747)  # the clock of the node went back by an hour
        async with it.running():
            await it.caught_up()
            await until(lambda: it.progress.observations == 2)
            assert await used(it) == 747
            assert [await used(it, str(position)) for position in (1, 2, 3)] == [None, 4703, 747]
            await report(it, 180, 2_300_000_000, 9)  # once, the clock of the node was in 2099
            await report(it, 190, 190 + 59, 11)  # within the leeway
            await until(lambda: it.progress.observations == 4)
            assert await used(it) == 11
            await report(it, 195, 195, 12)
            await until(lambda: it.progress.observations == 5)
            assert await used(it) == 12
        refusals = it.archives[0].metrics.passed_over.of_node["a"]
    assert dict(refusals.counts) == {Refused.REPORT_AHEAD: 1}
    assert "it is dated 2099-" in refusals.reason


async def test_a_database_of_the_version_before_gets_the_times_and_marks_those_that_stand_in(postgres_dsn: str) -> None:
    database = Database(postgres_dsn)

    def earlier(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(database_module.MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "0009")

    async with database.engine.begin() as connection:
        await connection.run_sync(earlier)
    await database.close()
    row = "INSERT INTO observations VALUES (%s, %s, %s, %s, %s, 0, 0, 0, 0, 60, %s)"
    async with projector(postgres_dsn) as it:
        with psycopg.connect(postgres_dsn) as connection:
            connection.execute("CREATE TABLE events_p PARTITION OF events FOR VALUES FROM (MINVALUE) TO (1000000)")
            for seq, nanos in ((1, 5), (2, 9), (3, 7), (4, 11)):
                connection.execute(
                    "INSERT INTO events VALUES (%s, 'k', 'i', 't', 1, '', %s, '', '', '', '', 0, 0, '', '{}')",
                    (seq, nanos),
                )
            connection.execute(row, ("a", rfc3339(at(0)), 7, "gone", 1, b""))
            connection.execute(row, ("b", "2099-01-01T00:00:00.000000Z", 8, "ahead", 2, b""))
            connection.execute("INSERT INTO projection VALUES ('obs', 9, '', '')")
        await it.database.migrate()
        with psycopg.connect(postgres_dsn) as connection:
            reached = connection.execute("SELECT reached_ns FROM events ORDER BY seq").fetchall()
            times = connection.execute(
                "SELECT stored_at_ns, is_approximate FROM observations ORDER BY token"
            ).fetchall()
            again = connection.execute("SELECT position FROM projection WHERE stream = 'obs'").fetchone()
    assert reached == [(5,), (9,), (9,), (11,)]
    assert times[0] == (int(at(0).timestamp()) * 10**9, True)
    assert times[1][0] < unix_nanos(datetime(2098, 1, 1, tzinfo=UTC))
    assert again == (0,), "the reports that the stream still has get their times"
