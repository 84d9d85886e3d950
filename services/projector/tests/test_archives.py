"""The archives of the lossy streams: what is stored, counted and left out, and when old rows are deleted."""

import asyncio
import dataclasses
from collections.abc import Sequence

import psycopg
import pytest
from koord_projector import archive, retention
from koord_projector.projecting.recovery import FIRST_PAUSE
from koord_projector.store.positions import Moved
from koord_projector.store.tables import explanations, observations
from koord_projector.store.writer import Writer
from koordcore.events.envelope import StoredEvent
from koordcore.retry import Backoff
from koordcore.values.timestamps import unix_seconds
from psycopg import sql
from structlog.testing import capture_logs
from support.manual_clock import ManualClock
from support.projector.synthetic_cluster import SyntheticCluster
from support.projector.world import projector
from support.until import until

pytestmark = pytest.mark.postgres


async def test_reports_that_postgres_refuses_are_counted_and_left_out(postgres_dsn: str) -> None:
    cluster = SyntheticCluster(nodes=3, pods=10, minutes=20)
    refused = [message for message in cluster.reports if message.ref == cluster.reports[-1].ref]
    async with projector(postgres_dsn) as it:
        await it.database.migrate()
        with psycopg.connect(postgres_dsn) as connection:
            token = sql.Literal(refused[0].ref.id)
            connection.execute(sql.SQL("ALTER TABLE observations ADD CHECK (token <> {})").format(token))
        for message in cluster.reports:
            await it.observations.publish(message.ref, message.event, message.origin)
        async with it.running():
            await until(lambda: it.progress.observations == len(cluster.reports))
            counted = f'koord_projector_unreadable_total{{stream="obs"}} {len(refused):.1f}'
            assert counted in (await it.metrics.render())[0].decode()
        async with it.running():  # those behind the last stored one are refused again
            first = cluster.reports[0]
            await it.observations.publish(first.ref, first.event, first.origin)
            await until(lambda: it.progress.observations == len(cluster.reports) + 1)
    with psycopg.connect(postgres_dsn) as connection:
        stored = connection.execute("SELECT count(*) FROM observations").fetchone()
        assert stored == (len(cluster.reports) - len(refused),)


async def test_lossy_streams_are_archived_and_what_cannot_be_read_is_counted(postgres_dsn: str) -> None:
    cluster = SyntheticCluster(nodes=5, pods=30, minutes=20)
    async with projector(postgres_dsn) as it:
        for message in cluster.reports:
            await it.observations.publish(message.ref, message.event, message.origin)
        broken = cluster.reports[0].ref
        it.observations.log.store(broken, {"Koord-Type": "NodeUsageReported", "Koord-Schema": "1"}, b"{")
        for message in cluster.explanations:
            await it.explanations.publish(message.ref, message.event, message.origin)
        for _ in range(2):  # the second run has nothing to add
            it.progress.observations = it.progress.explanations = 0
            async with it.running():
                await until(lambda: it.progress.observations == len(cluster.reports) + 1)
                await until(lambda: it.progress.explanations == len(cluster.explanations))
        page = (await it.metrics.render())[0].decode()
        assert 'koord_projector_unreadable_total{stream="obs"} 1.0' in page
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM observations").fetchone() == (len(cluster.reports),)
        assert connection.execute("SELECT count(*) FROM explanations").fetchone() == (len(cluster.explanations),)


async def pauses_of_archive(
    dsn: str, monkeypatch: pytest.MonkeyPatch, outcomes: Sequence[Exception | None]
) -> tuple[list[float], list[str]]:
    """Pauses of an archive whose batches have these outcomes (None: stored), and its warnings."""
    left, pauses = list(outcomes), list[float]()

    async def store(kept: archive.Archive, writer: Writer, after: int, batch: Sequence[StoredEvent]) -> int:
        outcome = left.pop(0)
        if outcome is not None:
            raise outcome
        return await archive.store_reports(kept, writer, after, batch)

    async def note(self: Backoff) -> None:
        pauses.append(self.seconds())

    monkeypatch.setattr(Backoff, "wait", note)
    cluster = SyntheticCluster(nodes=3, pods=3, minutes=20)
    async with projector(dsn) as it:
        await it.database.migrate()
        for message in cluster.reports[: sum(outcome is None for outcome in outcomes)]:
            await it.observations.publish(message.ref, message.event, message.origin)
        kept = dataclasses.replace(it.archives[0], store=store, batch=1)
        with capture_logs() as lines:
            task = asyncio.create_task(archive.keep_archive(kept))
            await until(lambda: not left, check=lambda: task.done() and task.result())
            task.cancel()
            await asyncio.wait((task,))
    return pauses, [str(line["event"]) for line in lines]


async def test_after_a_stored_batch_an_archive_waits_as_little_as_at_first(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = [psycopg.OperationalError("away")] * 6
    pauses, _ = await pauses_of_archive(postgres_dsn, monkeypatch, [*away, None, *away[:1], None])
    assert pauses[5] > 10 * FIRST_PAUSE
    assert pauses[6] < 2 * FIRST_PAUSE


async def test_an_archive_whose_position_moves_again_and_again_waits_longer_and_says_it_once(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = [outcome for at in range(6) for outcome in (Moved("obs", at, at + 1), None)]
    pauses, lines = await pauses_of_archive(postgres_dsn, monkeypatch, moved)
    assert pauses[5] > 10 * FIRST_PAUSE
    assert lines == ["archive_moved"]


async def test_old_rows_of_the_archives_are_deleted_in_small_transactions(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS_AT_ONCE", 7)
    cluster = SyntheticCluster(nodes=5, pods=30, minutes=20)
    async with projector(postgres_dsn) as it:
        for message in cluster.reports:
            await it.observations.publish(message.ref, message.event, message.origin)
        for message in cluster.explanations:
            await it.explanations.publish(message.ref, message.event, message.origin)
        async with it.running():
            await until(lambda: it.progress.observations == len(cluster.reports))
            await until(lambda: it.progress.explanations == len(cluster.explanations))
        for table, time in ((observations, "stored_at_ns"), (explanations, "occurred_at")):
            with psycopg.connect(postgres_dsn) as connection:
                column, name = sql.Identifier(time), sql.Identifier(table.name)
                every = connection.execute(sql.SQL("SELECT {} FROM {} ORDER BY 1").format(column, name)).fetchall()
            middle = every[len(every) // 2][0]
            old = sum(row[0] < middle for row in every)
            assert old > 7, "several transactions are needed"
            clock = ManualClock((unix_seconds(middle) if isinstance(middle, str) else middle / 1e9) + 86_400)
            context = it.context
            policy = retention.Retention(
                database=it.database, clock=clock, days=1, metrics=context.metrics, logger=context.logger
            )
            assert await retention.prune(policy, table) == old
            with psycopg.connect(postgres_dsn) as connection:
                oldest = connection.execute(sql.SQL("SELECT min({}) FROM {}").format(column, name)).fetchone()
            assert oldest == (middle,)


async def test_a_stream_of_observations_that_was_made_again_is_followed_from_its_start(postgres_dsn: str) -> None:
    cluster = SyntheticCluster(nodes=3, pods=10, minutes=20)
    half = len(cluster.reports) // 2
    for part in (cluster.reports[:half], cluster.reports[half : half + 2]):
        async with projector(postgres_dsn) as it:
            for message in part:
                await it.observations.publish(message.ref, message.event, message.origin)
            async with it.running():
                await until(lambda part=part: it.progress.observations == len(part))
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM observations").fetchone() == (half + 2,)
