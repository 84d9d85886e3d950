"""The projector on a real Postgres: CPU per event, replay rate, and how far it is behind 6,000 facts a second.

6,000 facts are 2,000 pods: submitted, placed with its explanation, resources taken. The log is in memory, so that the
figures are the projector's own; the whole pipeline on a real server is measured by `measure_pipeline`.
"""

import asyncio
import time
from collections.abc import Iterator

from bench.measure_fold import placements
from bench.results import Better, Result
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.events.envelope import StoredEvent
from support.projector.world import Projector, projector
from support.servers import fresh_database, run_now, running_postgres

EVENTS_PER_SECOND = 6_000
PACED_SECONDS = 5
STEP_SECONDS = 0.02


def measure() -> Iterator[Result]:
    """Replay first, then load at a steady rate."""
    events = placements().events
    with running_postgres() as server:
        with fresh_database(server.dsn) as dsn:
            yield from run_now(_replay(dsn, events))
        with fresh_database(server.dsn) as dsn:
            yield from run_now(_paced(dsn, events))


async def _replay(dsn: str, events: list[StoredEvent]) -> list[Result]:
    async with projector(dsn) as it:
        it.write(events)
        began, cpu_began = time.perf_counter(), time.process_time()
        async with it.running():
            await it.caught_up()
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    count = len(events)
    return [
        Result(name="projector: replay into Postgres", value=count / seconds, unit="events/s", target=6_000),
        Result(name="projector: own CPU per event", value=cpu / count * 1e6, unit="us", target=80, better=Better.LOWER),
    ]


async def _paced(dsn: str, events: list[StoredEvent]) -> list[Result]:
    async with projector(dsn) as it, it.running():
        lags = await _feed(it, it.log, events[: EVENTS_PER_SECOND * PACED_SECONDS])
        await it.caught_up()
    lags.sort()
    return [
        Result(
            name="projector: lag at 6,000 events/s, p50",
            value=lags[len(lags) // 2],
            unit="s",
            target=1.0,
            better=Better.LOWER,
        ),
        Result(
            name="projector: lag at 6,000 events/s, worst", value=lags[-1], unit="s", target=1.0, better=Better.LOWER
        ),
    ]


async def _feed(it: Projector, log: MemoryLog, events: list[StoredEvent]) -> list[float]:
    """Appends at the rate; how long each step's last fact took to be committed, seconds."""
    lags: list[float] = []
    waiting: list[tuple[int, float]] = []
    began, written = time.perf_counter(), 0
    while written < len(events) or waiting:
        now = time.perf_counter()
        due = min(len(events), int((now - began) * EVENTS_PER_SECOND))
        if due > written:
            for event in events[written:due]:
                log.store(event.ref, dict(event.headers), event.body)
            written = due
            waiting.append((log.last_seq, now))
        while waiting and waiting[0][0] <= it.progress.position:
            lags.append(now - waiting.pop(0)[1])
        await asyncio.sleep(STEP_SECONDS)
    return lags
