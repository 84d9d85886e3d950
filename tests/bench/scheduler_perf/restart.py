"""A scheduler that begins again over a large cluster: how long until it decides, and what it holds in memory."""

import statistics
import time
from dataclasses import dataclass

from bench.scheduler_perf.cluster import Cluster, pod_events, running_cluster
from bench.scheduler_perf.throughput import place
from bench.scheduler_perf.workloads import BASIC, MakePod, Workload

BOUND_PODS = 150_000
PER_STEP = 10_000
"""Pods submitted at once: the log is filled at the scheduler's pace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What the restarts showed.

    seconds       median from the start of the process to the stored placement of a pod that waited for it
    resident_mib  memory of the scheduler after its first decision, median
    snapshot      position of the snapshot that it began at; 0: none, it folded the whole log
    head          end of the log
    """

    seconds: float
    resident_mib: float
    snapshot: int
    head: int

    def __str__(self) -> str:
        where = f"snapshot at {self.snapshot:,} of {self.head:,} events" if self.snapshot else "no snapshot"
        return f"{self.seconds:.2f} s, {self.resident_mib:.0f} MiB, {where}"


async def restart(workload: Workload, pod: MakePod, scale: float, runs: int, *, profile: bool = False) -> Restart:
    """Fills the workload's nodes with 150,000 placed pods, then stops and starts the scheduler `runs` times."""
    sized = workload.at(scale)
    async with running_cluster(profile=profile) as cluster:
        await cluster.create(sized.objects())
        pods = int(BOUND_PODS * scale)
        for first in range(0, pods, PER_STEP):
            numbers = range(first, min(first + PER_STEP, pods))
            await place(cluster, pod_events(pod(f"b-{number:06d}", number) for number in numbers))
        seconds: list[float] = []
        resident: list[float] = []
        for run in range(runs):
            seconds.append(await _start_to_decision(cluster, f"r-{run}"))
            resident.append(cluster.resident_mib())
        snapshots = await cluster.bus.snapshots.sequences("scheduler")
        head = (await cluster.bus.events.head()).last_seq
    return Restart(
        seconds=statistics.median(seconds),
        resident_mib=statistics.median(resident),
        snapshot=snapshots[-1] if snapshots else 0,
        head=head,
    )


async def _start_to_decision(cluster: Cluster, uid: str) -> float:
    await cluster.scheduler.stop()
    after = (await cluster.bus.events.head()).last_seq
    await cluster.create(pod_events([BASIC(uid, 0)]))
    began_ns = time.time_ns()
    cluster.scheduler.launch()
    [placement] = await cluster.placed([uid], after=after)
    await cluster.scheduler.wait_ready()
    return (placement.stored_at_ns - began_ns) / 1e9
