"""Services that start before the log: they answer, are not ready, and wait for the server and for its streams."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from koord_descheduler.compose import compose as descheduler
from koord_descheduler.settings import DeschedulerSettings
from koord_manager.compose import compose as manager
from koord_manager.settings import ManagerSettings
from koord_projector.compose import compose as projector
from koord_projector.settings import ProjectorSettings
from koord_scheduler.compose import compose as scheduler
from koord_scheduler.settings import SchedulerSettings
from koordcore.bus.client import opening
from koordcore.bus.factory import BusSettings, bootstrap_bus
from koordcore.bus.setup.streams import StreamSizes
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.service.run import Compose
from support.running_service import running_service
from support.until import DEADLINE_SECONDS, until

pytestmark = [pytest.mark.nats]

SERVICES: list[tuple[Any, Compose[Any], list[str]]] = [
    (ManagerSettings, manager, []),
    (SchedulerSettings, scheduler, []),
    (DeschedulerSettings, descheduler, []),
    (ProjectorSettings, projector, ["--dsn"]),
]


@contextlib.asynccontextmanager
async def services(url: str, dsn: str) -> AsyncGenerator[dict[str, httpx.AsyncClient]]:
    """Every service of the log, once its HTTP server answers: its name -> client. All have to end with status 0."""
    async with contextlib.AsyncExitStack() as stack:
        clients: dict[str, httpx.AsyncClient] = {}
        for settings, compose, flags in SERVICES:
            words = [
                "--log-level=warning",
                "--cluster=late",
                f"--nats-urls={url}",
                *(f"{flag}={dsn}" for flag in flags),
            ]
            shell = await stack.enter_async_context(running_service(settings.load(words, {}), compose, complete=False))
            client = httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS)
            clients[settings.service] = await stack.enter_async_context(client)
        yield clients


async def says(client: httpx.AsyncClient, status: int, text: str) -> None:
    """Wait until the readiness page has this status and text."""

    async def is_said() -> bool:
        page = await client.get("/readyz")
        return (page.status_code, text in page.text) == (status, True)

    await until(is_said, f"{status} {text}")


@pytest.mark.deep
async def test_every_service_waits_for_a_late_server_and_late_streams_and_answers_meanwhile(
    postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opening, "FIRST_SECONDS", 0.01)
    server = NatsServer(NatsServerConfig(name="late", directory=tmp_path / "nats"))
    server.choose_ports()
    logged = ""
    try:
        async with services(server.url, postgres_dsn) as clients:
            for client in clients.values():
                await says(client, 503, f"bus: no connection to {server.url}: ")
                assert (await client.get("/healthz")).status_code == 200
                assert "process_cpu_seconds_total" in (await client.get("/metrics")).text
            logged += capfd.readouterr().err
            await server.start()
            for client in clients.values():
                await says(client, 503, "bus: waiting for the stream KOORD_EV_late; `koord bus bootstrap` creates it")
            sizes = StreamSizes(**dict.fromkeys(StreamSizes.__dataclass_fields__, 16 * 1024 * 1024))
            await bootstrap_bus(BusSettings(urls=(server.url,), cluster="late"), sizes=sizes)
            for client in clients.values():
                await says(client, 200, "ok")
    finally:
        await server.kill()
    told = [line for line in logged.splitlines() if '"bus_away"' in line]
    assert all(any(f'"logger":"{name}"' in line for line in told) for name in clients), told


async def test_a_service_that_waits_for_the_log_can_be_stopped(postgres_dsn: str) -> None:
    async with services("nats://127.0.0.1:1", postgres_dsn) as clients:
        for client in clients.values():
            await says(client, 503, "bus: ")
