"""Publish the explanations of rounds to the stream of explanations."""

from typing import Final

from koordcore.events.descheduling.rounds import RoundEnded
from koordcore.events.envelope import AggregateRef, Origin
from koordcore.ports.clock import Clock
from koordcore.ports.leadership import Term
from koordcore.ports.observations import ObservationLog
from koordcore.values.timestamps import rfc3339

from koord_descheduler.domain.reporting.round_story import is_news

ROUND: Final = AggregateRef("round", "descheduler")
QUIET_SECONDS: Final = 60.0
"""Time after which a round is published although it is like the round before."""


class RoundTeller:
    """Publishes the explanations of rounds. An explanation equal to the last one is left out for a minute.

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
        self._told = 0.0

    async def tell(self, story: RoundEnded, position: int, term: Term) -> None:
        """Publish a round.

        Args:
            story: The round.
            position: Position of the log on which it is based.
            term: The term of the leader.
        """
        now = self._clock.now()
        if not is_news(story, self._last) and now.timestamp() - self._told < QUIET_SECONDS:
            return
        self._last, self._told = story, now.timestamp()
        origin = Origin(
            causation_id=f"round/{position}/{now.timestamp()}",
            correlation_id=ROUND.id,
            actor=self._actor,
            epoch=term.epoch,
            occurred_at=rfc3339(now),
            based_on=position,
        )
        await self._explanations.publish(ROUND, story, origin)
