"""One run of one workload: placements a second, as the log stored them."""

import asyncio
import time
from dataclasses import dataclass

from bench.scheduler_perf.beside import ended
from bench.scheduler_perf.checks import Run
from bench.scheduler_perf.cluster import Cluster, Effort, Placement, running_cluster
from bench.scheduler_perf.workloads import Sized
from koordcore.events.envelope import NewEvent

BESIDE_READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What one run showed.

    pods_per_second       from the first submission of a measured pod to the last stored placement
    between_placements    the same from the first stored placement on: higher, as the first ones come many at once
    cpu_ms, log_cpu_ms    CPU time of the scheduler's and the log server's process per measured pod
    deciding_ms           time of one decision, by the scheduler's own histogram
    resident_mib          memory of the scheduler at the end
    """

    pods_per_second: float
    between_placements: float
    cpu_ms: float
    log_cpu_ms: float
    deciding_ms: float
    resident_mib: float

    def __str__(self) -> str:
        return (
            f"{self.cpu_ms:.3f} ms CPU a pod (log server {self.log_cpu_ms:.3f}), deciding {self.deciding_ms:.3f} ms, "
            f"{self.between_placements:,.0f} pods/s from the first placement on, {self.resident_mib:.0f} MiB"
        )


async def run_once(sized: Sized, *, profile: bool = False) -> Throughput:
    """Sets a cluster up, places the initial pods, measures the others.

    raises    NotPlaced, NotWhatItIsAbout
    """
    async with running_cluster(profile=profile) as cluster:
        await cluster.create(sized.objects())
        initial = await place(cluster, sized.initial_pods())
        measured_pods = sized.measured_pods()
        beside = await _begin_beside(cluster, sized, initial)
        after = (await cluster.bus.events.head()).last_seq
        before = await cluster.effort()
        began_ns = time.time_ns()
        placing = asyncio.create_task(cluster.placed([event.ref.id for event in measured_pods], after=after))
        await cluster.create(measured_pods)
        measured = await placing
        spent = await cluster.effort()
        found = figures(began_ns, measured, before, spent, cluster.resident_mib())
        await sized.workload.check(Run(cluster=cluster, initial=initial, measured=measured))
        if beside is not None:
            await ended(beside)
        return found


async def place(cluster: Cluster, pods: list[NewEvent]) -> list[Placement]:
    """Submits pods and waits until all are placed."""
    if not pods:
        return []
    after = (await cluster.bus.events.head()).last_seq
    await cluster.create(pods)
    return await cluster.placed([event.ref.id for event in pods], after=after)


async def _begin_beside(cluster: Cluster, sized: Sized, initial: list[Placement]) -> asyncio.Task[None] | None:
    beside = sized.workload.beside
    if beside is None:
        return None
    started = asyncio.Event()
    task = asyncio.create_task(beside(cluster, sized.nodes, initial, started))
    async with asyncio.timeout(BESIDE_READY_SECONDS):
        await started.wait()
    return task


def figures(began_ns: int, measured: list[Placement], before: Effort, spent: Effort, resident_mib: float) -> Throughput:
    """What the placements and the effort between two moments come to."""
    pods = len(measured)
    first = min(placement.stored_at_ns for placement in measured)
    last = max(placement.stored_at_ns for placement in measured)
    decided = spent.decided - before.decided
    return Throughput(
        pods_per_second=pods / ((last - began_ns) / 1e9),
        between_placements=pods / max(1e-3, (last - first) / 1e9),
        cpu_ms=1000 * (spent.cpu_seconds - before.cpu_seconds - before.asking_seconds) / pods,
        log_cpu_ms=1000 * (spent.log_cpu_seconds - before.log_cpu_seconds) / pods,
        deciding_ms=1000 * (spent.deciding_seconds - before.deciding_seconds) / max(1.0, decided),
        resident_mib=resident_mib,
    )
