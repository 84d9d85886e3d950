"""The whole projector as a service over memory streams and a real Postgres: what API and browser tests talk to."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
from koord_projector.compose import assemble
from koord_projector.settings import ProjectorSettings
from koordcore.bus.factory import Bus, memory_bus
from koordcore.bus.memory import MemoryLog
from koordcore.service.run import Shell, serve
from synthetic_cluster import SyntheticCluster


async def bus_with(cluster: SyntheticCluster) -> tuple[Bus, MemoryLog]:
    """Streams that hold everything that a synthetic cluster wrote."""
    log = MemoryLog()
    for event in cluster.facts:
        log.store(event.ref, dict(event.headers), event.body)
    bus = memory_bus("demo", log=log)
    for message in cluster.reports:
        await bus.observations.publish(message.ref, message.event, message.origin)
    for message in cluster.verdicts:
        await bus.verdicts.publish(message.ref, message.event, message.origin)
    return bus, log


@asynccontextmanager
async def serving(dsn: str, bus: Bus) -> AsyncGenerator[str]:
    """A projector that has caught up; yields its base URL."""
    shells: list[Shell[ProjectorSettings]] = []

    async def compose(shell: Shell[ProjectorSettings]) -> None:
        shells.append(shell)
        assemble(shell, bus)

    settings = ProjectorSettings.model_validate({"dsn": dsn, "cluster": "demo", "log_level": "warning"})
    running = asyncio.create_task(serve(settings, compose, handle_signals=False))
    try:
        async with asyncio.timeout(60):
            await _caught_up(shells, bus, running)
        yield shells[0].http.url
    finally:
        if shells:
            shells[0].service.stop("the test is over")
        await running


async def _caught_up(shells: list[Shell[ProjectorSettings]], bus: Bus, running: "asyncio.Task[int]") -> None:
    facts = (await bus.events.head()).last_seq
    reports, verdicts = (await bus.observations.head()).last_seq, (await bus.verdicts.head()).last_seq
    async with httpx.AsyncClient() as client:
        while not running.done():
            await asyncio.sleep(0.02)
            if not shells or not shells[0].health.is_ready():
                continue
            status = (await client.get(f"{shells[0].http.url}/api/status")).json()
            if (status["position"], status["observations"], status["verdicts"]) == (facts, reports, verdicts):
                return
    raise AssertionError(f"the projector ended with status {running.result()}")
