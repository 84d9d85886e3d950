"""A nats-server on a full disk: what appends return, and how it comes back."""

import os
import signal
from pathlib import Path
from typing import Final

import pytest
from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, bus_on
from koordcore.bus.names import BusNames
from koordcore.bus.setup.bootstrap import bootstrap
from koordcore.bus.setup.streams import streams
from koordcore.bus.write.silence import refuses
from koordcore.embedded.nats import RESTART_FREE_BYTES, NatsServer, write_trouble
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.embedded.supervisor import Supervisor
from koordcore.events.envelope import StoredEvent
from koordcore.events.objects import NamespaceObserved
from koordcore.ports.eventlog import Appended, AppendOutcome, Full
from koordcore.protocol.objects import Namespace, ObjectMeta
from support.bus.bus_worlds import SMALL, sealed
from support.small_disk import MIB, SmallDisk, small_disk
from support.until import DEADLINE_SECONDS, until

pytestmark = [pytest.mark.nats, pytest.mark.slow]

NAMES: Final = BusNames("full")
LARGE: Final = "x" * 200_000


async def append(bus: Bus, number: int) -> AppendOutcome:
    """Append one large fact. The deadline is long enough to see twice that there is no answer."""
    fact = NamespaceObserved(object=Namespace(metadata=ObjectMeta(name=f"n{number}", annotations={"a": LARGE})))
    return await bus.events.append([sealed("namespace", f"n{number}", fact, cause=str(number))], deadline=10)


async def fill(disk: SmallDisk, bus: Bus) -> tuple[int, AppendOutcome]:
    """Append facts until the log takes no more. Return how many it has, and the outcome of the last append."""
    number = 0
    while isinstance(outcome := await append(bus, number), Appended):
        number += 1
        if number == 3:
            disk.fill()
    return number, outcome


async def connected(server: NatsServer) -> BusConnection:
    settings = ConnectionSettings(urls=(server.url,), user="test", reconnect_wait_seconds=0.05)
    connection = await connect(settings)
    await bootstrap(connection, streams(NAMES, replicas=1, sizes=SMALL))
    return connection


def server_on(disk: SmallDisk, log: Path) -> NatsServer:
    config = NatsServerConfig(directory=disk.path / "nats", sync_interval="1s", log_file=log)
    return NatsServer(config)


async def test_the_log_on_a_full_disk_is_full_and_goes_on_by_itself_when_there_is_space(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 24) as disk:
        server = server_on(disk, tmp_path / "nats.log")
        state_file, told = tmp_path / "stack.json", list[str]()
        async with Supervisor([server.spec()], state_file=state_file, log=told.append, look_seconds=0.2) as supervisor:
            connection = await connected(server)
            bus = bus_on(connection, NAMES)
            stored, outcome = await fill(disk, bus)
            assert isinstance(outcome, Full)
            assert "disk is full" in outcome.reason
            assert supervisor.status().processes[0].restarts == 0, "not restarted while the disk is full"

            disk.resize(RESTART_FREE_BYTES // MIB + 64)
            await supervisor.wait_ready("koord", seconds=DEADLINE_SECONDS, after_restarts=1)
            assert any("is restarted: " in sentence and "no space left" in sentence for sentence in told)
            again = await append(bus, stored)
            assert isinstance(again, Appended)
            assert again.seqs == (stored + 1,)
            assert [event.seq for event in await everything(bus)] == [*range(1, stored + 2)]
            await connection.drain_and_close()


async def everything(bus: Bus) -> list[StoredEvent]:
    head = await bus.events.head()
    return [event async for batch in bus.events.history(0, head.last_seq) for event in batch]


async def test_a_server_that_only_hangs_is_not_full(tmp_path: Path) -> None:
    server = NatsServer(NatsServerConfig(directory=tmp_path / "nats", sync_interval="1s"))
    async with server:
        connection = await connected(server)
        subject = f"{NAMES.prefix('ev')}namespace.n"

        async def is_silent() -> bool:
            return not await refuses(connection, subject, 0.1)

        assert await refuses(connection, subject, DEADLINE_SECONDS)
        assert write_trouble(server.monitor_url) == ""
        assert (await bus_on(connection, NAMES).events.head()).last_seq == 0, "the question stores nothing"
        _send(server, signal.SIGSTOP)
        try:
            await until(is_silent)
        finally:
            _send(server, signal.SIGCONT)
        await until(lambda: refuses(connection, subject, DEADLINE_SECONDS))
        await connection.drain_and_close()


def _send(server: NatsServer, number: signal.Signals) -> None:
    assert server.pid is not None
    os.kill(server.pid, number)
