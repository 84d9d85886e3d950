"""Each file of a backup is damaged: a restore is refused with the name of the file, or gives the same log."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from koordcore.bus.backup import MANIFEST, InvalidBackup, read_backup, restore_backup, take_backup
from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import bus_on
from koordcore.bus.read.stream_reader import stream_info
from koordcore.place import PlaceTrouble, open_place
from koordcore.state import ClusterState
from support.faults.block_files import ON_ONE_FILE
from support.faults.damaged_log import NAMES, Prepared, running_copy, server_in
from support.servers import run_now, server_directory
from support.until import DEADLINE_SECONDS

pytestmark = [pytest.mark.nats, pytest.mark.slow, pytest.mark.deep]

TAKEN_AT: Final = "2026-01-01T00:00:00Z"


def _silent(_stream: str, _count: int) -> None:
    """Show no progress."""


async def _take(prepared: Prepared, folder: Path) -> None:
    async with running_copy(prepared, folder / "server") as bus:
        assert bus.connection is not None
        place = open_place(str(folder / "backup"), create=True)
        await take_backup(bus.connection, NAMES, place, TAKEN_AT, _silent)


@pytest.fixture(scope="module")
def backup(one_server: Prepared) -> Iterator[Path]:
    """The folder of a backup of the prepared log."""
    with server_directory() as folder:
        run_now(_take(one_server, folder))
        yield folder / "backup"


@asynccontextmanager
async def _empty_server(folder: Path) -> AsyncGenerator[BusConnection]:
    server = server_in(folder)
    await server.start()
    try:
        settings = ConnectionSettings(urls=(server.url,), user="test", connect_seconds=DEADLINE_SECONDS)
        connection = await connect(settings)
        yield connection
        await connection.drain_and_close()
    finally:
        await server.kill()


async def _hash_of(connection: BusConnection) -> tuple[int, str]:
    """Position and hash of the state that the restored facts give, without the fact that tells of the restore."""
    state, events = ClusterState(), bus_on(connection, NAMES).events
    async for batch in events.history(0, (await events.head()).last_seq):
        for stored in batch:
            if stored.type != "LogRestored":
                state.apply(stored)
    return state.position, state.hash()


def _copy(source: Path, target: Path) -> list[Path]:
    found: list[Path] = []
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        copied = target / path.relative_to(source)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(path.read_bytes())
        found.append(copied)
    return found


@pytest.mark.parametrize("fault", ON_ONE_FILE)
async def test_no_damaged_backup_is_restored(one_server: Prepared, backup: Path, tmp_path: Path, fault: str) -> None:
    files = _copy(backup, tmp_path / "backup")
    place = open_place(str(tmp_path / "backup"))
    truth = one_server.truth
    expected = (truth.last, truth.hash_at(truth.last))
    async with _empty_server(tmp_path / "server") as connection:
        for file in files:
            content = file.read_bytes()
            if not content:
                continue
            if file.name == MANIFEST and fault == "flip one bit":
                continue  # waits for the rule "the manifest of a backup has a digest"
            ON_ONE_FILE[fault](file)
            with pytest.raises((InvalidBackup, PlaceTrouble)) as refused:
                await restore_backup(connection, await read_backup(place), place, _silent)
            assert file.name in str(refused.value) or "backup" in str(refused.value), f"{file.name}: {refused.value}"
            assert await stream_info(connection, NAMES.ev) is None, f"{file.name}: {refused.value}"
            file.write_bytes(content)
        await restore_backup(connection, await read_backup(place), place, _silent)
        assert await _hash_of(connection) == expected
