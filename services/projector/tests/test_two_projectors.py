"""Two projectors on one database, of one version or of two: one of them keeps the tables."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar

import psycopg
import pytest
from koord_projector.projecting import rebuilding, recovery, session
from koord_projector.store import loader, positions, writer
from koord_projector.store.shadow import Shadow
from koord_projector.store.writer import Writer
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.retry import Backoff
from structlog.testing import capture_logs
from support.projector.synthetic_cluster import small
from support.projector.world import Projector, projector
from support.until import until

pytestmark = pytest.mark.postgres

VERSION: ContextVar[str] = ContextVar("version", default="old")


@pytest.fixture(autouse=True)
def versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each projector has its own version of the projection."""
    for module in (loader, positions, writer):
        monkeypatch.setattr(module, "projection_schema", VERSION.get)
    monkeypatch.setattr(recovery, "LONGEST_PAUSE", 0.1)


@asynccontextmanager
async def running(it: Projector, version: str) -> AsyncGenerator[Projector]:
    """A projector that folds with a version of the projection."""
    token = VERSION.set(version)
    async with it.running():
        VERSION.reset(token)
        yield it


def stored_schema(dsn: str) -> tuple[str, int]:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT schema, position FROM projection WHERE stream = 'ev'").fetchone()
        assert row is not None
        return str(row[0]), int(row[1])


@pytest.mark.deep
async def test_a_projector_of_another_version_takes_the_tables_once_and_the_first_stands_by(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, log, cleared = small(), MemoryLog(), list[str]()
    clear = Writer.clear

    async def counted(self: Writer, *args: object, **options: object) -> None:
        cleared.append(VERSION.get())
        await clear(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Writer, "clear", counted)
    third = len(events) // 3
    async with projector(postgres_dsn, log=log) as old, projector(postgres_dsn, log=log) as new:
        old.write(events[:third])
        async with running(old, "old"):
            await old.caught_up()
            cleared.clear()
            with capture_logs() as lines:
                async with running(new, "new"):
                    await new.caught_up()
                    for event in events[third : 2 * third]:
                        new.write([event])
                        await new.caught_up()
                    assert cleared == ["new"]
                    assert stored_schema(postgres_dsn) == ("new", 2 * third)
                    await until(lambda: "another version" in old.progress.trouble)
                    assert not old.health.is_ready()
                    assert new.health.is_ready()
                    assert [line["event"] for line in lines].count("stands_by") == 1
            # nobody else folds any more, so the first one takes the tables back
            await old.caught_up()
            assert cleared == ["new", "old"]
            old.write(events[2 * third :])
            await old.caught_up()
            assert stored_schema(postgres_dsn) == ("old", len(events))


async def test_an_operator_can_give_the_tables_to_the_version_that_stands_by(postgres_dsn: str) -> None:
    events, log = small(), MemoryLog()
    async with projector(postgres_dsn, log=log) as old, projector(postgres_dsn, log=log) as new:
        old.write(events[:-2])
        async with running(old, "old"):
            await old.caught_up()
            async with running(new, "new"):
                await new.caught_up()
                old.write(events[-2:-1])
                await until(lambda: "another version" in old.progress.trouble)
                old.progress.rebuild_wanted.set()
                await old.caught_up()
                old.write(events[-1:])
                await until(lambda: "another version" in new.progress.trouble)
                await old.caught_up()
                assert stored_schema(postgres_dsn) == ("old", len(events))


@pytest.mark.deep
@pytest.mark.parametrize("version", ["old", "new"])
async def test_a_rebuild_by_copy_ends_while_another_projector_folds(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(rebuilding, "WORTH_EVENTS", 1)
    events, log, exchanges = small(), MemoryLog(), list[int]()
    exchange, half = Shadow.exchange, len(events) // 2
    async with projector(postgres_dsn, log=log) as old, projector(postgres_dsn, log=log) as new:
        later = iter(events[half:])

        async def late(self: Shadow, *args: object, **options: object) -> None:
            exchanges.append(1)
            old.write([next(later)])
            await until(lambda: stored_schema(postgres_dsn)[1] == log.last_seq)
            await exchange(self, *args, **options)  # type: ignore[arg-type]

        old.write(events[:half])
        async with running(old, "old"):
            await old.caught_up()
            monkeypatch.setattr(Shadow, "exchange", late)
            if version == "old":
                new.progress.rebuild_wanted.set()
            async with running(new, version):
                await until(lambda: len(exchanges) > 1 or new.health.is_ready())
                await new.caught_up()
                assert exchanges == [1]
                new.write([*later])
                await new.caught_up()
                assert stored_schema(postgres_dsn) == (version, len(events))


async def test_the_tables_are_not_taken_back_while_their_projector_begins_a_new_session(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, log, looked, schemas = small(), MemoryLog(), Writer.is_folded, list[str]()
    answers = [True, False, False, True, False, True]

    async def look(self: Writer) -> bool:
        schemas.append(stored_schema(postgres_dsn)[0])
        return answers.pop(0) if answers else await looked(self)

    monkeypatch.setattr(Writer, "is_folded", look)
    async with projector(postgres_dsn, log=log) as old:
        old.write(events[:-1])
        async with running(old, "old"):
            await old.caught_up()
            with psycopg.connect(postgres_dsn) as connection:
                connection.execute("UPDATE projection SET schema = 'new' WHERE stream = 'ev'")
            old.write(events[-1:])
            await old.caught_up()
            assert stored_schema(postgres_dsn) == ("old", len(events))
    assert schemas == ["new"] * (6 + session.FREE_LOOKS)


async def test_rows_of_two_versions_are_never_mixed(postgres_dsn: str) -> None:
    events, log = small(), MemoryLog()
    async with projector(postgres_dsn, log=log) as old:
        old.write(events[:-1])
        async with running(old, "old"):
            await old.caught_up()
            # another version has made the tables again, up to the same position
            with psycopg.connect(postgres_dsn) as connection:
                connection.execute("UPDATE projection SET schema = 'new' WHERE stream = 'ev'")
                connection.execute("SELECT pg_advisory_lock_shared(%s)", (positions.FOLD_LOCK,))
                connection.commit()
                old.write(events[-1:])
                await until(lambda: "another version" in old.progress.trouble)
                assert stored_schema(postgres_dsn) == ("new", len(events) - 1)
            await old.caught_up()
            assert stored_schema(postgres_dsn) == ("old", len(events))


async def test_a_position_that_moves_again_and_again_is_logged_once_and_waited_for(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list[float]()
    monkeypatch.setattr(recovery, "LONGEST_PAUSE", 100.0)

    async def note(self: Backoff) -> None:
        waited.append(self.seconds())

    async with projector(postgres_dsn) as it:
        recover = recovery.Recovery(it.context)
        monkeypatch.setattr(Backoff, "wait", note)
        with capture_logs() as lines:
            for at in range(6):
                await recover.after(positions.Moved("ev", at, at + 1))
                recover.committed()
        assert [line["event"] for line in lines] == ["position_moved"]
        assert len(waited) == 6
        assert waited[-1] > 10 * recovery.FIRST_PAUSE
