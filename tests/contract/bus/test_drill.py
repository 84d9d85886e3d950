"""`koord drill` restores a backup on a server of its own, and finds a snapshot that folding does not give."""

from dataclasses import replace
from pathlib import Path

import pytest
from koordcore.bus.backup import take_backup
from koordcore.bus.client.connection import ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, bus_on
from koordcore.bus.names import BusNames
from koordcore.bus.setup.bootstrap import bootstrap
from koordcore.bus.setup.streams import StreamSizes, streams
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import GIB, NatsServerConfig
from koordcore.events.objects import PodSpecAdded
from koordcore.place import open_place
from koordcore.ports.eventlog import Appended
from koordcore.ports.snapshots import Snapshot, state_digest
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint
from support.bus.bus_worlds import SMALL, sealed
from support.koord_command import KoordCommand
from support.servers import server_directory

pytestmark = pytest.mark.nats

NAMES = BusNames("dev")
FACTS = 30
GOLDEN = Path(__file__).parents[2] / "integration" / "golden" / "2026-11-23"


async def save_snapshot(bus: Bus, position: int, *, of: int) -> None:
    """Save the state at the position `of` as a snapshot of a position."""
    state = ClusterState()
    async for batch in bus.events.history(0, of):
        for stored in batch:
            state.apply(stored)
    state.skip(position)
    pieces = tuple(state.snapshot())
    await bus.snapshots.save(
        Snapshot(
            fold="manager",
            seq=position,
            code_version="",
            schema_fingerprint=schema_fingerprint(),
            taken_at="2026-01-01T00:00:00Z",
            state=pieces,
            digest=state_digest(pieces),
        )
    )


async def write_backup(place: Path, snapshots: dict[int, int], sizes: StreamSizes = SMALL) -> None:
    """Write a backup of some facts with snapshots: position -> position of the state that is saved."""
    with server_directory() as directory:
        config = NatsServerConfig(directory=directory, sync_interval="1s", max_file_store_bytes=sizes.file_store())
        async with NatsServer(config) as server:
            connection = await connect(ConnectionSettings(urls=(server.url,), user="test"))
            await bootstrap(connection, streams(NAMES, replicas=1, sizes=sizes))
            bus = bus_on(connection, NAMES)
            for number in range(FACTS):
                name = f"p{number}"
                event = PodSpecAdded(object=Pod(metadata=ObjectMeta(name=name, namespace="d", uid=name)))
                assert isinstance(await bus.events.append([sealed("podspec", name, event, cause=name)]), Appended)
            for position, of in snapshots.items():
                await save_snapshot(bus, position, of=of)
            target = open_place(str(place), create=True)
            await take_backup(connection, NAMES, target, "2026-01-01T00:00:00Z", lambda stream, count: None)
            await connection.drain_and_close()


async def test_a_backup_is_restored_and_its_snapshots_are_those_that_folding_gives(tmp_path: Path) -> None:
    await write_backup(tmp_path / "copy", {10: 10, 20: 20})
    said = KoordCommand(tmp_path).run("drill", str(tmp_path / "copy"))
    assert "restored; 30 facts folded from the first fact to 30" in said
    assert "2 snapshots equal" in said


@pytest.mark.deep
async def test_a_backup_of_a_log_that_was_enlarged_passes_the_drill(tmp_path: Path) -> None:
    """Its streams reserve more than a server offers by default."""
    await write_backup(tmp_path / "copy", {10: 10}, replace(SMALL, ev=9 * GIB))
    assert "1 snapshots equal" in KoordCommand(tmp_path).run("drill", str(tmp_path / "copy"))


@pytest.mark.deep
async def test_a_snapshot_that_folding_does_not_give_fails_the_drill(tmp_path: Path) -> None:
    await write_backup(tmp_path / "copy", {10: 10, 20: 19})
    _, trouble = KoordCommand(tmp_path).said("drill", str(tmp_path / "copy"), status=1)
    assert "another state than the snapshots at 20:" in trouble


@pytest.mark.deep
async def test_a_changed_file_fails_the_drill(tmp_path: Path) -> None:
    await write_backup(tmp_path / "copy", {})
    facts = tmp_path / "copy" / f"{NAMES.ev}.tar.s2"
    facts.write_bytes(facts.read_bytes()[:-1])
    _, trouble = KoordCommand(tmp_path).said("drill", str(tmp_path / "copy"), status=1)
    assert "size: must be" in trouble


@pytest.mark.deep
def test_a_backup_of_an_earlier_version_passes_the_drill(tmp_path: Path) -> None:
    said = KoordCommand(tmp_path).run("drill", str(GOLDEN))
    assert "117 facts folded from the first fact to 117, state 5fe9b5b0f59aad2d733c348bf5a19d75" in said
