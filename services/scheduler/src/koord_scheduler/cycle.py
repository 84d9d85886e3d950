"""The scheduler's main loop: it decides a burst of pods, appends the decisions to the log, and repeats.

Another task folds the log. All code that changes the state runs in one event loop without interruption, so a decision
sees one consistent state. While the log has not confirmed earlier decisions, later decisions assume that they succeed.

Read next: `shell.burst`, then `domain.loop.cycle.deciding`.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from koordcore.bus.client.connection import patiently
from koordcore.bus.read.log_size import LogRoom
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import EventLog
from koordcore.ports.leadership import Leadership, Term
from koordcore.service.telemetry.logging import Logger

from koord_scheduler.domain.loop.controllers import next_status_due
from koord_scheduler.domain.loop.cycle.deciding import gated, settle_waits
from koord_scheduler.domain.loop.explaining import hear
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.shell.burst import NO_BURST, Decider
from koord_scheduler.shell.publishing import Publisher
from koord_scheduler.shell.readiness import Fold, may_decide, woken_or_due

LOOK_AGAIN_SECONDS: Final = 0.5
"""Pause while no decision is allowed (the fold halts or lags, or the log is full): its end sets no wake-up."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cycle:
    state: SchedulerState
    fold: Fold  # Follows the log and folds it into the state
    log: EventLog
    decider: Decider  # Decides pods
    publisher: Publisher  # Appends decisions to the log
    leadership: Leadership  # Only the leader decides
    clock: Clock  # The time of decisions and waits; faster than the host's clock if the run is accelerated
    logger: Logger
    wakeup: asyncio.Event  # Event that is set if a further decision may be possible
    room: LogRoom = field(default_factory=LogRoom)  # Free space of the log

    async def run(self) -> None:
        while True:
            await self.fold.caught_up()
            term = await self.leadership.acquired()
            # Fold what the previous leader wrote (scheduler-core spec, 3, sync barrier).
            await self.fold.reached((await patiently(self.log.head)).last_seq)
            self.logger.info("leading", epoch=term.epoch, position=self.state.log.position)
            await self._lead(term)
            await self.publisher.flush()
            self.state.commits.withdraw_all()  # the next leader decides about these

    async def _lead(self, term: Term) -> None:
        state, publisher = self.state, self.publisher
        while self.leadership.term == term:
            publisher.raise_failure()
            self.wakeup.clear()
            # 1. Wait while the log is full, the fold lags, or enough appends are in flight.
            if not may_decide(self.fold, publisher):
                await woken_or_due(self.wakeup, self.clock, self.clock.unix() + LOOK_AGAIN_SECONDS)
                continue
            # 2. Advance the time, and wake the pods that the latest events may help.
            now = self.clock.unix()
            state.frameworks.advance(now)
            state.queue.tick(now)
            state.hints.wake()
            # 3. Release the nodes of pods that are gone. Tell the log of pods that were resized. End waits at Permit: a
            #    gang is complete, or its time is over.
            state.assumed.release_due()
            state.assumed.resize_due()
            explanations = settle_waits(state, now)
            # 4. Decide a burst of pods, if the log has room for new work. Every placement is assumed at once.
            has_room = self.room.trouble() is None
            burst = self.decider.burst() if has_room else NO_BURST
            explanations += [*burst.explanations, *gated(state)]
            hear(state, explanations)
            # 5. Write the statuses of quotas, gangs and the network, once a second.
            publisher.put_status_writes(now)
            # 6. Append placements and status writes without waiting, and publish the explanations.
            publisher.pump()
            for explanation in explanations:
                await publisher.say(explanation)
            # 7. Wait for an event, an answer of the log, or the end of a back-off.
            if has_room and (state.queue.has_active() or burst.is_cut_off):
                await asyncio.sleep(0)
            else:
                look_again = None if has_room else self.clock.unix() + LOOK_AGAIN_SECONDS
                dues = (due for due in (state.next_due(), next_status_due(state), look_again) if due is not None)
                await woken_or_due(self.wakeup, self.clock, min(dues, default=None))
