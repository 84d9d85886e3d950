"""What keeps an agent and a CRI proxy connected: it tells why it cannot connect, and goes on until it can."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from koordcore.bus.factory import Bus
from koordcore.bus.setup.tls_files import ensure_tls_files
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig, NatsTls, ensure_user_key
from koordcore.embedded.ports import LOOPBACK, free_ports
from koordcore.service import bus as service_bus
from koordcore.service.settings import ServiceSettings
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.metrics import Metrics
from support.until import until

pytestmark = pytest.mark.nats


class AgentSettings(ServiceSettings):
    """Settings of a service, without those of the agent."""

    service: ClassVar[str] = "agent"


class Held:
    """A call of `hold_bus` and what it has told.

    Attributes:
        reasons: Reasons of the failed attempts.
        bus: Adapters of the connection, once there is one.
    """

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.bus: list[Bus] = []

    async def says(self, part: str) -> None:
        """Wait until the last attempt has failed with a reason that contains `part`."""
        await until(lambda: bool(self.reasons) and part in self.reasons[-1])

    async def connects(self) -> None:
        """Wait for the connection."""
        await until(lambda: bool(self.bus))


@asynccontextmanager
async def holding(**settings: object) -> AsyncGenerator[Held]:
    held = Held()
    call = service_bus.hold_bus(
        AgentSettings.model_validate(settings),
        held.bus.append,
        held.reasons.append,
        metrics=Metrics("agent").bus,
        logger=logger("t"),
    )
    task = asyncio.create_task(call)
    try:
        yield held
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWAY_SECONDS", "REFUSED_SECONDS"):
        monkeypatch.setattr(service_bus, name, 0.02)


async def as_a_server(version: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speak the protocol of a server of this version."""
    hello = {"version": version, "server_id": "S", "proto": 1, "headers": True, "max_payload": 1 << 20}
    writer.write(b"INFO " + json.dumps(hello).encode() + b"\r\n")
    while line := await reader.readline():
        if line.startswith(b"PING"):
            writer.write(b"PONG\r\n")
    writer.close()


async def test_a_server_that_is_too_old_is_named_and_its_upgrade_is_noticed(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    old = await asyncio.start_server(partial(as_a_server, "2.9.0"), LOOPBACK, port)
    async with holding(nats_urls=(f"nats://{LOOPBACK}:{port}",)) as held:
        await held.says("nats-server 2.9.0: its atomic batches do not suit")
        old.close()
        await old.wait_closed()
        async with NatsServer(NatsServerConfig(directory=tmp_path, port=port, sync_interval="1s")):
            await held.connects()


@pytest.mark.deep
async def test_a_connection_that_the_server_closes_for_good_is_followed_by_another() -> None:
    clients: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.append(writer)
        await as_a_server("2.14.0", reader, writer)

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    async with holding(nats_urls=(f"nats://{LOOPBACK}:{server.sockets[0].getsockname()[1]}",)) as held:
        await held.connects()
        clients[0].write(b"-ERR 'User Authentication Revoked'\r\n")
        await until(lambda: len(held.bus) == 2)
        assert held.reasons == ["the connection was closed: nats: user authentication revoked"]
        assert held.bus[1].connection is not None
        assert held.bus[1].connection.is_connected
    server.close()


async def test_a_certificate_that_is_missing_or_broken_is_named_until_it_is_there(tmp_path: Path) -> None:
    files = ensure_tls_files(tmp_path / "ours", now=datetime.now(UTC))
    others = ensure_tls_files(tmp_path / "others", now=datetime.now(UTC))
    ca, seed = tmp_path / "ca.crt", tmp_path / "nats.seed"
    tls = NatsTls(certificate=files.server_certificate, key=files.server_key, ca=files.ca)
    async with (
        NatsServer(NatsServerConfig(directory=tmp_path / "nats", sync_interval="1s", tls=tls)) as server,
        holding(nats_urls=(server.url,), nats_ca_file=ca, nats_seed_file=seed) as held,
    ):
        steps: list[tuple[Callable[[], object], str]] = [
            (lambda: None, f"nkey_seed_file: [Errno 2] No such file or directory: '{seed}'"),
            (lambda: seed.write_text("SUABC"), f"nkey_seed_file: {seed}: its checksum is wrong"),
            (lambda: seed.write_text(ensure_user_key(tmp_path / "key").seed_file.read_text()), f"{ca}: [Errno 2]"),
            (lambda: ca.write_text("no certificate"), f"{ca}: [X509"),
            (lambda: ca.write_bytes(others.ca.read_bytes()), "certificate verify failed"),
        ]
        for step, reason in steps:
            step()
            await held.says(reason)
        ca.write_bytes(files.ca.read_bytes())
        await held.connects()
