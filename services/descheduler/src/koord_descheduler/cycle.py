"""The main loop: a round every interval, on the leader.

All instances fold the log, only the leader decides. A round runs in a thread over an immutable view, so that the fold
and the pages answer meanwhile. Its decision is stored as a fact before it is carried out. If the leader is killed in
between, the next leader carries it out.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from koordcore.bus.folds.runner import FoldRunner
from koordcore.events.descheduling.decisions import (
    COSTS,
    DRY_RUNS,
    REFUSALS,
    ROUNDS,
    DeletionCostsCarriedOut,
    DeletionCostsDecided,
    RoundCarriedOut,
)
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.ports.clock import Clock
from koordcore.ports.leadership import Term
from koordcore.protocol.selectors import Selector
from koordcore.service.clock import SystemClock
from koordcore.service.health import WorkWatch
from koordcore.service.telemetry.logging import Logger
from koordcore.state.rounds import RoundsState
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.config.profiles import MadeProfiles
from koord_descheduler.domain.effects import closed_nodes, is_to_carry_out, plan_drafts
from koord_descheduler.domain.framework.eviction import EvictionLimiter
from koord_descheduler.domain.framework.proposals import LookAtDrains
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.framework.round import Profile, RoundOutcome, run_round
from koord_descheduler.domain.job_control.counting import counted_jobs, migrating_pods
from koord_descheduler.domain.job_control.viewing import JobReader
from koord_descheduler.domain.migration.jobs import JobsInFlight
from koord_descheduler.domain.plugins.evictors.migration_controller import JobRequests
from koord_descheduler.domain.plugins.native.low_node_load.anomaly import Detectors
from koord_descheduler.domain.reporting.refusals import Refused
from koord_descheduler.domain.reporting.round_story import round_ended
from koord_descheduler.domain.round_memory import (
    decided_costs,
    decision,
    detector_changes,
    detectors_of,
    dry_run_changes,
    moves_of,
    refusal_changes,
    refusals_of,
    report_positions,
    seconds_until_next,
)
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.shell.facts import FactWriter
from koord_descheduler.shell.folding import ViewFold
from koord_descheduler.shell.leading import Leading
from koord_descheduler.shell.metrics import DeschedulerMetrics
from koord_descheduler.shell.proving import Prover
from koord_descheduler.shell.round_effects import RoundEffects
from koord_descheduler.shell.telling import RoundTeller
from koord_descheduler.shell.views import views_are_current
from koord_descheduler.shell.waiting import Problem, first_of


@dataclass(slots=True, kw_only=True)
class Rounds:
    """Runs the rounds of a configuration.

    Attributes:
        builder: The folded cluster.
        runner: Folds the log into `builder`.
        leading: Whether this instance may decide.
        clock: Clock of the run.
        logger: Logger of the service.
        metrics: Metrics of the service.
        interval: Seconds from the start of a round to the start of the next; 0: one round per term.
        is_dry_run: Whether evictions are counted and not carried out.
        nodes: Selects the nodes of the rounds.
        limiter: Limits on the evictions of a round.
        make: Makes the profiles before the first round. Until all can be made, it tries again before each round.
        facts: Appends facts.
        effects: Carries out decisions.
        shared: State that all plugins share.
        prover: Asks the scheduler where evicted pods would land.
        teller: Publishes the rounds as explanations.
        watch: Liveness check of the plugins, of which one may hang.
        drains_wanted: Is set if a plugin asks for a look at all drains.
        done: Number of finished rounds.
        begun: Number of rounds that have begun, also those of a cluster that is too small.
    """

    builder: ViewBuilder
    runner: FoldRunner[ViewFold]
    leading: Leading
    clock: Clock
    logger: Logger
    metrics: DeschedulerMetrics
    interval: float
    is_dry_run: bool
    nodes: Selector
    limiter: EvictionLimiter
    make: Callable[[SharedState], MadeProfiles]
    facts: FactWriter
    effects: RoundEffects
    shared: SharedState
    prover: Prover
    teller: RoundTeller
    watch: WorkWatch
    drains_wanted: asyncio.Event
    done: int = 0
    begun: int = 0
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _waiting: list[asyncio.Future[None]] = field(default_factory=list["asyncio.Future[None]"], init=False)
    _reader: JobReader = field(init=False)
    _refused: Refused = field(default_factory=Refused, init=False)
    _left_out: list[str] = field(default_factory=list[str], init=False)
    """Why profiles are left out of the rounds."""
    _too_small: Problem = field(init=False)

    def __post_init__(self) -> None:
        self._reader = JobReader(self.builder)
        self._too_small = Problem("round_refused", self.logger)

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
            await self._finish(term)
            if term != resumed:
                resumed = term
                pause = seconds_until_next(self._memory(), self.interval, self.clock.now().timestamp())
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

    def _profiles(self) -> Sequence[Profile]:
        """Return the profiles that can be made now. Log the problems of the others when they change."""
        self.shared.priority_classes = self.builder.priority_classes()
        made = self.make(self.shared)
        if made.problems != self._left_out:
            self._left_out = made.problems
            if made.problems:
                self.logger.error("profiles_left_out", reasons=made.problems)
            else:
                self.logger.info("profiles_complete", profiles=len(made.profiles))
        return made.profiles

    async def run_now(self) -> None:
        """Run an extra round, besides the periodic ones, and wait until it has ended. Rounds never overlap.

        If this instance does not lead, wait until it leads and has run a round.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._wanted.set()
        await waiter

    async def _finish(self, term: Term) -> None:
        """Carry out what the last round decided, if its leader was killed before it had done so."""
        costs = self.builder.state.of_kind(RoundsState).get(COSTS.id)
        if costs is not None and costs.costs is not None:
            await self._set_costs(costs.costs, self.builder.state.position, term)
            self.logger.info("deletion_costs_finished", pods=len(costs.costs.costs), started_at=costs.costs.started_at)
        memory = self._memory()
        if memory is None or not (memory.moves or memory.closed):
            return
        await views_are_current(self.builder)
        cluster, position = self.builder.view(self.clock.now().timestamp()), self.builder.state.position
        under_way = self.builder.evictions()
        self.logger.info("round_finished", moves=len(memory.moves), started_at=memory.started_at)
        await self.effects.close(memory.closed, term)
        left = [move for move in memory.moves if move.uid not in under_way]
        refused = await self.effects.move(left, cluster, position, term)
        await self._record([RoundCarriedOut(refused=sorted(refused))], position, term)

    async def _rest(self, until: float | None, term: Term) -> None:
        """Wait until a monotonic time, until `run_now` asks for a round, or the term is over. None: no time."""
        if until is not None:
            pause = self.clock.sleep(max(0.0, until - self.clock.monotonic()))
        else:
            pause = self.leading.lost(term)
        await first_of(pause, self._wanted.wait())

    async def round(self, profiles: Sequence[Profile], term: Term) -> RoundOutcome | None:
        """Run one round, record its decision and carry it out.

        Returns:
            The decisions. None if fewer than two nodes are ready and selected, or if the log did not store the
            decision, for example because this instance does not lead any more. Then nothing is carried out.
        """
        # 1. The view of this moment, jobs and evictions that are still under way, and what the last round left.
        await views_are_current(self.builder)
        now, jobs = self.clock.now().timestamp(), self._reader.jobs()
        unseen = list(self.effects.unseen({job.name for job in jobs}, now))
        migrating = [*migrating_pods(jobs, self.builder), *(job.pod_uid for job in unseen)]
        cluster = self.builder.view(now, migrating)
        position = self.builder.state.position
        await asyncio.to_thread(getattr, cluster, "pod_by_uid")  # an index over all pods; the event loop goes on
        self.shared.of(JobsInFlight).replace([*counted_jobs(jobs, self.builder.evictions(), cluster), *unseen])
        memory = self._memory()
        self.shared.of(Detectors).states = detectors_of(memory)

        # 2. The plugins decide, in a thread.
        self._refused.clear()
        began = SystemClock().monotonic()
        try:
            with self.watch:
                outcome = await asyncio.to_thread(
                    run_round,
                    profiles,
                    cluster,
                    self.limiter,
                    nodes=self.nodes,
                    is_dry_run=self.is_dry_run,
                    timed=self.metrics.plugin,
                    refused=self._refused.note_filtered,
                )
        except InvalidInput as error:
            self._too_small.lasts(str(error))
            return None
        finally:
            seconds = SystemClock().monotonic() - began
            self.metrics.round_seconds.observe(seconds)
        self._too_small.is_over()
        self._refused.note_attempts(outcome.attempts)

        # 3. The scheduler proves the moves of the profiles that want it.
        outcome.attempts[:] = await self.prover.proved(cluster, outcome.attempts)
        chosen = [attempt for attempt in outcome.attempts if is_to_carry_out(attempt)]
        moves = moves_of(cluster.now, chosen, self.shared.of(JobRequests).take(), self.effects.migrating)

        # 4. The decision becomes a fact, if this instance still leads; plans come before their moves.
        plans = await self._record_plans(plan_drafts(chosen, moves), position, term)
        moves = [move for move in moves if not move.plan or move.plan in plans]
        closed = closed_nodes(outcome.proposals, {each.pod.node for each in chosen})
        changed = detector_changes(detectors_of(memory), self.shared.of(Detectors).states)
        decided = decision(cluster.now, moves, closed, changed, report_positions(cluster))
        if not await self._record(decided, position, term):
            return None

        # 5. It is carried out.
        if LookAtDrains() in outcome.proposals:
            self.drains_wanted.set()
        await self.effects.close(closed, term)
        refused = await self.effects.move(moves, cluster, position, term)
        if moves or closed:
            await self._record([RoundCarriedOut(refused=sorted(refused))], position, term)
        for costs in decided_costs(cluster.now, outcome.proposals, self.effects.refused_costs(now), cluster):
            if not (
                await self._record([costs], position, term, COSTS) and await self._set_costs(costs, position, term)
            ):
                break  # the next round decides the other costs again
        tried = self.builder.state.of_kind(RoundsState).get(DRY_RUNS.id)
        await self._record(dry_run_changes(cluster.now, outcome.attempts, tried), position, term, DRY_RUNS)
        known = self.builder.state.of_kind(RoundsState).get(REFUSALS.id)
        refusals = refusals_of(cluster.now, outcome.attempts, self._refused, self.limiter)
        await self._record(refusal_changes(refusals, known), position, term, REFUSALS)
        self.metrics.count(outcome.attempts, refused)
        self.metrics.classify(outcome.classified)

        # 6. Say what happened.
        for fault in outcome.faults:
            self.logger.error("plugin_failed", profile=fault.profile, plugin=fault.plugin, error=fault.text)
        story = round_ended(
            outcome,
            self.limiter,
            self._refused,
            seconds=seconds,
            nodes=len(cluster.nodes),
            is_dry_run=self.is_dry_run,
            left_out=self._left_out,
        )
        await self.teller.tell(story, refusals.found.values(), position, term)
        self.done += 1
        if outcome.attempts:
            self.logger.info("round", evictions=len(chosen) - len(refused), attempts=len(outcome.attempts))
        return outcome

    async def _record_plans(self, drafts: Iterable[Draft], position: int, term: Term) -> frozenset[str]:
        """Append the plans of a round, and return the ids of those that the log has stored."""
        return frozenset(
            [
                draft.ref.id
                for draft in drafts
                if await self.facts.append([draft], f"round/{position}/{draft.ref}", position, term) is not None
            ]
        )

    async def _set_costs(self, decided: DeletionCostsDecided, position: int, term: Term) -> bool:
        """Write the deletion costs that a round has decided, and record the outcome.

        Returns:
            Whether the manager has answered.
        """
        refused, is_answered = await self.effects.set_costs(decided.costs, self.clock.now().timestamp(), term)
        await self._record([DeletionCostsCarriedOut(refused=refused)], position, term, COSTS)
        return is_answered

    async def _record(self, events: Iterable[Event], position: int, term: Term, ref: AggregateRef = ROUNDS) -> bool:
        """Append facts of a round one after the other, and wait until they are folded. Return whether all are stored.

        Two facts of one aggregate cannot be one append. A kill in between leaves the pods of the later facts where they
        are.
        """
        last = self.builder.state.last_seq(ref)
        for event in events:
            cause = f"round/{position}/{type(event).__name__}/{last}"
            stored = await self.facts.append([Draft(ref, event, last)], cause, position, term)
            if stored is None:
                return False
            last = stored.last_seq
        await self.leading.folded(last)
        return True

    def _memory(self) -> RoundsState | None:
        return self.builder.state.of_kind(RoundsState).get(ROUNDS.id)
