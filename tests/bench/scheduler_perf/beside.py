"""What goes on beside the measured pods: pods that fit nowhere, preemptors with the end of their victims, load reports.

Each is a coroutine function that runs until it is cancelled; `started` is set once pods may be measured.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from itertools import count

from bench.scheduler_perf.cluster import Cluster, Placement, pod_events
from bench.scheduler_perf.objects import PodTemplate, node_name
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Origin, name_token
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.objects import PodSpecDeleted
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage

PER_SECOND = 5
HIGH_PRIORITY = 10
REPORT_SECONDS = 10
"""Between two reports of one node."""
TURNS_PER_SECOND = 10
MIB = 1 << 20

Beside = Callable[[Cluster, int, Sequence[Placement], asyncio.Event], Coroutine[None, None, None]]
"""(cluster, nodes, placements of the initial pods, started) -> runs until cancelled."""


async def large_pods(cluster: Cluster, _nodes: int, _initial: Sequence[Placement], started: asyncio.Event) -> None:
    """Pods of a high priority that ask for 9 cpu of nodes with 4."""
    await _submit(cluster, PodTemplate(cpu="9", priority=HIGH_PRIORITY), "large", started)


async def preemptors(cluster: Cluster, _nodes: int, _initial: Sequence[Placement], started: asyncio.Event) -> None:
    """Pods of a high priority that ask for 3 cpu where 400m are free; what is evicted for them is deleted at once."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_delete_evicted(cluster))
        group.create_task(_submit(cluster, PodTemplate(cpu="3", priority=HIGH_PRIORITY), "preemptor", started))


async def _submit(cluster: Cluster, template: PodTemplate, name: str, started: asyncio.Event) -> None:
    for number in count():
        await cluster.create(pod_events([template.pod(f"{name}-{number:06d}")]))
        started.set()
        await asyncio.sleep(1 / PER_SECOND)


async def _delete_evicted(cluster: Cluster) -> None:
    """What the gateway and the API server do: a pod whose eviction is requested is gone."""
    async for batch in cluster.bus.events.follow(0, kinds=("eviction",)):
        for stored in batch:
            request = CATALOGUE.read(stored)
            if isinstance(request, PodEvictionRequested):
                gone = PodSpecDeleted(namespace=request.namespace, name=request.name)
                await cluster.change(AggregateRef("podspec", stored.ref.id), gone)


async def load_reports(cluster: Cluster, nodes: int, initial: Sequence[Placement], started: asyncio.Event) -> None:
    """A report of every node each ten seconds, usage wandering between a tenth and a half of the node."""
    pods_of: dict[str, list[str]] = {node_name(number): [] for number in range(nodes)}
    for placement in initial:
        pods_of[placement.node].append(placement.uid)
    names = list(pods_of)
    shares = {name: random.uniform(0.1, 0.5) for name in names}
    turns = REPORT_SECONDS * TURNS_PER_SECOND
    for name in names:
        await _report(cluster, name, shares[name], pods_of[name])
    started.set()
    for turn in count():
        for name in names[turn % turns :: turns]:
            shares[name] = min(0.5, max(0.1, shares[name] + random.uniform(-0.1, 0.1)))
            await _report(cluster, name, shares[name], pods_of[name])
        await asyncio.sleep(1 / TURNS_PER_SECOND)


async def _report(cluster: Cluster, name: str, share: float, uids: Sequence[str]) -> None:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    used = Usage(int(4000 * share), int(32 * 1024 * share) * MIB)
    pods = [
        PodUsage(
            uid=uid,
            namespace="default",
            name=uid,
            priority_class="koord-prod",
            qos="LS",
            usage=Usage(int(100 * share), 100 * MIB),
        )
        for uid in uids
    ]
    report = NodeUsageReported(
        updated_at=now,
        report_interval_seconds=REPORT_SECONDS,
        aggregate_duration_seconds=300,
        node_usage=used,
        system_usage=Usage(200, 512 * MIB),
        pods=pods,
    )
    origin = Origin(
        causation_id=f"report/{name}/{now}",
        correlation_id=name,
        actor=f"agent/{name}",
        occurred_at=now,
    )
    await cluster.bus.observations.publish(AggregateRef("node", name_token(name)), report, origin)


async def ended(task: asyncio.Task[None]) -> None:
    """Ends a task that runs beside; raises what it failed with."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
