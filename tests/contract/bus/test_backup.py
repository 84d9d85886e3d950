"""A backup of a running server holds every fact at its position, and an empty server takes it back."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from koordcore.bus.backup.copying import StreamExists, restore_backup, take_backup
from koordcore.bus.backup.folder import MANIFEST, Backup, InvalidBackup, read_backup
from koordcore.bus.client.connection import BusConnection, ConnectionSettings, Denied, connect
from koordcore.bus.factory import Bus, bus_on
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import api
from koordcore.bus.setup.bootstrap import Change, bootstrap
from koordcore.bus.setup.manifest import BACKUP, BOOTSTRAP
from koordcore.bus.setup.principals import nats_users, seed_file
from koordcore.bus.setup.streams import streams
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.events.objects.mirror import PodSpecDeleted
from koordcore.ports.desired import DesiredNode
from koordcore.ports.eventlog import Appended, Misconfigured
from koordcore.ports.snapshots import Snapshot, state_digest
from support.bus.bus_worlds import SMALL, sealed
from support.bus.log_worlds import FAST
from support.servers import server_directory

pytestmark = pytest.mark.nats

NAMES = BusNames("kept")
NOW = "2026-01-01T00:00:00Z"
DESIRED = DesiredNode(node="n1", as_of={"node": 1})


def _silent(stream: str, count: int) -> None:
    """Show no progress."""


class Installation:
    """A server with the users of an installation, without streams."""

    def __init__(self, directory: Path) -> None:
        self._keys = directory / "keys"
        users = nats_users(NAMES, self._keys)
        self.server = NatsServer(NatsServerConfig(directory=directory / "nats", sync_interval="1s", users=users))

    @asynccontextmanager
    async def connected(self, user: str) -> AsyncGenerator[BusConnection]:
        seed = seed_file(self._keys, user)
        connection = await connect(ConnectionSettings(urls=(self.server.url,), user=user, nkey_seed_file=seed))
        try:
            yield connection
        finally:
            await connection.drain_and_close()

    async def create_streams(self) -> dict[str, Change]:
        async with self.connected(BOOTSTRAP.name) as connection:
            return await bootstrap(connection, streams(NAMES, replicas=1, sizes=SMALL))

    async def backup(self, folder: Path) -> Backup:
        async with self.connected(BACKUP.name) as connection:
            return await take_backup(connection, NAMES, folder, NOW, _silent)

    async def restore(self, folder: Path) -> None:
        async with self.connected(BOOTSTRAP.name) as connection:
            await restore_backup(connection, read_backup(folder), folder, _silent)

    @asynccontextmanager
    async def bus(self, user: str) -> AsyncGenerator[Bus]:
        async with self.connected(user) as connection:
            yield bus_on(connection, NAMES, follower=FAST)


@asynccontextmanager
async def installation() -> AsyncGenerator[Installation]:
    with server_directory() as directory:
        found = Installation(directory)
        await found.server.start()
        try:
            yield found
        finally:
            await found.server.kill()


async def facts(bus: Bus) -> list[tuple[int, str, bytes]]:
    head = await bus.events.head()
    return [
        (stored.seq, str(stored.ref), stored.body)
        async for batch in bus.events.history(0, head.last_seq)
        for stored in batch
    ]


async def append(bus: Bus, first: int, count: int) -> None:
    for number in range(first, first + count):
        event = sealed("podspec", f"p{number}", PodSpecDeleted(namespace="d", name=f"p{number}"), cause=str(number))
        assert isinstance(await bus.events.append([event]), Appended)


async def test_a_backup_of_a_running_server_is_restored_on_an_empty_one(tmp_path: Path) -> None:
    folder = tmp_path
    state = b"a state"
    snapshot = Snapshot(
        fold="manager",
        seq=5,
        code_version="",
        schema_fingerprint="x",
        taken_at=NOW,
        state=(state,),
        digest=state_digest([state]),
    )
    async with installation() as running:
        await running.create_streams()
        async with running.bus("manager") as bus:
            await append(bus, 0, 40)
            await bus.snapshots.save(snapshot)
            await bus.desired.put(DESIRED)
            writing = asyncio.create_task(append(bus, 40, 40))
            backup = await running.backup(folder)
            await writing
            written = await facts(bus)
    assert [copy.stream for copy in backup.streams] == list(NAMES.in_backup)
    assert 40 <= backup.position <= 80
    assert read_backup(folder) == backup

    async with installation() as fresh:
        await fresh.restore(folder)
        assert (await fresh.create_streams())[NAMES.ev] is Change.UNCHANGED
        async with fresh.bus("manager") as bus:
            assert await facts(bus) == written[: backup.position]
            assert await bus.snapshots.newest("manager", schema_fingerprint="x") == snapshot
            assert await bus.desired.get("n1") == DESIRED
            await append(bus, backup.position, 1)
            assert (await bus.events.head()).last_seq == backup.position + 1
        with pytest.raises(StreamExists, match=NAMES.snapshots):
            await fresh.restore(folder)


async def test_the_user_of_backups_changes_nothing() -> None:
    async with installation() as running:
        await running.create_streams()
        async with running.connected(BACKUP.name) as connection:
            for subject in (f"$JS.API.STREAM.RESTORE.{NAMES.ev}", f"$JS.API.STREAM.PURGE.{NAMES.ev}"):
                with pytest.raises(Denied):
                    await api(connection, subject, b"{}")
        async with running.bus(BACKUP.name) as bus:
            with pytest.raises(Misconfigured, match="permission denied"):
                await append(bus, 0, 1)


async def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path
    async with installation() as running:
        await running.create_streams()
        async with running.bus("manager") as bus:
            await append(bus, 0, 3)
        backup = await running.backup(folder)
    file = folder / backup.streams[-1].file
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InvalidBackup, match="sha256: must be"):
        read_backup(folder)
    file.write_bytes(content[:-1])
    with pytest.raises(InvalidBackup, match="size: must be"):
        read_backup(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(InvalidBackup, match="not a complete backup"):
        read_backup(folder)
