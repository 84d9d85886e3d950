"""Times on the API server as users see them: submitted to bound at a steady rate, shipped limits, and a dead leader.

Here the harness watches the pods, because it needs the moment at which each of them gets a node.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec
from bench.kubernetes_perf.api import PODS
from bench.kubernetes_perf.machine import Machine
from bench.kubernetes_perf.objects import encoded, plain, small_node
from bench.kubernetes_perf.sides import koordstream
from bench.kubernetes_perf.throughput import WARM_UP, clear_all, place
from support.until import until

PER_SECOND: Final = 100
STEADY_SECONDS: Final = 20
STEADY_NODES: Final = 1_000
SHIPPED_NODES: Final = 200
SHIPPED_PODS: Final = 2_000
PATIENCE_SECONDS: Final = 240.0
SHORT_LEASE: Final = (
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
)


class _Meta(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Line(msgspec.Struct):
    object: _Pod


@dataclass
class Bound:
    """When the harness saw pods get a node.

    Attributes:
        at: Pod -> time of the monotonic clock in seconds.
    """

    at: dict[str, float] = field(default_factory=dict[str, float])

    async def follow(self, machine: Machine) -> None:
        """Watch the pods until cancelled."""
        read = msgspec.json.Decoder(_Line)
        async for lines in machine.api.watch(PODS):
            now = time.monotonic()
            for line in filter(None, lines):
                pod = read.decode(line).object
                if pod.spec.node_name:
                    self.at.setdefault(pod.metadata.name, now)


@asynccontextmanager
async def watching(machine: Machine) -> AsyncGenerator[Bound]:
    """Watch the pods."""
    bound = Bound()
    following = asyncio.create_task(bound.follow(machine))
    try:
        yield bound
    finally:
        following.cancel()
        await asyncio.wait({following})


async def steady_latencies(machine: Machine, scale: float) -> list[float]:
    """Submit 100 pods each second, and return the milliseconds from each submission to its binding, sorted."""
    await _prepare(machine, round(STEADY_NODES * scale))
    async with koordstream(machine) as side, watching(machine) as bound:
        await place(machine, side, [plain(f"steady-warm-{number}", number) for number in range(WARM_UP)])
        submitted: dict[str, float] = {}
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(max(1, round(PER_SECOND * STEADY_SECONDS * scale))):
                await asyncio.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
                name = f"steady-{number}"
                submitted[name] = time.monotonic()
                document = plain(name, number, schedulerName=side.scheduler)
                group.create_task(machine.api.ask("POST", PODS, encoded(document)))
        await until(lambda: submitted.keys() <= bound.at.keys(), "all pods are bound", seconds=PATIENCE_SECONDS)
        return sorted(1000 * (bound.at[name] - at) for name, at in submitted.items())


async def shipped_seconds(machine: Machine, scale: float) -> float:
    """Return the seconds in which 2,000 pods on 200 nodes are bound with the limits of the Deployment."""
    nodes = max(1, round(SHIPPED_NODES * scale))
    await _prepare(machine, nodes)
    async with koordstream(machine, flags=()) as side:
        await place(machine, side, [plain(f"shipped-warm-{number}", number) for number in range(WARM_UP)])
        pods = [plain(f"shipped-{number}", number) for number in range(round(SHIPPED_PODS * scale))]
        began = time.monotonic()
        await place(machine, side, pods)
        return time.monotonic() - began


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """What a dead leader cost.

    Attributes:
        seconds: From its end to the first binding of its successor.
        lead_seconds: From its end until the successor holds the Lease.
    """

    seconds: float
    lead_seconds: float


async def failover(machine: Machine, scale: float, flags: tuple[str, ...] = ()) -> Failover:
    """Kill the leader of two managers, and return the time to the next binding.

    Args:
        machine: The API server.
        scale: Factor of the number of nodes.
        flags: Flags of the managers besides those of the Deployment.
    """
    await _prepare(machine, round(STEADY_NODES * scale))
    async with koordstream(machine, flags=flags, managers=2) as side, watching(machine) as bound:
        installed = side.installed
        assert installed is not None, "it is Koordstream"
        await place(machine, side, [plain(f"failover-warm-{number}", number) for number in range(WARM_UP)])
        died = time.monotonic()
        await installed.processes["manager-0"].kill()
        document = plain("failover", 0, schedulerName=side.scheduler)
        await machine.api.ask("POST", PODS, encoded(document))
        await until(lambda: installed.leader() == "manager-1", "the other manager leads", every=0.1)
        leads = time.monotonic()
        await until(lambda: "failover" in bound.at, "the pod is bound")
        return Failover(seconds=bound.at["failover"] - died, lead_seconds=leads - died)


async def _prepare(machine: Machine, nodes: int) -> None:
    await clear_all(machine)
    await machine.register([small_node(number) for number in range(max(1, nodes))])


def percentile(values: list[float], share: float) -> float:
    """Return a percentile of sorted values; `share` is between 0 and 1."""
    return values[min(len(values) - 1, int(share * len(values)))]


def median(values: list[float]) -> float:
    """Return the median."""
    return statistics.median(values)
