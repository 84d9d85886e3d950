"""Append the facts of rounds, and read what earlier rounds have left in the fold."""

from collections.abc import Iterable
from dataclasses import dataclass

from koordcore.events.descheduling import ROUNDS
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.ports.leadership import Term
from koordcore.state.descheduling import RoundsState

from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.shell.facts import FactWriter
from koord_descheduler.shell.leading import Leading


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFacts:
    """The facts of rounds.

    Attributes:
        builder: The folded cluster.
        leading: Whether this instance may decide.
        writer: Appends facts.
    """

    builder: ViewBuilder
    leading: Leading
    writer: FactWriter

    def memory(self, ref: AggregateRef = ROUNDS) -> RoundsState | None:
        """Return the folded facts of an aggregate of rounds; None if there are none."""
        return self.builder.state.of_kind(RoundsState).get(ref.id)

    async def record(self, events: Iterable[Event], position: int, term: Term, ref: AggregateRef = ROUNDS) -> bool:
        """Append facts of a round one after the other, and wait until they are folded.

        Two facts of one aggregate cannot be one append. A kill in between leaves the pods of the later facts where they
        are.

        Args:
            events: The facts.
            position: Position of the log on which the round is based.
            term: The term of the leader.
            ref: Aggregate of the facts.

        Returns:
            Whether all are stored.
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
        """Append the plans of a round, and return the ids of those that the log has stored."""
        return frozenset(
            [
                draft.ref.id
                for draft in drafts
                if await self.writer.append([draft], f"round/{position}/{draft.ref}", position, term) is not None
            ]
        )
