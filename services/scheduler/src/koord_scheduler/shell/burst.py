"""Decides pods in bursts of at most 20 ms, and measures and logs each decision."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from koordcore.ports.clock import Clock
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import Logger

from koord_scheduler.domain.engine.timed import measured
from koord_scheduler.domain.framework.stopwatch import Stopwatch
from koord_scheduler.domain.loop.commit.work import Placement
from koord_scheduler.domain.loop.cycle.deciding import decide_next, lost_nodes
from koord_scheduler.domain.loop.cycle.pod_explanations import PodExplanation
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.shell.debugging import DecisionLog
from koord_scheduler.shell.observing import SchedulerMetrics
from koord_scheduler.shell.publishing import Publisher

BURST_REAL_SECONDS: Final = 0.02
"""Longest duration of a burst in seconds of the host. After it, new events and answers of the log are processed."""
MEASURED_EVERY: Final = 100
"""The calls of plugins are timed in one attempt of this many."""
_HOST: Final = SystemClock()


class Burst(NamedTuple):
    """The result of deciding pods for at most 20 ms."""

    explanations: Sequence[PodExplanation]  # Explanations of the pods that were not placed
    is_cut_off: bool  # Whether the time limit ended the burst, so that the next burst may begin at once


NO_BURST: Final = Burst((), is_cut_off=False)
"""The result if no pod may be decided."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Decider:
    """Decides pods one after the other, in bursts. Every placement is assumed at once. No decision begins later than 20
    ms after the start of its burst. This time is measured with the clock of the host, even if the run is accelerated.
    """

    state: SchedulerState
    # Appends decisions. While it is busy, no further decisions are made, because they would only wait.
    publisher: Publisher
    # The time of decisions, such as the end of back-offs. It is faster than the host's clock if the run is accelerated.
    clock: Clock
    metrics: SchedulerMetrics  # Counts and times the decisions
    decision_log: DecisionLog  # Logs the details of decisions that debug flags switch on
    logger: Logger
    _attempts: Iterator[int] = field(default_factory=count)

    def burst(self) -> Burst:
        """Decide pods until none is ready, the publisher is busy, or `BURST_REAL_SECONDS` of the host have passed. All
        decisions of a burst use the time of its start as the present time.
        """
        explanations: list[PodExplanation] = []
        now, began = self.clock.unix(), _HOST.monotonic()
        before = began
        is_cut_off = True
        while not self.publisher.is_busy() and before - began < BURST_REAL_SECONDS:
            decision = self._decide(now)
            explanations += lost_nodes(self.state, now)
            if decision is None:
                is_cut_off = False
                break
            after = _HOST.monotonic()
            self._report(decision, after - before)
            if isinstance(decision, list):
                explanations += decision
            before = after
        self.metrics.rounds_ended(self.state.books.gangs.ended, now)
        return Burst(explanations, is_cut_off and not self.publisher.is_busy())

    def _decide(self, now: float) -> Placement | list[PodExplanation] | None:
        """Take one decision, and time the plugin calls if it is the turn of `MEASURED_EVERY`. Returns the placement, or
        the explanations of a failed attempt; None if no pod is ready.
        """
        if next(self._attempts) % MEASURED_EVERY:
            return decide_next(self.state, now)
        watch = Stopwatch(_HOST.monotonic)
        with measured(self.state.frameworks, watch):
            decision = decide_next(self.state, now)
        self.metrics.measured(watch)
        return decision

    def _report(self, decision: Placement | list[PodExplanation], seconds: float) -> None:
        """Log and count one decision. `decision`: as `_decide` returned it. `seconds`: its duration in seconds of the
        host.
        """
        reports = self.state.reports
        while reports.plugin_faults:
            fault = reports.plugin_faults.popleft()
            self.logger.error("plugin_failed", plugin=fault.plugin, pod=fault.pod, error=fault.error, trace=fault.trace)
        if reports.job_attempts:
            self.metrics.jobs_attempted(reports.job_attempts, seconds)
        if isinstance(decision, list):
            profile = self.state.profile_of(decision[0].uid) if decision else ""
            self.metrics.failed(decision, profile, seconds)
        else:
            self.metrics.placed(decision, self.state.profile_of(decision.uid), seconds)
        if self.decision_log.flags.any:
            self.decision_log.tell(decision)
