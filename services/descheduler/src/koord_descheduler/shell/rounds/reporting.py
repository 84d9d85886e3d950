"""Report a round: record dry runs and refusals, count, log, and publish it to the stream of explanations."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Final

from koordcore.events.descheduling import DRY_RUNS, REFUSALS, EvictionRefused, RoundEnded
from koordcore.events.envelope import AggregateRef, Event, Origin
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import ObservationLog
from koordcore.ports.leadership import Term
from koordcore.service.telemetry.logging import Logger
from koordcore.values.timestamps import rfc3339

from koord_descheduler.domain.framework.eviction import EvictionLimiter
from koord_descheduler.domain.rounds.memory import (
    RoundDecision,
    RoundStart,
    dry_run_changes,
    refusal_changes,
    refusals_of,
)
from koord_descheduler.domain.rounds.reporting import is_news, round_ended
from koord_descheduler.shell.facts import RoundFacts
from koord_descheduler.shell.metrics import DeschedulerMetrics

ROUND: Final = AggregateRef("round", "descheduler")
QUIET_SECONDS: Final = 60.0
"""Time after which a round is published although it is like the round before."""
REFUSAL_SECONDS: Final = 86_400.0
"""Time after which a refusal is published again although it is the same, because the stream forgets after some days."""


class RoundExplanations:
    """Publishes the explanations of rounds, and of the pods that they refuse, under the uid of the pod.

    A round equal to the last one is left out for a minute, a refusal for a day. Another leader publishes them again.
    """

    def __init__(self, explanations: ObservationLog, clock: Clock, actor: str) -> None:
        self._explanations = explanations
        self._clock = clock
        self._actor = actor
        self._last: RoundEnded | None = None
        self._published = 0.0
        self._refusals: dict[str, tuple[list[str], float]] = {}  # choice -> codes, and when they were published

    async def publish(self, story: RoundEnded, refused: Iterable[EvictionRefused], position: int, term: Term) -> None:
        moment = self._clock.now()
        now, at = moment.timestamp(), rfc3339(moment)

        async def send(ref: AggregateRef, event: Event, cause: str = "") -> None:
            origin = Origin(
                causation_id=f"round/{position}/{now}{cause}",
                correlation_id=ref.id,
                actor=self._actor,
                epoch=term.epoch,
                occurred_at=at,
                based_on=position,
            )
            await self._explanations.publish(ref, event, origin)

        if is_news(story, self._last) or now - self._published >= QUIET_SECONDS:
            self._last, self._published = story, now
            await send(ROUND, story)
        before, self._refusals = self._refusals, {}
        for each in refused:
            codes, published = before.get(each.move.choice, ([], 0.0))
            if codes != each.codes or now - published >= REFUSAL_SECONDS:
                await send(AggregateRef("refusal", each.move.uid), each, f"/{each.move.choice}")
                published = now
            self._refusals[each.move.choice] = each.codes, published


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReporter:
    facts: RoundFacts
    explanations: RoundExplanations
    metrics: DeschedulerMetrics
    logger: Logger
    limiter: EvictionLimiter
    is_dry_run: bool  # Whether evictions are counted and not carried out

    async def report(
        self, decided: RoundDecision, start: RoundStart, staying: Set[str], left_out: Sequence[str], term: Term
    ) -> None:
        """`staying`: uids of pods that stay, because log or manager refused. `left_out`: why profiles were left out."""
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
