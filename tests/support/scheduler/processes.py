"""Processes of the scheduler on a real server, each cluster with streams of its own."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence

from koordcore.bus.factory import Bus, BusSettings, bootstrap_bus, open_bus
from koordcore.bus.setup.streams import StreamSizes
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin
from koordcore.events.objects import NodeSpecAdded
from koordcore.ports.eventlog import Appended
from koordcore.protocol.objects import Node
from support.scheduler.scheduling import node
from support.until import DEADLINE_SECONDS

MIB = 1024 * 1024
SMALL = StreamSizes(
    ev=64 * MIB,
    obs=MIB,
    cmd=MIB,
    explanations=8 * MIB,
    dlq=MIB,
    adv=MIB,
    desired=MIB,
    leader=MIB,
    snapshots=MIB,
    saved=8 * MIB,
)
LEASE = ("--lease-duration=3s", "--lease-renew-deadline=2s", "--lease-retry=300ms")


@contextlib.asynccontextmanager
async def cluster(server: NatsServer, name: str, nodes: Sequence[Node] = ()) -> AsyncGenerator[Bus]:
    """Streams of a cluster of its own, with the nodes; without nodes, three of 10 cores."""
    settings = BusSettings(urls=(server.url,), cluster=name)
    await bootstrap_bus(settings, sizes=SMALL)
    async with open_bus(settings) as bus:
        for each in nodes or [node(f"n{number}", cpu="10") for number in range(3)]:
            await say(bus, "nodespec", each.metadata.name, NodeSpecAdded(object=each))
        yield bus


async def say(bus: Bus, kind: str, id_: str, event: Event) -> None:
    origin = Origin(
        causation_id=f"{kind}/{id_}", correlation_id=id_, actor="test", occurred_at="2026-01-01T00:00:00.000000Z"
    )
    outcome = await bus.events.append(CATALOGUE.seal([Draft(AggregateRef(kind, id_), event, 0)], origin))
    assert isinstance(outcome, Appended)


async def start(server: NatsServer, name: str, *flags: str, failpoint: str = "") -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "koord_scheduler", f"--nats-urls={server.url}", f"--cluster={name}", *flags),
        env={**os.environ, "KOORD_FAILPOINT": failpoint},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    # Until then a signal would not be handled; a process that was killed before it was ready ends its output.
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (line := await process.stderr.readline()) and b"service_ready" not in line:
            pass
    return process


def send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a process; no-op if it has ended.

    `Process.send_signal` first asks whether the process has ended. If it has just ended, this takes its status away
    from the thread of asyncio that waits for it. Then the status is 255, and asyncio logs "Unknown child process pid".
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def end(process: asyncio.subprocess.Process) -> int:
    send(process, signal.SIGTERM)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await process.communicate()
    assert process.returncode is not None
    return process.returncode
