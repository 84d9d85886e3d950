"""Appends facts of the descheduler, if this instance leads, and knows which evictions ended before."""

from collections.abc import Iterator, Sequence
from typing import Final

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import MOST_AT_ONCE, Appended, Conflict, EventLog, Unsendable
from koordcore.ports.leadership import Term
from koordcore.service.telemetry.logging import Logger
from koordcore.values.newest import Newest
from koordcore.values.timestamps import rfc3339

from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.shell.leading import Leading

MOST_ENDED: Final = 1024
"""Maximum number of ended evictions whose last position is remembered after a conflict."""


class FactWriter:
    """Appends facts in atomic batches, if this instance still leads.

    Args:
        builder: The folded cluster.
        leading: Whether this instance may decide.
        log: The log.
        clock: Clock of the run.
        logger: Logger of the service.
        actor: Name of this instance in the facts that it writes.
    """

    def __init__(
        self,
        builder: ViewBuilder,
        leading: Leading,
        log: EventLog,
        clock: Clock,
        logger: Logger,
        actor: str,
    ) -> None:
        self._builder = builder
        self._leading = leading
        self._log = log
        self._clock = clock
        self._logger = logger
        self._actor = actor
        self._ended = Newest[AggregateRef, int](MOST_ENDED)

    def last_eviction(self, ref: AggregateRef) -> int:
        """Return the sequence of the last event of an eviction that has ended before; 0 if none is known.

        The fold drops an eviction that has ended. So the sequence is only known after the log refused an append.
        """
        return self._ended.get(ref, 0)

    async def append(self, drafts: Sequence[Draft], causation: str, position: int, term: Term) -> Appended | None:
        """Append facts as one batch. None: this instance leads no more, or the log did not store them.

        Args:
            drafts: The facts; at least one.
            causation: Id of their cause. Facts with the same causation id are stored once.
            position: Position of the log on which they are based.
            term: The term in which they were decided.
        """
        if self._leading.is_over(term):
            return None
        origin = Origin(
            causation_id=causation,
            correlation_id=drafts[0].ref.id,
            actor=self._actor,
            epoch=term.epoch,
            occurred_at=rfc3339(self._clock.now()),
            based_on=position,
        )
        try:
            outcome = await self._log.append(CATALOGUE.seal([*drafts], origin))
        except Unsendable as error:  # decided again, it would be refused again; other facts can be stored
            self._logger.error("facts_refused", facts=len(drafts), reason=str(error))
            return None
        if isinstance(outcome, Appended):
            return outcome
        if isinstance(outcome, Conflict):
            self._learn(outcome)
        self._logger.warning("facts_not_stored", facts=len(drafts), outcome=str(outcome))
        return None

    def _learn(self, conflict: Conflict) -> None:
        """Remember the last events of evictions that ended before, so that these pods can be evicted once more.

        An eviction that is still under way, or that this instance has not folded yet, is not learned.
        """
        under_way = self._builder.evictions()
        for ref, seq in conflict.moved:
            if ref.kind == "eviction" and ref.id not in under_way and seq <= self._builder.state.position:
                self._ended[ref] = seq


def batches(steps: Sequence[Sequence[Draft]]) -> Iterator[list[Sequence[Draft]]]:
    """Yield the steps in batches that the log takes at once."""
    batch: list[Sequence[Draft]] = []
    facts = 0
    for step in steps:
        if facts + len(step) > MOST_AT_ONCE:
            yield batch
            batch, facts = [], 0
        batch.append(step)
        facts += len(step)
    if batch:
        yield batch
