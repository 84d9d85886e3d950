"""Log, snapshots and Postgres that the code of an earlier commit wrote are read by today's code.

See `golden/README.md`. A snapshot of another schema is not used: the fold begins at the first fact. Rows of another
version of the projection are made again, and the archives beside them stay.
"""

import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from koord_projector.read.status import aggregates_hash
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.backup import read_backup, restore_backup
from koordcore.bus.client.connection import ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, bus_on
from koordcore.bus.folds.foldable import FoldSource
from koordcore.bus.folds.runner import FoldRunner
from koordcore.bus.names import BusNames
from koordcore.bus.setup.bootstrap import Change, bootstrap
from koordcore.bus.setup.streams import streams
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.events.envelope import StoredEvent
from koordcore.place import open_place
from koordcore.service.clock import SystemClock
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint
from support.bus.log_worlds import FAST
from support.projector.world import projector
from support.servers import server_directory

pytestmark = [pytest.mark.nats, pytest.mark.postgres]

GOLDEN = Path(__file__).parent / "golden"
NAMES = BusNames("dev")


@dataclass(frozen=True)
class Installation:
    """What one commit wrote: folder, last position, and the hash of all states there."""

    folder: str
    position: int
    hash: str


INSTALLATIONS = [Installation("2026-11-23", 117, "5fe9b5b0f59aad2d733c348bf5a19d75")]


@asynccontextmanager
async def restored(installation: Installation) -> AsyncGenerator[Bus]:
    """The streams of an installation on a new server, as an upgrade finds them."""
    place = open_place(str(GOLDEN / installation.folder))
    with server_directory() as directory:
        server = NatsServer(NatsServerConfig(directory=directory, sync_interval="1s"))
        await server.start()
        connection = await connect(ConnectionSettings(urls=(server.url,)))
        try:
            backup = await read_backup(place)
            await restore_backup(connection, backup, place, lambda stream, count: None)
            changes = await bootstrap(connection, streams(NAMES, replicas=1))
            kept = {copy.stream for copy in backup.streams}
            assert {name for name, change in changes.items() if change is not Change.CREATED} == kept
            yield bus_on(connection, NAMES, follower=FAST)
        finally:
            await connection.drain_and_close()
            await server.kill()


async def facts_of(bus: Bus, upto: int) -> list[StoredEvent]:
    return [event async for batch in bus.events.history(0, upto) for event in batch]


@pytest.mark.parametrize("installation", INSTALLATIONS, ids=lambda each: each.folder)
async def test_an_earlier_log_folds_to_its_hash_and_its_snapshots_are_used_or_refused(
    installation: Installation,
) -> None:
    async with restored(installation) as bus:
        assert (await bus.events.head()).last_seq == installation.position
        state = ClusterState()
        for event in await facts_of(bus, installation.position):
            state.apply(event)
        assert state.hash() == installation.hash

        assert await bus.snapshots.sequences("manager") == [90]
        source = FoldSource(ClusterState, ClusterState.restore, schema_fingerprint())
        runner = FoldRunner("manager", bus.events, source, SystemClock(), snapshots=bus.snapshots)
        await runner.load()
        assert runner.position in (0, 90)
        for event in await facts_of(bus, installation.position):
            runner.state.apply(event)
        assert runner.state.hash() == installation.hash


@pytest.mark.parametrize("installation", INSTALLATIONS, ids=lambda each: each.folder)
async def test_earlier_tables_are_migrated_and_folded_to_the_hash(
    installation: Installation, postgres_dsn: str
) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(gzip.decompress((GOLDEN / installation.folder / "postgres.sql.gz").read_bytes()))
    with psycopg.connect(postgres_dsn) as connection:
        reports = connection.execute("SELECT count(*) FROM observations").fetchone()
        assert reports is not None
        assert reports[0] > 0
    log = MemoryLog()
    async with restored(installation) as bus:
        for event in await facts_of(bus, installation.position):
            log.store(event.ref, dict(event.headers), event.body)
    async with projector(postgres_dsn, log=log) as it, it.running():
        await it.caught_up()
        async with it.database.reading() as reading:
            found = await aggregates_hash(reading)
    assert (found.position, found.hash) == (installation.position, installation.hash)
    with psycopg.connect(postgres_dsn) as connection:
        kept = connection.execute("SELECT count(*) FROM observations").fetchone()
        assert kept is not None
        assert kept[0] >= reports[0]
