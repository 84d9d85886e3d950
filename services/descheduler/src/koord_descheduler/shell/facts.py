"""Append facts of the descheduler, if this instance leads. Knows which evictions ended before, and what rounds left."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.events import CATALOGUE
from koordcore.events.descheduling import ROUNDS
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import MOST_AT_ONCE, Appended, Conflict, EventLog, Full, Unavailable, Unsendable
from koordcore.ports.leadership import Term
from koordcore.service.telemetry.logging import Logger
from koordcore.state.descheduling import RoundsState
from koordcore.values.newest import Newest
from koordcore.values.timestamps import rfc3339

from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.shell.leading import Leading
from koord_descheduler.shell.waiting import Problem

PAUSE_SECONDS: Final = 10.0
"""Pause before facts are decided again because the log is full or does not answer."""
MOST_ENDED: Final = 1024
"""Maximum number of ended evictions whose last position is remembered after a conflict."""


class FactWriter:
    """Appends facts in atomic batches, if this instance still leads. `actor`: its name in the facts."""

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
        self._full = Problem("log_full", logger)
        # Whether the last append failed because the log is full or does not answer. Others would fail too.
        self.takes_nothing = False

    def last_eviction(self, ref: AggregateRef) -> int:
        """Sequence of the last event of an eviction that has ended before; 0 if none is known.

        The fold drops an eviction that has ended. So the sequence is only known after the log refused an append.
        """
        return self._ended.get(ref, 0)

    async def append(self, drafts: Sequence[Draft], causation: str, position: int, term: Term) -> Appended | None:
        """Append facts, at least one, as one batch. None: this instance leads no more, or the log did not store them.

        That the log is full is logged once.

        Args:
            causation: Id of their cause. Facts with the same causation id are stored once.
            position: Position of the log on which they are based.
        """
        self.takes_nothing = False
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
        self.takes_nothing = isinstance(outcome, Full | Unavailable)
        if isinstance(outcome, Full):
            self._full.lasts(outcome.reason)
            return None
        if isinstance(outcome, Appended):
            self._full.is_over()
            return outcome
        if isinstance(outcome, Conflict):
            self._learn(outcome)
        self._logger.warning("facts_not_stored", facts=len(drafts), outcome=str(outcome))
        return None

    async def append_steps(
        self, steps: Sequence[Sequence[Draft]], causation: str, position: int, term: Term
    ) -> tuple[int, list[Sequence[Draft]]]:
        """Append steps. The facts of a step are stored together or not at all.

        Many steps make one batch. If the log refuses it, each step is appended alone, unless the log takes nothing.

        Args:
            causation: Beginning of the ids of their causes.
            position: Position of the log on which they are based.

        Returns:
            Position of the last fact that was stored, 0 for none, and the steps that were not stored.
        """
        last, refused = 0, list[Sequence[Draft]]()
        for batch in _batches(steps):
            cause = f"{causation}/{batch[0][0].ref}"
            stored = await self.append([draft for step in batch for draft in step], cause, position, term)
            last = last if stored is None else stored.last_seq
            for step in batch if stored is None else ():
                alone = None
                if not self.takes_nothing:
                    alone = await self.append(step, f"{cause}/{step[-1].ref}", position, term)
                if alone is None:
                    refused.append(step)
                else:
                    last = alone.last_seq
        return last, refused

    def _learn(self, conflict: Conflict) -> None:
        """Remember the last events of evictions that ended before, so that these pods can be evicted once more.

        An eviction that is still under way, or that this instance has not folded yet, is not learned.
        """
        under_way = self._builder.evictions()
        for ref, seq in conflict.moved:
            if ref.kind == "eviction" and ref.id not in under_way and seq <= self._builder.state.position:
                self._ended[ref] = seq


def _batches(steps: Sequence[Sequence[Draft]]) -> Iterator[list[Sequence[Draft]]]:
    """Yield steps in batches that the log takes at once."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFacts:
    builder: ViewBuilder
    leading: Leading
    writer: FactWriter

    def memory(self, ref: AggregateRef = ROUNDS) -> RoundsState | None:
        """The folded facts of an aggregate of rounds; None if there are none."""
        return self.builder.state.of_kind(RoundsState).get(ref.id)

    async def record(self, events: Iterable[Event], position: int, term: Term, ref: AggregateRef = ROUNDS) -> bool:
        """Append facts of a round one after the other, and wait until they are folded. Return whether all are stored.

        Two facts of one aggregate cannot be one append. A kill in between leaves the pods of the later facts where they
        are.
        """
        last = self.builder.state.last_seq(ref)
        for event in events:
            cause = f"round/{position}/{type(event).__name__}/{last}"
            stored = await self.writer.append([Draft(ref, event, last)], cause, position, term)
            if stored is None:
                return False
            last = stored.last_seq
        await self.leading.folded(last)
        return True

    async def record_plans(self, drafts: Iterable[Draft], position: int, term: Term) -> frozenset[str]:
        """Return the ids of the plans that the log has stored."""
        return frozenset(
            [
                draft.ref.id
                for draft in drafts
                if await self.writer.append([draft], f"round/{position}/{draft.ref}", position, term) is not None
            ]
        )
