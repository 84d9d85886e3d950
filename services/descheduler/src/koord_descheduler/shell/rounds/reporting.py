"""Report a round: record dry runs and refusals, count, log, and explain."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from koordcore.events.descheduling import DRY_RUNS, REFUSALS
from koordcore.ports.leadership import Term
from koordcore.service.telemetry.logging import Logger

from koord_descheduler.domain.framework.eviction import EvictionLimiter
from koord_descheduler.domain.reporting.round_story import round_ended
from koord_descheduler.domain.round_memory import dry_run_changes, refusal_changes, refusals_of
from koord_descheduler.shell.metrics import DeschedulerMetrics
from koord_descheduler.shell.rounds.deciding import RoundDecision, RoundStart
from koord_descheduler.shell.rounds.explaining import RoundExplanations
from koord_descheduler.shell.rounds.facts import RoundFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReporter:
    """Reports rounds.

    Attributes:
        facts: Records dry runs and refusals.
        explanations: Publishes rounds as explanations.
        metrics: Metrics of the service.
        logger: Logger of the service.
        limiter: Limits on the evictions of a round.
        is_dry_run: Whether evictions are counted and not carried out.
    """

    facts: RoundFacts
    explanations: RoundExplanations
    metrics: DeschedulerMetrics
    logger: Logger
    limiter: EvictionLimiter
    is_dry_run: bool

    async def report(
        self, decided: RoundDecision, start: RoundStart, staying: Set[str], left_out: Sequence[str], term: Term
    ) -> None:
        """Report a round that was carried out.

        Args:
            decided: What it decided.
            start: What it began with.
            staying: Uids of pods that stay, because log or manager refused.
            left_out: Why profiles were left out.
            term: The term of the leader.
        """
        outcome, now, position = decided.outcome, start.cluster.now, start.position
        tried = self.facts.memory(DRY_RUNS)
        await self.facts.record(dry_run_changes(now, outcome.attempts, tried), position, term, DRY_RUNS)
        known = self.facts.memory(REFUSALS)
        refusals = refusals_of(now, outcome.attempts, decided.refused, self.limiter)
        await self.facts.record(refusal_changes(refusals, known), position, term, REFUSALS)
        self.metrics.count(outcome.attempts, staying)
        self.metrics.classify(outcome.classified)
        for fault in outcome.faults:
            self.logger.error("plugin_failed", profile=fault.profile, plugin=fault.plugin, error=fault.text)
        story = round_ended(
            outcome,
            self.limiter,
            decided.refused,
            seconds=decided.seconds,
            nodes=len(start.cluster.nodes),
            is_dry_run=self.is_dry_run,
            left_out=left_out,
        )
        await self.explanations.publish(story, refusals.found.values(), position, term)
        if outcome.attempts:
            evictions = len(decided.moves) - len(staying)
            self.logger.info("round", evictions=evictions, attempts=len(outcome.attempts))
