"""The scheduler's decisions alone, in this process: queue, filters, scores, explanation, assumption; no log, no I/O."""

import cProfile
import pstats
import time
from dataclasses import dataclass

from bench.scheduler_perf.cluster import PROFILED_LINES
from bench.scheduler_perf.workloads import Sized
from koordcore.events.envelope import NewEvent
from koordcore.service.run import collect_rarely
from support.scheduler.scheduling import Scheduler, SmallLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Rate of decisions, and CPU time of one."""

    pods_per_second: float
    cpu_ms: float


def decide_all(sized: Sized, *, profile: bool = False) -> Decisions:
    """Places the initial pods, then times the decisions for the measured ones, the collector set as in a service."""
    collect_rarely()
    log = SmallLog()
    scheduler = Scheduler(log, sized.workload.configuration)
    _say(log, sized.objects())
    _say(log, sized.initial_pods())
    scheduler.run()
    _say(log, sized.measured_pods())
    scheduler.follow()
    profiler = cProfile.Profile() if profile else None
    decided = 0
    began, began_cpu = time.perf_counter(), time.process_time()
    if profiler is not None:
        profiler.enable()
    while scheduler.decide() is not None:
        decided += 1
    if profiler is not None:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(PROFILED_LINES)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    assert decided == sized.measured, f"{decided} of {sized.measured} pods were decided"
    return Decisions(pods_per_second=decided / seconds, cpu_ms=1000 * cpu_seconds / decided)


def _say(log: SmallLog, events: list[NewEvent]) -> None:
    stored = log.append(events)
    assert stored is not None, "the objects are new"
