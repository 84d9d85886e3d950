"""What the descheduler costs and achieves: a round over a large cluster, a restart with jobs, and a simulated day.

The day is small by default, because LowNodeUtilization takes most of its time: `--scale 25` plays it with 1,000 nodes.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.options import BenchOptions
from bench.results import Better, Result
from koord_descheduler.domain.config.loading import load
from koord_descheduler.domain.config.profiles import build_profiles, eviction_limits
from koord_descheduler.domain.framework.eviction import EvictionLimiter
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.framework.round import RoundOutcome, run_round
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeMetric, NodeView
from koord_descheduler.domain.view.pods import PodView
from support.descheduler.jobs import configuration, job
from support.descheduler.simulated_day import LOAD, UPSTREAM, new_day, run_day
from support.descheduler.views import node_view_from_json, pod_view_from_json
from support.descheduler.world import World
from support.until import until

NODES, PODS_PER_NODE = 5_000, 30
DAY_NODES = 40
ROUNDS = 5
JOBS = 1_000
GIB = 1 << 30
CONFIGURATION = b"""
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
profiles:
- name: bench
  plugins:
    deschedule:
      enabled:
      - {name: PodLifeTime}
      - {name: RemoveFailedPods}
      - {name: RemovePodsHavingTooManyRestarts}
      - {name: RemovePodsViolatingNodeTaints}
    balance: {enabled: [{name: RemoveDuplicates}, {name: LowNodeLoad}]}
    evict: {enabled: [{name: DefaultEvictor}], disabled: [{name: "*"}]}
    filter: {enabled: [{name: DefaultEvictor}], disabled: [{name: "*"}]}
  pluginConfig:
  - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 86400}}
  - {name: RemovePodsHavingTooManyRestarts, args: {podRestartThreshold: 100}}
  - name: LowNodeLoad
    args:
      lowThresholds: {cpu: 45, memory: 60}
      highThresholds: {cpu: 70, memory: 90}
      anomalyCondition: {consecutiveAbnormalities: 1}
"""


def measure(options: BenchOptions) -> Iterator[Result]:
    """Measure a round with six plugins, a restart with jobs in flight, and a simulated day."""
    nodes = max(10, int(NODES * min(options.scale, 1.0)))
    yield from _round(nodes)
    yield from _views(nodes)
    yield from asyncio.run(_restart(max(10, int(JOBS * min(options.scale, 1.0)))))
    yield from _day(max(4, int(DAY_NODES * options.scale)))


def _round(nodes: int) -> Iterator[Result]:
    cluster = _cluster(nodes)
    configuration = load(CONFIGURATION, BUILT_IN)
    seconds, cpu = list[float](), list[float]()
    evictions, pauses = 0, list[float]()
    for number in range(ROUNDS):
        profiles = build_profiles(configuration, BUILT_IN, SharedState())
        fresh = replace(cluster, now=cluster.now + number)
        began, worked = time.perf_counter(), time.process_time()
        limiter = EvictionLimiter(eviction_limits(configuration))
        outcome, pause = asyncio.run(_beside_other_work(partial(run_round, profiles, fresh, limiter)))
        pauses.append(pause)
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - worked)
        assert not outcome.faults, outcome.faults
        evictions = len(outcome.attempts)
    yield Result(
        name=f"one round with six plugins over {nodes:,} nodes, {nodes * PODS_PER_NODE:,} pods",
        value=sorted(seconds)[len(seconds) // 2],
        unit="s",
        target=2.0,
        better=Better.LOWER,
        note=f"slowest of {ROUNDS}: {max(seconds):.2f} s; least CPU time {min(cpu):.2f} s; {evictions} evictions",
    )
    yield Result(
        name="longest pause of other work during such a round",
        value=1000 * min(pauses),
        unit="ms",
        target=50.0,
        better=Better.LOWER,
        note=f"best of {ROUNDS} rounds, because other processes pause it, too; worst {1000 * max(pauses):.0f} ms",
    )


async def _beside_other_work(work: Callable[[], RoundOutcome]) -> tuple[RoundOutcome, float]:
    """The result of a round that runs in a thread, as in the service, and the longest pause of the event loop."""
    longest, last = 0.0, time.perf_counter()
    running = asyncio.ensure_future(asyncio.to_thread(work))
    while not running.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return running.result(), longest


def _cluster(count: int) -> ClusterView:
    """Nodes of which one in twenty is hot, and half are cool."""
    nodes, pods, metrics = list[NodeView](), list[PodView](), dict[str, NodeMetric]()
    for row in range(count):
        name = f"n{row:05}"
        allocatable = {"cpu": "32", "memory": "128Gi", "pods": "110"}
        nodes.append(node_view_from_json({"metadata": {"name": name}, "status": {"allocatable": allocatable}}))
        each = 800 if row % 20 == 0 else 300 if row % 2 else 600
        used: dict[str, dict[str, int]] = {}
        for slot in range(PODS_PER_NODE):
            uid = f"p{row:05}-{slot}"
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": uid, "uid": f"rs-{uid}", "controller": True}
            resources = {"requests": {"cpu": "800m", "memory": "1Gi"}}
            pods.append(
                pod_view_from_json(
                    {
                        "metadata": {"name": uid, "namespace": "bench", "uid": uid, "ownerReferences": [owner]},
                        "spec": {"nodeName": name, "containers": [{"name": "main", "resources": resources}]},
                        "status": {"phase": "Running"},
                    }
                )
            )
            used[f"bench/{uid}"] = {"cpu": each, "memory": GIB}
        metrics[name] = NodeMetric(updated=0.0, pods=used)
    return ClusterView(now=10.0, nodes=tuple(nodes), pods=tuple(pods), metrics=metrics)


def _views(nodes: int) -> Iterator[Result]:
    """Measure fold and views of a large cluster, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.large_descheduler", str(nodes), str(PODS_PER_NODE)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    found: dict[str, float] = json.loads(done.stdout)
    size = f"{nodes:,} nodes, {nodes * PODS_PER_NODE:,} pods"
    yield Result(
        name=f"longest pause of other work while the first view of {size} is made",
        value=found["first_view_pause_ms"],
        unit="ms",
        target=50.0,
        better=Better.LOWER,
        note=f"CPU time; {found['first_view_cpu_seconds']:.1f} s in total; reports {found['reports_pause_ms']:.0f} ms; "
        f"view after 500 changes {found['next_view_pause_ms']:.0f} ms",
    )
    yield Result(
        name=f"memory of state, usage and views of {size}",
        value=found["resident_mib"],
        unit="MiB",
        target=600.0,
        better=Better.LOWER,
    )


