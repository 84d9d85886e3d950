"""Decide a round: take the view of the cluster, let the plugins choose pods, and let the scheduler prove the moves."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from koordcore.events.envelope import Event
from koordcore.ports.clock import Clock
from koordcore.protocol.selectors import Selector
from koordcore.service.clock import SystemClock
from koordcore.service.health import WorkWatch
from koordcore.service.telemetry.logging import Logger
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.framework.eviction import EvictionLimiter
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.framework.round import Profile, run_round
from koord_descheduler.domain.jobs.in_flight import JobsInFlight, counted_jobs, migrating_pods
from koord_descheduler.domain.jobs.plugin import JobRequests
from koord_descheduler.domain.jobs.viewing import all_jobs
from koord_descheduler.domain.plugins.low_node_load.anomaly import Detectors
from koord_descheduler.domain.rounds.effects import closed_nodes, is_to_carry_out, plan_drafts
from koord_descheduler.domain.rounds.memory import (
    RoundDecision,
    RoundStart,
    decision,
    detector_changes,
    detectors_of,
    moves_of,
    report_positions,
)
from koord_descheduler.domain.rounds.reporting import Refused
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.shell.facts import RoundFacts
from koord_descheduler.shell.folding import views_are_current
from koord_descheduler.shell.metrics import DeschedulerMetrics
from koord_descheduler.shell.rounds.execution import RoundEffects
from koord_descheduler.shell.rounds.proving import Prover
from koord_descheduler.shell.waiting import Problem


@dataclass(slots=True, kw_only=True)
class RoundDecider:
    """Decides rounds. It has no effect on the cluster."""

    builder: ViewBuilder
    facts: RoundFacts  # What earlier rounds have left
    effects: RoundEffects  # Knows created jobs that the fold does not have yet, and profiles whose pods leave by jobs
    clock: Clock
    logger: Logger
    metrics: DeschedulerMetrics
    shared: SharedState
    nodes: Selector
    limiter: EvictionLimiter
    prover: Prover  # Asks the scheduler where evicted pods would land
    watch: WorkWatch  # Liveness check of the plugins, of which one may hang
    is_dry_run: bool  # Whether evictions are counted and not carried out
    _too_small: Problem = field(init=False)

    def __post_init__(self) -> None:
        self._too_small = Problem("round_refused", self.logger)

    async def begin(self) -> RoundStart:
        """The view of this moment, with the jobs and evictions that are still under way, and the memory.

        The plugins find the jobs in flight and the anomaly detectors in the state that they share.
        """
        await views_are_current(self.builder)
        now, jobs = self.clock.now().timestamp(), all_jobs(self.builder)
        unseen = list(self.effects.unseen({job.name for job in jobs}, now))
        migrating = [*migrating_pods(jobs, self.builder), *(job.pod_uid for job in unseen)]
        cluster = self.builder.view(now, migrating)
        position = self.builder.state.position
        await asyncio.to_thread(getattr, cluster, "pod_by_uid")  # an index over all pods; the event loop goes on
        self.shared.of(JobsInFlight).replace([*counted_jobs(jobs, self.builder.evictions(), cluster), *unseen])
        memory = self.facts.memory()
        self.shared.of(Detectors).states = detectors_of(memory)
        return RoundStart(cluster, position, memory)

    async def decide(self, profiles: Sequence[Profile], start: RoundStart) -> RoundDecision | None:
        """Let the plugins choose pods, in a thread, and let the scheduler prove the moves of the profiles that want it.

        Return None if fewer than two nodes are ready and selected.
        """
        cluster = start.cluster
        refused = Refused()
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
                    refused=refused.note_filtered,
                )
        except InvalidInput as error:
            self._too_small.lasts(str(error))
            return None
        finally:
            seconds = SystemClock().monotonic() - began
            self.metrics.round_seconds.observe(seconds)
        self._too_small.is_over()
        refused.note_attempts(outcome.attempts)
        outcome.attempts[:] = await self.prover.proved(cluster, outcome.attempts)
        chosen = [attempt for attempt in outcome.attempts if is_to_carry_out(attempt)]
        moves = moves_of(cluster.now, chosen, self.shared.of(JobRequests).take(), self.effects.migrating)
        closed = closed_nodes(outcome.proposals, {each.pod.node for each in chosen})
        return RoundDecision(outcome, moves, plan_drafts(chosen, moves), closed, refused, seconds)

    def events(self, start: RoundStart, decided: RoundDecision) -> Iterator[Event]:
        """With the state in which the round leaves the detectors."""
        changed = detector_changes(detectors_of(start.memory), self.shared.of(Detectors).states)
        return decision(start.cluster.now, decided.moves, decided.closed, changed, report_positions(start.cluster))
