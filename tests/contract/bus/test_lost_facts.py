"""Facts that the disk of a single server has lost are found by every command that copies, compares or drops facts."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from koordcore.bus.archive.archived_log import archive_facts, require_archived, trim
from koordcore.bus.archive.files import InvalidArchive, read_list
from koordcore.bus.backup import restore_backup, take_backup
from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, bus_on
from koordcore.bus.names import BusNames
from koordcore.bus.read.completeness import Completeness, FactsMissing, require_complete
from koordcore.bus.read.replicas import losses, read_copies
from koordcore.bus.setup.bootstrap import bootstrap
from koordcore.bus.setup.streams import streams
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.events.envelope import StoredEvent
from koordcore.events.log import LOG, LogRestored
from koordcore.events.objects import PodSpecAdded
from koordcore.place import PlaceTrouble, open_place
from koordcore.ports.eventlog import Appended
from koordcore.protocol.objects import ObjectMeta, Pod
from support.bus.bus_worlds import SMALL, opened, sealed
from support.bus.bus_worlds import Place as BusPlace
from support.bus.installed_server import told
from support.bus.snapshots import of_the_cluster
from support.servers import server_directory

pytestmark = pytest.mark.nats

NAMES = BusNames("dev")
FACTS = 40
MARKED = "somebody"
LOST = "got none at 11"


class Damaged(NamedTuple):
    """A server whose disk has lost one fact of 40: the one at position 11."""

    server: NatsServer
    connection: BusConnection
    bus: Bus


async def append(bus: Bus, count: int = FACTS) -> None:
    for number in range(count):
        name = MARKED if number == 10 else f"p{number}"
        event = PodSpecAdded(object=Pod(metadata=ObjectMeta(name=name, namespace="d", uid=name)))
        assert isinstance(await bus.events.append([sealed("podspec", name, event, cause=name)]), Appended)


def flip(server: NatsServer) -> None:
    """Change one letter of a fact in the files of a server that does not run."""
    for file in sorted(Path(server.config.directory).glob(f"**/{NAMES.ev}/msgs/*.blk")):
        content = bytearray(file.read_bytes())
        at = content.rfind(MARKED.encode())
        if at >= 0:
            content[at] ^= 1
            file.write_bytes(content)
            return
    raise AssertionError("no fact found")


def first_block(directory: Path) -> Path:
    return next(directory.glob(f"**/{NAMES.ev}/msgs/1.blk"))


@pytest.fixture
async def damaged() -> AsyncGenerator[Damaged]:
    # Without compression, as with replicas: one changed byte is one lost fact.
    specs = tuple(replace(spec, compression="none") for spec in streams(NAMES, replicas=1, sizes=SMALL))
    with server_directory() as directory:
        async with NatsServer(NatsServerConfig(directory=directory, sync_interval="1s")) as server:
            connection = await connect(ConnectionSettings(urls=(server.url,), user="test", reconnect_wait_seconds=0.05))
            await bootstrap(connection, specs)
            await append(bus_on(connection, NAMES))
            await connection.drain_and_close()
            await server.stop()
            flip(server)
            await server.start()
            connection = await connect(ConnectionSettings(urls=(server.url,), user="test"))
            try:
                yield Damaged(server, connection, bus_on(connection, NAMES))
            finally:
                await connection.drain_and_close()


@pytest.mark.deep
async def test_each_command_that_reads_the_log_says_which_fact_is_lost(damaged: Damaged, tmp_path: Path) -> None:
    assert (await damaged.bus.events.head()).last_seq == FACTS, "the server itself notices nothing"
    for words in (
        ("verify", "--replicas"),
        ("backup", str(tmp_path / "backup")),
        ("bus", "archive", str(tmp_path / "archive"), "--keep", "0s"),
        ("replay",),
    ):
        status, said = await told(damaged.server.url, NAMES.cluster, *words)
        assert (status, LOST in said) == (1, True), said
    assert await read_list(open_place(str(tmp_path / "archive"))) is None, "nothing is archived behind the loss"


async def test_a_copy_with_a_block_that_cannot_be_read_lacks_the_rest_and_is_not_equal() -> None:
    specs = tuple(replace(spec, compression="s2") for spec in streams(NAMES, replicas=1, sizes=SMALL))
    with server_directory() as directory:
        async with NatsServer(NatsServerConfig(directory=directory, sync_interval="1s")) as server:
            connection = await connect(ConnectionSettings(urls=(server.url,), user="test"))
            await bootstrap(connection, specs)
            for number in range(16):  # more than one block; the server compresses all but the last one
                meta = ObjectMeta(name=f"p{number}", namespace="d", uid=f"p{number}", labels={"x": "y" * 300_000})
                event = sealed("podspec", f"p{number}", PodSpecAdded(object=Pod(metadata=meta)))
                assert isinstance(await bus_on(connection, NAMES).events.append([event]), Appended)
            await connection.drain_and_close()
            await server.stop()
            flip_file(first_block(directory))
            await server.start()
            connection = await connect(ConnectionSettings(urls=(server.url,), user="test"))
            (copy,) = await read_copies(connection, NAMES.ev, NAMES.prefix("ev"), silent_seconds=2)
            await connection.drain_and_close()
    assert sum(map(len, copy.missing)) == 16 - copy.messages > 0
    assert losses([copy]).startswith("the copy of server")


@pytest.mark.deep
async def test_a_backup_that_lacks_a_fact_is_kept_and_no_drill_or_restore_calls_it_complete(
    damaged: Damaged, tmp_path: Path
) -> None:
    place = open_place(str(tmp_path / "backup"), create=True)
    await take_backup(damaged.connection, NAMES, place, "2026-01-01T00:00:00Z", lambda stream, count: None)
    status, said = await told(damaged.server.url, NAMES.cluster, "drill", str(tmp_path / "backup"))
    assert (status, LOST in said) == (1, True), said
    with server_directory() as directory:
        async with NatsServer(NatsServerConfig(directory=directory, sync_interval="1s")) as fresh:
            await damaged.connection.drain_and_close()
            status, said = await told(fresh.url, NAMES.cluster, "restore", str(tmp_path / "backup"))
            assert (status, f"restored up to position {FACTS}, but the backup lacks facts" in said) == (1, True), said
            assert LOST in said


@pytest.fixture
async def world(nats_url: str) -> AsyncGenerator[BusPlace]:
    async with opened(nats_url) as found:
        yield found


def flip_file(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", ["flip", "delete", "list"])
async def test_nothing_is_dropped_from_the_log_while_a_file_of_the_archive_is_damaged(
    world: BusPlace, tmp_path: Path, damage: str
) -> None:
    log, names, place = world.bus.events, world.bus.names, open_place(str(tmp_path))
    await append(world.bus)
    archive = await archive_facts(log, place, names.cluster, 30, lambda position: None, facts_of_part=10)
    await require_archived(log, place, archive, 30)
    file = tmp_path / archive.parts[1].file
    if damage == "flip":
        flip_file(file)
        expected, message = InvalidArchive, r"facts/000000000011-000000000020\.jsonl\.gz: sha256: must be \w+, got \w+"
    elif damage == "delete":
        file.unlink()
        expected, message = PlaceTrouble, r"000000000011-000000000020"
    else:
        archive = type(archive)(cluster=archive.cluster, parts=[archive.parts[0], archive.parts[2]])
        expected, message = (
            InvalidArchive,
            r"000000000021-000000000030\.jsonl\.gz: fact 11: must be \w.*, got \w.* at 21",
        )
    with pytest.raises(expected, match=message):
        await require_archived(log, place, archive, 30)
    # What is dropped already is not read again.
    await trim(world.connection, names, 20)
    await require_archived(log, place, archive, 30)


async def test_the_command_refuses_to_trim_with_field_rule_and_value(
    world: BusPlace, nats_url: str, tmp_path: Path
) -> None:
    log, names = world.bus.events, world.bus.names
    await append(world.bus)
    events = [event async for batch in log.history(0, FACTS) for event in batch]
    archive = await archive_facts(log, open_place(str(tmp_path)), names.cluster, 30, lambda position: None)
    manager = of_the_cluster(events, 20)
    await world.bus.snapshots.save(manager)
    await world.bus.snapshots.save(msgspec.structs.replace(manager, fold="scheduler"))
    flip_file(tmp_path / archive.parts[0].file)
    words = ("bus", "archive", str(tmp_path), "--keep", "720h", "--snapshot-facts", "0", "--trim")
    status, said = await told(nats_url, names.cluster, *words)
    assert (status, "the log drops nothing" in said, "sha256: must be" in said) == (1, True, True), said
    assert (await log.head()).first_seq == 1


def fact(seq: int, restored: LogRestored | None = None) -> StoredEvent:
    event = restored or PodSpecAdded(object=Pod(metadata=ObjectMeta(name="p", namespace="d", uid="p")))
    new = sealed("log" if restored else "podspec", LOG.id if restored else "p", event)
    return StoredEvent(seq, new.ref, new.headers, new.body, 0)


def test_only_a_restore_may_leave_out_positions() -> None:
    found = Completeness(0)
    for event in (fact(1), fact(2), fact(7, LogRestored(position=2, left_out_to=6, asked="2", backup_taken_at=""))):
        found.see(event)
    found.end(7)
    found.require()
    found.see(fact(10))
    found.see(fact(14, LogRestored(position=9, left_out_to=11, asked="2", backup_taken_at="")))
    found.end(15)
    assert found.missing == [range(8, 10), range(11, 14), range(15, 16)]
    with pytest.raises(FactsMissing, match=r"positions must be consecutive, got none at 8 to 9, 11 to 13, 15: 6 facts"):
        found.require()


async def test_a_log_that_was_restored_to_an_earlier_moment_is_complete(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "backup"), create=True)
    with server_directory() as first, server_directory() as second:
        async with NatsServer(NatsServerConfig(directory=first, sync_interval="1s")) as server:
            connection = await connect(ConnectionSettings(urls=(server.url,), user="test"))
            await bootstrap(connection, streams(NAMES, replicas=1, sizes=SMALL))
            await append(bus_on(connection, NAMES), 12)
            backup = await take_backup(connection, NAMES, place, "2026-01-01T00:00:00Z", lambda stream, count: None)
            await connection.drain_and_close()
        async with NatsServer(NatsServerConfig(directory=second, sync_interval="1s")) as server:
            connection = await connect(ConnectionSettings(urls=(server.url,), user="test"))
            assert await restore_backup(connection, backup, place, lambda stream, count: None, upto=5) == 5
            log = bus_on(connection, NAMES).events
            await require_complete(log, 1, (await log.head()).last_seq)
            await connection.drain_and_close()
