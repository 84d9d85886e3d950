"""Publish what rounds saw, decided and refused, to the stream of explanations."""

from collections.abc import Iterable
from typing import Final

from koordcore.events.descheduling import EvictionRefused, RoundEnded
from koordcore.events.envelope import AggregateRef, Event, Origin
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import ObservationLog
from koordcore.ports.leadership import Term
from koordcore.values.timestamps import rfc3339

from koord_descheduler.domain.reporting.round_story import is_news

ROUND: Final = AggregateRef("round", "descheduler")
QUIET_SECONDS: Final = 60.0
"""Time after which a round is published although it is like the round before."""
REFUSAL_SECONDS: Final = 86_400.0
"""Time after which a refusal is published again although it is the same, because the stream forgets after some days."""


class RoundExplanations:
    """Publishes the explanations of rounds, and of the pods that they refuse, under the uid of the pod.

    A round equal to the last one is left out for a minute, a refusal for a day. Another leader publishes them again.

    Args:
        explanations: Stream of explanations.
        clock: Clock of the run.
        actor: Name of this instance.
    """

    def __init__(self, explanations: ObservationLog, clock: Clock, actor: str) -> None:
        self._explanations = explanations
        self._clock = clock
        self._actor = actor
        self._last: RoundEnded | None = None
        self._published = 0.0
        self._refusals: dict[str, tuple[list[str], float]] = {}  # choice -> codes, and when they were published

    async def publish(self, story: RoundEnded, refused: Iterable[EvictionRefused], position: int, term: Term) -> None:
        """Publish a round and what it refused.

        Args:
            story: The round.
            refused: The pods that stay.
            position: Position of the log on which it is based.
            term: The term of the leader.
        """
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
