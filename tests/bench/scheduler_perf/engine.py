"""The scheduler's decisions alone, in this process: queue, filters, scores, explanation, assumption; no log, no I/O."""

import time

from bench.scheduler_perf.workloads import Sized
from koordcore.events.envelope import NewEvent
from scheduling import Scheduler, SmallLog


def decisions_per_second(sized: Sized) -> float:
    """Places the initial pods, then times the decisions for the measured ones."""
    log = SmallLog()
    scheduler = Scheduler(log)
    _say(log, sized.objects())
    _say(log, sized.initial_pods())
    scheduler.run()
    _say(log, sized.measured_pods())
    scheduler.follow()
    decided = 0
    began = time.perf_counter()
    while scheduler.decide() is not None:
        decided += 1
    seconds = time.perf_counter() - began
    assert decided == sized.measured, f"{decided} of {sized.measured} pods were decided"
    return decided / seconds


def _say(log: SmallLog, events: list[NewEvent]) -> None:
    stored = log.append(events)
    assert stored is not None, "the objects are new"
