"""How long a pod waits at a steady rate far below the most: from its submission to its stored placement."""

import asyncio
import time
from dataclasses import dataclass

from bench.scheduler_perf.cluster import pod_events, running_cluster
from bench.scheduler_perf.workloads import BASIC, BY_KEY

PODS_PER_SECOND = 1000
TICK_SECONDS = 0.01
SECONDS = 20
WARM_PODS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Milliseconds from submission to stored placement, and the rate that was really submitted."""

    p50_ms: float
    p99_ms: float
    most_ms: float
    pods_per_second: float


async def steady_latency(scale: float, *, profile: bool = False) -> Latency:
    """1,000 pods a second, ten each hundredth of a second, on the nodes of the basic workload for twenty seconds.

    Each pod is an append of its own, as it is where an API server's watch tells of pods one by one. Submission is the
    moment before the client hands the pod to the log. Both clocks are this machine's.
    """
    sized = BY_KEY["basic"].at(scale)
    pods = max(PODS_PER_SECOND, int(PODS_PER_SECOND * SECONDS * scale))
    per_tick = int(PODS_PER_SECOND * TICK_SECONDS)
    async with running_cluster(profile=profile) as cluster:
        await cluster.create(sized.objects())
        warm = pod_events(BASIC(f"w-{number:06d}", number) for number in range(WARM_PODS))
        after = (await cluster.bus.events.head()).last_seq
        await cluster.create(warm)
        await cluster.placed([event.ref.id for event in warm], after=after)

        after = (await cluster.bus.events.head()).last_seq
        submitted_ns: dict[str, int] = {}
        events = pod_events(BASIC(f"m-{number:06d}", number) for number in range(pods))
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for tick, first in enumerate(range(0, pods, per_tick)):
                await asyncio.sleep(max(0.0, began + tick * TICK_SECONDS - time.monotonic()))
                for event in events[first : first + per_tick]:
                    submitted_ns[event.ref.id] = time.time_ns()
                    group.create_task(cluster.create([event]))
        rate = pods / (time.monotonic() - began)
        placements = await cluster.placed([event.ref.id for event in events], after=after)
    waits = sorted((placement.stored_at_ns - submitted_ns[placement.uid]) / 1e6 for placement in placements)
    return Latency(
        p50_ms=waits[len(waits) // 2],
        p99_ms=waits[int(len(waits) * 0.99)],
        most_ms=waits[-1],
        pods_per_second=rate,
    )
