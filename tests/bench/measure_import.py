"""A first start: an empty log beside an API server with 5,000 nodes and 150,000 pods that others have bound.

Log server, manager and scheduler start at once, as processes of their own, beside `bench.listed_cluster`. One more pod
waits for a node. It comes after all others, so the import is over when the scheduler has placed it.

source    issue text: 15 s, and 800 MiB per service
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from bench.kubernetes_perf.machine import cpu_seconds, most_resident_mib
from bench.listed_cluster import uid_of
from bench.measure_gateway import kubeconfig_of
from bench.options import BenchOptions
from bench.results import Better, Result
from koordcore.bus.factory import BusSettings, bootstrap_bus, open_bus
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.events.envelope import AggregateRef
from koordcore.ports.eventlog import EventLog
from support.kubernetes.services import CLUSTER, Services
from support.until import until

NODE_COUNT: Final = 5_000
POD_COUNT: Final = 150_000
SECONDS: Final = 15.0
MEBIBYTES: Final = 800.0
PATIENCE_SECONDS: Final = 300.0
QUIET_LOOKS: Final = 30
"""Looks, ten a second, without a new fact after which what follows an import is over, too."""
_MANAGER: Final = ("--leader-elect=false", "--webhooks=off", "--rest-config-qps=1000", "--rest-config-burst=2000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What a first start took.

    Attributes:
        seconds: From the start of the services to the stored placement.
        cpu: Process -> its CPU seconds until then.
        settled_cpu: Process -> its CPU seconds until no more facts came.
        mib: Process -> the most memory that it has had until then, in MiB.
        facts: Facts in the log at the end.
    """

    seconds: float
    cpu: dict[str, float]
    settled_cpu: dict[str, float]
    mib: dict[str, float]
    facts: int

    def __str__(self) -> str:
        def shown(of: dict[str, float], digits: int) -> str:
            return ", ".join(f"{name} {value:,.{digits}f}" for name, value in of.items())

        until_placed, settled = shown(self.cpu, 1), shown(self.settled_cpu, 1)
        return (
            f"{self.facts:,} facts; CPU seconds until the placement: {until_placed}; until no fact came: {settled}"
            f"; MiB at most: {shown(self.mib, 0)}"
        )


def measure(options: BenchOptions) -> Iterator[Result]:
    """Time to the first placement, and the largest memory of a service."""
    nodes, pods = max(1, round(NODE_COUNT * options.scale)), max(1, round(POD_COUNT * options.scale))
    found = asyncio.run(_first_start(nodes, pods))
    size = f"{nodes:,} nodes, {pods:,} pods"
    yield Result(
        name="first start: to the first placement",
        value=found.seconds,
        unit="s",
        target=SECONDS,
        better=Better.LOWER,
        note=f"{size}; {found}",
    )
    services = {name: mib for name, mib in found.mib.items() if name != "nats"}
    largest = max(services, key=lambda name: services[name])
    yield Result(
        name="first start: memory of a service at most",
        value=services[largest],
        unit="MiB",
        target=MEBIBYTES,
        better=Better.LOWER,
        note=f"{size}; {largest}",
    )


async def _first_start(nodes: int, pods: int) -> Import:
    with tempfile.TemporaryDirectory(prefix="koord-bench-") as folder, _listed_cluster(nodes, pods) as port:
        directory = Path(folder)
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(kubeconfig_of(port)), encoding="utf-8")
        nats = NatsServer(NatsServerConfig(name="bench", directory=directory / "nats", sync_interval="1s"))
        await nats.start()
        settings = BusSettings(urls=(nats.url,), cluster=CLUSTER)
        await bootstrap_bus(settings)
        services = Services(nats=nats, directory=directory)
        try:
            async with open_bus(settings) as bus:
                began = time.monotonic()
                await asyncio.gather(
                    services.start("manager", "koord_manager", ("--kubeconfig", str(kubeconfig), *_MANAGER)),
                    services.start("scheduler", "koord_scheduler"),
                )
                pids = {"nats": nats.pid or 0, **{name: one.pid or 0 for name, one in services.processes.items()}}
                waiting = AggregateRef("pod", uid_of(pods))

                async def is_placed() -> bool:
                    return await bus.events.last_of(waiting) is not None

                await services.until(is_placed, "the waiting pod is placed", seconds=PATIENCE_SECONDS)
                seconds, cpu = time.monotonic() - began, cpu_seconds(pids)
                facts = await _until_quiet(bus.events)
                mib = {name: most_resident_mib(pid) for name, pid in pids.items()}
                return Import(seconds=seconds, cpu=cpu, settled_cpu=cpu_seconds(pids), mib=mib, facts=facts)
        finally:
            await services.kill()
            await nats.kill()


@contextmanager
def _listed_cluster(nodes: int, pods: int) -> Generator[int]:
    """Run an API server with bound pods and one that waits, and yield its port."""
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.listed_cluster", str(nodes), str(pods), "1"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}"},
    )
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.wait()


async def _until_quiet(log: EventLog) -> int:
    """Wait until no more facts come, and return their number."""
    last, same = 0, 0

    async def is_quiet() -> bool:
        nonlocal last, same
        head = (await log.head()).last_seq
        same = same + 1 if head == last else 0
        last = head
        return same >= QUIET_LOOKS

    await until(is_quiet, "no more facts come", seconds=PATIENCE_SECONDS, every=0.1)
    return last
