"""The main loop: a round every interval, on the leader.

All instances fold the log, only the leader decides. A round runs in a thread over an immutable view, so that the fold
and the pages answer meanwhile. Its decision is stored as a fact before it is carried out. If the leader is killed in
between, the next leader carries it out. Next modules to read: `shell.rounds.deciding`, `shell.rounds.execution`,
`shell.rounds.reporting`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from koordcore.bus.folds.runner import FoldRunner
from koordcore.ports.clock import Clock
from koordcore.ports.leadership import Term
from koordcore.service.telemetry.logging import Logger

from koord_descheduler.domain.config.profiles import MadeProfiles
from koord_descheduler.domain.framework.round import Profile, RoundOutcome
from koord_descheduler.domain.rounds.memory import seconds_until_next
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.shell.facts import RoundFacts
from koord_descheduler.shell.folding import ViewFold
from koord_descheduler.shell.leading import Leading
from koord_descheduler.shell.rounds.deciding import RoundDecider
from koord_descheduler.shell.rounds.execution import RoundExecution
from koord_descheduler.shell.rounds.reporting import RoundReporter
from koord_descheduler.shell.waiting import first_of


@dataclass(slots=True, kw_only=True)
class Rounds:
    """Runs the rounds of a configuration."""

    builder: ViewBuilder
    runner: FoldRunner[ViewFold]
    leading: Leading
    clock: Clock
    logger: Logger
    interval: float  # Seconds from the start of a round to the start of the next; 0: one round per term
    # Makes the profiles before the first round. Until all can be made, it tries again before each round.
    make: Callable[[], MadeProfiles]
    facts: RoundFacts
    decider: RoundDecider
    execution: RoundExecution
    reporter: RoundReporter
    done: int = 0
    begun: int = 0  # Number of rounds that have begun, also those of a cluster that is too small
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _waiting: list[asyncio.Future[None]] = field(default_factory=list["asyncio.Future[None]"], init=False)
    _left_out: list[str] = field(default_factory=list[str], init=False)
    """Why profiles are left out of the rounds."""

    async def run(self) -> None:
        """Run a round at the start of each interval while this instance leads. Never return; the caller cancels it.

        A profile that cannot be made, for example because a PriorityClass does not exist, takes part in no round until
        it can be made.
        """
        await self.runner.caught_up()
        profiles = self._profiles()
        resumed: Term | None = None
        while True:
            term = await self.leading.term()
            await self.execution.resume(term)
            if term != resumed:
                resumed = term
                pause = seconds_until_next(self.facts.memory(), self.interval, self.clock.now().timestamp())
                if pause:
                    await self._rest(self.clock.monotonic() + pause, term)
                    continue
            began = self.clock.monotonic()
            waiting, self._waiting = self._waiting, []
            self._wanted.clear()
            self.begun += 1
            if self._left_out:
                profiles = self._profiles()
            await self.round(profiles, term)
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
            await self._rest(began + self.interval if self.interval else None, term)

    async def round(self, profiles: Sequence[Profile], term: Term) -> RoundOutcome | None:
        """Run one round, record its decision and carry it out.

        Returns:
            The decisions. None if fewer than two nodes are ready and selected, or if the log did not store the
            decision, for example because this instance does not lead any more. Then nothing is carried out.
        """
        # 1. Take the view of this moment. Over it, the plugins choose pods, and the scheduler proves the moves.
        start = await self.decider.begin()
        decided = await self.decider.decide(profiles, start)
        if decided is None:
            return None
        # 2. Record the decision. Plans come before their moves; a move whose plan is not stored is left out.
        decided = decided.with_plans(await self.facts.record_plans(decided.plans, start.position, term))
        if not await self.facts.record(self.decider.events(start, decided), start.position, term):
            return None
        # 3. Carry it out.
        staying = await self.execution.carry_out(decided, start, term)
        # 4. Record, count and explain what happened.
        await self.reporter.report(decided, start, staying, self._left_out, term)
        self.done += 1
        return decided.outcome

    async def run_now(self) -> None:
        """Run an extra round and wait until it has ended; without leadership, wait for it. Rounds never overlap."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._wanted.set()
        await waiter

    async def _rest(self, until: float | None, term: Term) -> None:
        """Wait until a monotonic time, until `run_now` asks for a round, or the term is over. None: no time."""
        if until is not None:
            pause = self.clock.sleep(max(0.0, until - self.clock.monotonic()))
        else:
            pause = self.leading.lost(term)
        await first_of(pause, self._wanted.wait())

    def _profiles(self) -> Sequence[Profile]:
        """The profiles that can be made now. The problems of the others are logged when they change."""
        made = self.make()
        if made.problems != self._left_out:
            self._left_out = made.problems
            if made.problems:
                self.logger.error("profiles_left_out", reasons=made.problems)
            else:
                self.logger.info("profiles_complete", profiles=len(made.profiles))
        return made.profiles
