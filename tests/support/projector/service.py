"""The whole projector as a service over memory streams and a real Postgres: what API and browser tests talk to."""

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import httpx
from koord_projector.compose import assemble
from koord_projector.settings import ProjectorSettings
from koordcore.bus.adapters.memory import MemoryLog, MemoryObservationLog
from koordcore.bus.factory import Bus, memory_bus
from koordcore.service.run import Shell
from support.projector.synthetic_cluster import SyntheticCluster
from support.projector.world import stored_when_told
from support.running_service import running_service
from support.until import DEADLINE_SECONDS, until


async def bus_with(cluster: SyntheticCluster) -> tuple[Bus, MemoryLog]:
    """Streams that hold everything that a synthetic cluster wrote."""
    log = MemoryLog()
    stored_when_told(log)
    for event in cluster.facts:
        log.store(event.ref, dict(event.headers), event.body)
    bus = memory_bus("demo", log=log)
    for stream in (bus.observations, bus.explanations):
        assert isinstance(stream, MemoryObservationLog)
        stored_when_told(stream.log)
    for message in cluster.reports:
        await bus.observations.publish(message.ref, message.event, message.origin)
    for message in cluster.explanations:
        await bus.explanations.publish(message.ref, message.event, message.origin)
    return bus, log


@asynccontextmanager
async def serving(
    dsn: str, bus: Bus, *, token: str = "", waits: bool = True, **settings: object
) -> AsyncGenerator[str]:
    """A projector that has caught up; yields its base URL. `token` is needed where access is closed.

    `waits`: whether to wait until it has caught up, which it never does on another log than that of its tables.

    Its archive keeps the reports of any past day, because the days of tests are fixed.
    """

    async def compose(shell: Shell[ProjectorSettings]) -> None:
        assemble(shell, bus)

    made = ProjectorSettings.model_validate(
        {"dsn": dsn, "cluster": "demo", "log_level": "warning", "archive_days": 36_500, **settings}
    )
    async with running_service(made, compose) as shell:
        if waits:
            await _caught_up(shell, bus, token)
        yield shell.http.url


async def _caught_up(shell: Shell[ProjectorSettings], bus: Bus, token: str) -> None:
    facts = (await bus.events.head()).last_seq
    reports, explanations = (await bus.observations.head()).last_seq, (await bus.explanations.head()).last_seq
    async with httpx.AsyncClient(
        headers={"authorization": f"Bearer {token}"} if token else {}, timeout=DEADLINE_SECONDS
    ) as client:

        async def has_caught_up() -> bool:
            if not shell.health.is_ready():
                return False
            status = (await client.get(f"{shell.http.url}/api/status")).json()
            found = (status["position"], status["observations"], status["explanations"])
            return found == (facts, reports, explanations)

        await until(has_caught_up)


@contextmanager
def served_in_a_thread(dsn: str, cluster: SyntheticCluster, *, token: str = "", **settings: object) -> Generator[str]:
    """A caught-up projector in a thread with a loop of its own, for tests without one; yields its base URL."""
    begun: concurrent.futures.Future[str] = concurrent.futures.Future()
    over = threading.Event()

    async def live() -> None:
        bus, _ = await bus_with(cluster)
        async with serving(dsn, bus, token=token, waits=True, **settings) as url:
            begun.set_result(url)
            await asyncio.to_thread(over.wait)

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            if not begun.done():
                begun.set_exception(error)
            raise

    thread = threading.Thread(target=run, name="projector")
    thread.start()
    try:
        yield begun.result(DEADLINE_SECONDS)
    finally:
        over.set()
        thread.join(DEADLINE_SECONDS)
