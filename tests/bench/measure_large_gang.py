"""A gang of 2,000 members on 2,000 nodes: the time from its last member to the fact that all are placed.

The scheduler is a process of its own, the log a server on the same machine that syncs each append.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator

from bench.options import BenchOptions
from bench.results import Better, Result
from koordcore.bus.factory import Bus
from koordcore.embedded.nats import NatsServer
from koordcore.events.gang import GangPlaced
from support.scheduler.large_gang import MEMBERS, all_but_one_member, append
from support.scheduler.processes import end, start
from support.servers import running_nats_server

PATIENCE_SECONDS = 120.0


async def _placed(bus: Bus, after: int) -> None:
    async for batch in bus.events.follow(after, kinds=("gang",)):
        if any(stored.type == GangPlaced.__name__ for stored in batch):
            return


async def _seconds(server: NatsServer, run: int) -> float:
    name = f"gang-{run}"
    async with all_but_one_member(server, name) as (bus, last):
        scheduler = await start(server, name)
        try:
            head = await bus.events.head()
            placed = asyncio.create_task(_placed(bus, head.last_seq))
            began = time.perf_counter()
            await append(bus, last)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await placed
            return time.perf_counter() - began
        finally:
            await end(scheduler)


def measure(options: BenchOptions) -> Iterator[Result]:
    with running_nats_server(sync_interval="always") as server:
        seconds = [asyncio.run(_seconds(server, run)) for run in range(options.runs)]
    yield Result(
        name=f"gang of {MEMBERS:,} on {MEMBERS:,} nodes, last member to placed",
        value=statistics.median(seconds),
        unit="s",
        target=5,
        better=Better.LOWER,
        note=f"{min(seconds):.2f} to {max(seconds):.2f} s",
    )
