"""The projector on a real Postgres: replay in batches and by COPY, and how far it is behind 6,000 facts a second.

Both ways read the first 300,000 facts of a busy month, twice in turn. 6,000 facts are 2,000 pods: submitted,
placed with its explanation, resources taken. The log is in memory, so that the figures are the projector's own; the
whole pipeline on a real server is measured by `measure_pipeline`.
"""

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from unittest import mock

from bench.measure_fold import placements
from bench.options import BenchOptions
from bench.results import Better, Result
from koord_projector.projecting import rebuilding
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.events.envelope import StoredEvent
from koordcore.service.run import collect_rarely
from support.projector.busy_month import Month
from support.projector.world import Projector, projector
from support.servers import fresh_database, run_now, running_postgres

FACTS = 300_000
EVENTS_PER_SECOND = 6_000
PACED_SECONDS = 5
STEP_SECONDS = 0.02


def measure(options: BenchOptions) -> Iterator[Result]:
    """Replay first, then load at a steady rate."""
    collect_rarely()
    with running_postgres() as server:
        yield from _replays(server.dsn, int(FACTS * options.scale))
        with fresh_database(server.dsn) as dsn:
            yield from run_now(_paced(dsn, placements().events))


def _replays(server_dsn: str, facts: int) -> Iterator[Result]:
    """Replay one log in batches, twice by COPY, and again in batches."""
    log = MemoryLog()
    for batch in Month(facts=facts).batches():
        for each in batch:
            event = each.stored(log.last_seq + 1)
            log.store(event.ref, dict(event.headers), event.body)
    ways = {facts + 1: (0.0, 0.0), 0: (0.0, 0.0)}
    for worth in (*ways, *reversed(ways)):
        with fresh_database(server_dsn) as dsn, mock.patch.object(rebuilding, "WORTH_EVENTS", worth):
            seconds, cpu = run_now(_replay(dsn, log))
        ways[worth] = (ways[worth][0] + seconds / 2, ways[worth][1] + cpu / 2)
    (batches, batches_cpu), (copied, copied_cpu) = ways.values()
    note = f"{facts:,} facts, own CPU {copied_cpu / facts * 1e6:.1f} us per fact, load {os.getloadavg()[0]:.0f}"
    yield Result(name="projector: replay in batches", value=facts / batches, unit="events/s", target=6_000)
    yield Result(
        name="projector: own CPU per event", value=batches_cpu / facts * 1e6, unit="us", target=80, better=Better.LOWER
    )
    yield Result(name="projector: replay into Postgres", value=facts / copied, unit="events/s", note=note)
    yield Result(name="projector: replay by COPY, times in batches", value=batches / copied, unit="x", target=3)


async def _replay(dsn: str, log: MemoryLog) -> tuple[float, float]:
    """Return seconds and CPU seconds of the projector with its processes."""
    async with projector(dsn, log=log) as it:
        await it.database.migrate()
        began, cpu_began = time.perf_counter(), _cpu_seconds()
        async with it.running():
            await it.caught_up()
            return time.perf_counter() - began, _cpu_seconds() - cpu_began


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


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
