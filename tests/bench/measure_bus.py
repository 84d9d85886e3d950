"""The log itself on one embedded server: appending placements, following, and what a lone placement waits.

Events are as placements have them (bodies of 250 to 400 bytes, all headers). The server syncs every second here, so
that the figures tell about our code and the server, not about the disk; the stack's own setting is measured by
`measure_pipeline`.
"""

import asyncio
import statistics
import time
import uuid
from collections.abc import Iterable

from bench.results import Better, Result
from koordcore.bus.factory import Bus, BusSettings, bootstrap_bus, open_bus
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, NewEvent, Origin
from koordcore.events.node_ledger import NodeResourcesTaken, PodOnNode
from koordcore.events.nodestate import PodsStarted
from koordcore.ports.eventlog import Appended
from support.servers import running_nats_server

PLACEMENTS = 20_000
PER_BATCH = 200
BATCHES_AT_ONCE = 4
LONE = 100


def measure() -> Iterable[Result]:
    """Rates over one connection in one process."""
    with running_nats_server() as server:
        return asyncio.run(_measure(BusSettings(urls=(server.url,), cluster="bench", user="bench")))


async def _measure(settings: BusSettings) -> list[Result]:
    await bootstrap_bus(settings)
    async with open_bus(settings) as bus:
        lone = [await _timed(bus, _placement(number)) for number in range(LONE)]
        batches = [
            [event for number in range(first, first + PER_BATCH) for event in _placement(number)]
            for first in range(LONE, LONE + PLACEMENTS, PER_BATCH)
        ]
        gate = asyncio.Semaphore(BATCHES_AT_ONCE)

        async def store(batch: list[NewEvent]) -> None:
            async with gate:
                await _timed(bus, batch)

        began = time.perf_counter()
        await asyncio.gather(*(store(batch) for batch in batches))
        append_rate = 2 * PLACEMENTS / (time.perf_counter() - began)
        head = (await bus.events.head()).last_seq
        raw_rate = await _follow_rate(bus, head, decode=False)
        decoded_rate = await _follow_rate(bus, head, decode=True)
    return [
        Result(name=f"log append, batches of {PER_BATCH} placements", value=append_rate, unit="events/s", target=8_000),
        Result(
            name="log append, one placement alone, p50",
            value=statistics.median(lone) * 1000,
            unit="ms",
            better=Better.LOWER,
        ),
        Result(name="log follow", value=raw_rate, unit="events/s", target=30_000),
        Result(name="log follow, bodies decoded", value=decoded_rate, unit="events/s", target=30_000),
    ]


async def _timed(bus: Bus, events: list[NewEvent]) -> float:
    began = time.perf_counter()
    outcome = await bus.events.append(events)
    assert isinstance(outcome, Appended), outcome
    return time.perf_counter() - began


async def _follow_rate(bus: Bus, head: int, *, decode: bool) -> float:
    began = time.perf_counter()
    count = 0
    async for batch in bus.events.history(0, head):
        count += len(batch)
        if decode:
            for stored in batch:
                CATALOGUE.read(stored)
    assert count == head
    return count / (time.perf_counter() - began)


def _placement(number: int) -> list[NewEvent]:
    """Two facts of one decision, on aggregates of their own."""
    uid = str(uuid.UUID(int=number))
    amounts = {"cpu": 1000, "memory": 1 << 30}
    pod = PodOnNode(
        uid=uid,
        namespace="default",
        name=f"pod-{number}",
        requests=amounts,
        limits=amounts,
        qos="LS",
        kube_qos="Burstable",
        priority_class="koord-prod",
    )
    origin = Origin(
        causation_id=f"cause-{number}",
        correlation_id=uid,
        actor="scheduler/bench 0.1.0",
        occurred_at="2026-01-01T00:00:00.000000Z",
        epoch=1,
        based_on=number,
        traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    )
    return CATALOGUE.seal(
        [
            Draft(AggregateRef("node", f"node-{number}"), NodeResourcesTaken(pods=[pod]), 0),
            Draft(AggregateRef("nodestate", f"node-{number}"), PodsStarted(pods=[uid] * 10), 0),
        ],
        origin,
    )
