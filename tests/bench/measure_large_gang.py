"""A gang of 2,000 members on 2,000 nodes: the time from its last member to the fact that all are placed.

The scheduler is a process of its own, the log a server on the same machine that syncs each append.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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


class Run(NamedTuple):
    """Seconds of one run, and the CPU seconds of the two processes meanwhile."""

    wall: float
    scheduler: float
    log: float


def _cpu(pid: int) -> float:
    """CPU seconds of a process so far, of its code and of the kernel for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _run(server: NatsServer, number: int) -> Run:
    name, server_pid = f"gang-{number}", server.pid
    assert server_pid is not None
    async with all_but_one_member(server, name) as (bus, last):
        scheduler = await start(server, name)
        try:
            head = await bus.events.head()
            placed = asyncio.create_task(_placed(bus, head.last_seq))
            before, began = (_cpu(scheduler.pid), _cpu(server_pid)), time.perf_counter()
            await append(bus, last)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await placed
            wall = time.perf_counter() - began
            return Run(wall, _cpu(scheduler.pid) - before[0], _cpu(server_pid) - before[1])
        finally:
            await end(scheduler)


def measure(options: BenchOptions) -> Iterator[Result]:
    with running_nats_server(sync_interval="always") as server:
        runs = [asyncio.run(_run(server, number)) for number in range(options.runs)]
    walls = [run.wall for run in runs]
    used = [f"{median:.2f} s" for median in (statistics.median(run[at] for run in runs) for at in (1, 2))]
    yield Result(
        name=f"gang of {MEMBERS:,} on {MEMBERS:,} nodes, last member to placed",
        value=statistics.median(walls),
        unit="s",
        target=5,
        better=Better.LOWER,
        note=f"{min(walls):.2f} to {max(walls):.2f} s; CPU of the scheduler {used[0]}, of the log server {used[1]}",
    )