async def _restart(jobs: int) -> list[Result]:
    """Stop the service while all jobs wait for their Reservation, place these, and start it again."""
    world = World()
    await world.begin()
    await world.replicas(2 * jobs)
    for number in range(jobs):
        await world.custom("PodMigrationJob", job(f"j{number}", f"replica-{number}"))
    # one workload has all pods here: the limits per workload and node are not what is measured
    text = configuration(
        plugins=False,
        maxMigratingPerNode=0,
        maxMigratingPerWorkload="90%",
        maxUnavailablePerWorkload="90%",
        objectLimiters={},
        evictQPS=jobs,
        evictBurst=jobs,
    )
    async with world.service(text):
        await until(lambda: len(world.objects("Reservation")) == jobs)
    for name in world.objects("Reservation"):
        await world.placed_reservation(name, "a")
    began = time.perf_counter()
    async with world.service(text):
        await until(world.requests)
        first = time.perf_counter() - began

        async def all_asked() -> bool:
            return len(await world.requests()) >= jobs

        await until(all_asked, every=0.1)
        last = time.perf_counter() - began
    asked = Counter(request.name for request in await world.requests())
    once = sum(number == 1 for number in asked.values())
    note = f"eviction of the last job after {last:.2f} s; {once:,} of {jobs:,} pods evicted exactly once"
    return [
        Result(
            name=f"restart with {jobs:,} migration jobs in flight: time to the next step",
            value=first,
            unit="s",
            target=5.0,
            better=Better.LOWER,
            note=note,
        ),
        Result(
            name="restart: jobs lost or carried out twice",
            value=jobs - once,
            unit="jobs",
            target=0.0,
            better=Better.LOWER,
            note=note,
        ),
    ]


def _day(nodes: int) -> Iterator[Result]:
    without, load_, upstream = (run_day(new_day(nodes), policy) for policy in (None, LOAD, UPSTREAM))
    note = f"{nodes} nodes; without {without}, LowNodeLoad {load_}, LowNodeUtilization {upstream}"
    yield Result(
        name="simulated day: hot-node minutes with LowNodeLoad / without",
        value=100 * load_.hot_minutes / without.hot_minutes,
        unit="%",
        target=20.0,
        better=Better.LOWER,
        note=note,
    )
    yield Result(
        name="simulated day: evictions of LowNodeLoad / LowNodeUtilization with the same goal",
        value=100 * load_.evictions / upstream.evictions,
        unit="%",
        target=100 / 3,
        better=Better.LOWER,
        note=note,
    )
    yield Result(
        name="simulated day: evicted pods without a new place",
        value=float(load_.homeless),
        unit="pods",
        target=0.0,
        better=Better.LOWER,
        note=note,
    )
