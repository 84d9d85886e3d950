"""What plugins cost the pods that they do not concern: CPU per plain pod with the plugins, over without.

    a transforming plugin         transforms every phase of the cycle of pods with a label that no measured pod has
    DeviceShare, NodeNUMAResource   both in the profile, and half of the nodes with devices and a CPU topology

Two schedulers run in one process. They decide in turn, a block of pods each, and the order within a pair alternates, so
both meet the same machine.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from bench.options import BenchOptions
from bench.pairs import ratio_interval
from bench.results import Better, Result
from bench.scheduler_perf.hardware import devices, topologies
from bench.scheduler_perf.workloads import BY_KEY, Sized
from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import NodeColumns, Rows
from koord_scheduler.domain.framework.cycle_points import Scored, Views
from koord_scheduler.domain.framework.outcomes import Candidates, Rejection
from koordcore.events.envelope import NewEvent
from koordcore.protocol.objects import Pod
from koordcore.service.run import collect_rarely
from support.scheduler.plugins import MadeUp, shipped_with, shipped_without
from support.scheduler.scheduling import Scheduler, SmallLog

BLOCK: Final = 250
"""Pods of one block: some 15 ms of CPU."""
TARGET: Final = 1.03


class Reserving(MadeUp):
    """Shows owners of reservations other nodes than there are, as the plugin Reservation will."""

    name = "Reserving"

    def concerns(self, pod: Pod) -> bool:
        """See `ConcernedPlugin.concerns`."""
        return "example.com/reservation" in pod.metadata.labels

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | Rejection | None:
        """See `BeforePreFilterPlugin.before_pre_filter`."""
        return pod

    def after_pre_filter(self, pod: Pod, found: list[tuple[str, Candidates]]) -> Rejection | None:
        """See `AfterPreFilterPlugin.after_pre_filter`."""
        return None

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | Rejection | None:
        """See `BeforeFilterPlugin.before_filter`."""
        return Views(pods=[(rows[:1], pod)])

    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | Rejection | None:
        """See `BeforeScorePlugin.before_score`."""
        return Scored(rows=np.sort(rows))

    def permit(self, pod: PodRecord, node: str) -> Rejection:
        """See `PermitPlugin.permit`: no pod of the measurement comes here."""
        raise AssertionError(f"pod {pod.uid} is not concerned")

    def may_refuse(self, pod_class: PodClass) -> bool:
        """See `PodFollower.may_refuse`."""
        return True

    def took(self, row: int, pod_info: PodInfo) -> None:
        """See `PodFollower.took`."""
        raise AssertionError(f"pod {pod_info.uid} is not concerned")

    def gave(self, row: int, pod_info: PodInfo) -> None:
        """See `PodFollower.gave`."""


def measure(options: BenchOptions) -> Iterator[Result]:
    """The ratios of CPU per pod, with their intervals."""
    collect_rarely()
    sized = BY_KEY["basic"].at(options.scale)
    yield _compared(
        "plugin that concerns no plain pod",
        sized,
        _ready(sized, Scheduler(SmallLog())),
        _ready(sized, shipped_with(SmallLog(), Reserving)),
    )
    half = sized.nodes // 2
    yield _compared(
        "DeviceShare and NodeNUMAResource, half of the nodes with devices",
        sized,
        _ready(sized, shipped_without(SmallLog(), "NodeNUMAResource", "DeviceShare")),
        _ready(sized, Scheduler(SmallLog()), [*topologies(half), *devices(half)]),
    )


def _compared(name: str, sized: Sized, without: Scheduler, beside: Scheduler) -> Result:
    ratios: list[float] = []
    for pair in range(sized.measured // BLOCK):
        order = (without, beside) if pair % 2 == 0 else (beside, without)
        took = {id(scheduler): _block(scheduler) for scheduler in order}
        ratios.append(took[id(beside)] / took[id(without)])
    return Result(
        name=f"{name}, {sized.nodes:,} nodes: CPU per pod, with over without",
        value=statistics.median(ratios),
        unit="x",
        target=TARGET,
        better=Better.LOWER,
        note=f"mean of {len(ratios)} pairs {ratio_interval(ratios)}",
    )


def _ready(sized: Sized, scheduler: Scheduler, more: Sequence[NewEvent] = ()) -> Scheduler:
    """The scheduler with its nodes and initial pods placed, and the measured pods in its queue."""
    for events in ([*sized.objects(), *more], sized.initial_pods()):
        assert scheduler.log.append(events) is not None, "the objects are new"
        scheduler.run()
    assert scheduler.log.append(sized.measured_pods()) is not None, "the pods are new"
    scheduler.follow()
    return scheduler


def _block(scheduler: Scheduler) -> float:
    """CPU seconds of one block of decisions."""
    began = time.process_time()
    for _ in range(BLOCK):
        assert scheduler.decide() is not None, "a pod is in the queue"
    return time.process_time() - began
