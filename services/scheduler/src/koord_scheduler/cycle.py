"""The scheduler's main loop: fold (a task beside it), decide, publish; one burst after the other.

Everything that changes the state runs in this event loop and between two awaits, so a decision sees one state. Several
batches are in flight while the next burst is decided on what they are assumed to achieve.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Protocol

from koordcore.bus.folds.patience import patiently
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import EventLog
from koordcore.ports.leadership import Leadership, Term
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import Logger

from koord_scheduler.domain.commit.work import Placement
from koord_scheduler.domain.controllers.schedule_explanations import hear
from koord_scheduler.domain.controllers.statuses import next_status_due, status_facts
from koord_scheduler.domain.cycle.deciding import decide_next, gated, give_up_overdue
from koord_scheduler.domain.cycle.pod_explanations import PodExplanation
from koord_scheduler.domain.framework.stopwatch import Stopwatch
from koord_scheduler.domain.runtime.timed import measured
from koord_scheduler.domain.state.state import SchedulerState
from koord_scheduler.shell.debugging import DecisionLog
from koord_scheduler.shell.observing import SchedulerMetrics
from koord_scheduler.shell.publishing import Publisher

BURST_REAL_SECONDS: Final = 0.02
"""Decisions of one burst end after this time: acknowledgements and new events wait no longer."""
MOST_LAG_SECONDS: Final = 5.0
"""A fold that is further behind sees the past, and decisions about the past are refused (event-bus spec, 8)."""
LOOK_AGAIN_SECONDS: Final = 0.5
"""While we may not decide; a halt and a lag end without a word."""
MEASURED_EVERY: Final = 100
"""In one of so many decisions the calls of plugins are measured."""
_HOST: Final = SystemClock()


class Fold(Protocol):
    """What the cycle asks the fold: `koordcore.bus.folds.runner.FoldRunner`."""

    @property
    def halted(self) -> object | None:
        """Why it stands still; None: it does not."""
        ...

    @property
    def lag_seconds(self) -> float:
        """Age of the oldest event not folded."""
        ...

    async def caught_up(self) -> None:
        """Waits until what was in the log at the start is folded."""
        ...

    async def reached(self, seq: int) -> None:
        """Waits until the event at a position is folded."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Cycle:
    """The loop and what it works with. `wakeup` is set by whoever changes something."""

    state: SchedulerState
    fold: Fold
    log: EventLog
    publisher: Publisher
    leadership: Leadership
    clock: Clock
    metrics: SchedulerMetrics
    decision_log: DecisionLog
    logger: Logger
    wakeup: asyncio.Event
    _attempts: Iterator[int] = field(default_factory=count)

    async def run(self) -> None:
        """Lead, decide, publish, until cancelled."""
        while True:
            await self.fold.caught_up()
            term = await self.leadership.acquired()
            # What the leader before us wrote comes first (scheduler-core spec, 3, sync barrier).
            await self.fold.reached((await patiently(self.log.head)).last_seq)
            self.logger.info("leading", epoch=term.epoch, position=self.state.log.position)
            await self._lead(term)
            await self.publisher.flush()
            self.state.commits.withdraw_all()  # the next leader decides about these

    async def _lead(self, term: Term) -> None:
        state = self.state
        while self.leadership.term == term:
            self.publisher.raise_failure()
            self.wakeup.clear()
            # 1. may we decide? A log that is full, a view of the past, or enough in flight: wait
            if not self._may_decide():
                await self._something_happens(self.clock.unix() + LOOK_AGAIN_SECONDS)
                continue
            # 2. time has passed, events have come: who may have better luck now
            now = self.clock.unix()
            state.frameworks.advance(now)
            state.queue.tick(now)
            state.hints.wake()
            # 3. what is gone gives its place back, and so does who has waited in vain
            state.assumed.release_due()
            explanations = give_up_overdue(state, now)
            # 4. decide a burst; every placement is assumed at once
            refused, is_cut_off = self._decide_burst()
            explanations += [*refused, *gated(state)]
            hear(state, explanations)
            # 5. how quotas and gangs stand now, once a second; who has to give up what a quota lent
            self._say_how_it_stands(now)
            # 6. placements and status writes to the log, without waiting for it; explanations to their stream
            self.publisher.pump()
            for explanation in explanations:
                await self.publisher.say(explanation)
            # 7. wait for an event, an answer of the log, or the end of a backoff
            if state.queue.has_active() or is_cut_off:
                await asyncio.sleep(0)
            else:
                dues = (due for due in (state.next_due(), next_status_due(state)) if due is not None)
                await self._something_happens(min(dues, default=None))

    def _may_decide(self) -> bool:
        fold, publisher = self.fold, self.publisher
        is_behind = fold.halted is not None or fold.lag_seconds > MOST_LAG_SECONDS
        return not (is_behind or publisher.is_full or publisher.is_busy())

    def _decide_burst(self) -> tuple[list[PodExplanation], bool]:
        """Verdicts, and whether time ended it: more may be decided at once, be it the next member of a gang."""
        explanations: list[PodExplanation] = []
        now, began = self.clock.unix(), _HOST.monotonic()
        before = began
        is_cut_off = True
        while not self.publisher.is_busy() and before - began < BURST_REAL_SECONDS:
            decision = self._decide(now)
            if decision is None:
                is_cut_off = False
                break
            after = _HOST.monotonic()
            while self.state.reports.plugin_faults:
                fault = self.state.reports.plugin_faults.popleft()
                self.logger.error(
                    "plugin_failed", plugin=fault.plugin, pod=fault.pod, error=fault.error, trace=fault.trace
                )
            if self.state.reports.job_attempts:
                self.metrics.jobs_attempted(self.state.reports.job_attempts, after - before)
            if isinstance(decision, list):
                explanations += decision
                profile = self.state.profile_of(decision[0].uid) if decision else ""
                self.metrics.failed(decision, profile, after - before)
            else:
                self.metrics.placed(decision, self.state.profile_of(decision.uid), after - before)
            if self.decision_log.flags.any:
                self.decision_log.tell(decision)
            before = after
        self.metrics.rounds_ended(self.state.cluster.gangs.ended, now)
        return explanations, is_cut_off and not self.publisher.is_busy()

    def _decide(self, now: float) -> Placement | list[PodExplanation] | None:
        """One decision; the calls of plugins are measured in few of them, at the cost of none."""
        if next(self._attempts) % MEASURED_EVERY:
            return decide_next(self.state, now)
        watch = Stopwatch(_HOST.monotonic)
        with measured(self.state.frameworks, watch):
            decision = decide_next(self.state, now)
        self.metrics.measured(watch)
        return decision

    def _say_how_it_stands(self, now: float) -> None:
        began = _HOST.monotonic()
        status_writes = status_facts(self.state, now)
        for write in status_writes:
            self.state.status.writes.put(write)
        if status_writes:
            self.metrics.status_seconds.observe(_HOST.monotonic() - began)

    async def _something_happens(self, due: float | None) -> None:
        """Waits for `wakeup`, or for a moment of the run's clock."""
        if due is None:
            await self.wakeup.wait()
            return
        waiting = {
            asyncio.ensure_future(self.wakeup.wait()),
            asyncio.ensure_future(self.clock.wait_until(due)),
        }
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
