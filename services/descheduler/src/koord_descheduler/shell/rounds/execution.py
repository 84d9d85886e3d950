"""Order the effects of recorded decisions, and record the outcome.

The next leader continues what a killed one has decided. The single effects are in `shell.rounds.effects`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from koordcore.events.descheduling import (
    COSTS,
    DeletionCostsCarriedOut,
    DeletionCostsDecided,
    RoundCarriedOut,
    RoundMove,
)
from koordcore.ports.clock import Clock
from koordcore.ports.leadership import Term
from koordcore.service.telemetry.logging import Logger

from koord_descheduler.domain.framework.proposals import LookAtDrains, Proposal
from koord_descheduler.domain.round_memory import decided_costs
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.shell.rounds.deciding import RoundDecision, RoundStart
from koord_descheduler.shell.rounds.effects import RoundEffects
from koord_descheduler.shell.rounds.facts import RoundFacts
from koord_descheduler.shell.views import views_are_current


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundExecution:
    """Carries out recorded decisions of rounds.

    Attributes:
        builder: The folded cluster.
        facts: Records the outcomes.
        effects: Sends the requests to the manager, and appends evictions.
        clock: Clock of the run.
        logger: Logger of the service.
        drains_wanted: Is set if a plugin asks for a look at all drains.
    """

    builder: ViewBuilder
    facts: RoundFacts
    effects: RoundEffects
    clock: Clock
    logger: Logger
    drains_wanted: asyncio.Event

    async def resume(self, term: Term) -> None:
        """Carry out what the last round decided, if its leader was killed before it had done so."""
        costs = self.facts.memory(COSTS)
        if costs is not None and costs.costs is not None:
            await self._set_costs(costs.costs, self.builder.state.position, term)
            self.logger.info("deletion_costs_finished", pods=len(costs.costs.costs), started_at=costs.costs.started_at)
        memory = self.facts.memory()
        if memory is None or not (memory.moves or memory.closed):
            return
        await views_are_current(self.builder)
        cluster, position = self.builder.view(self.clock.now().timestamp()), self.builder.state.position
        under_way = self.builder.evictions()
        self.logger.info("round_finished", moves=len(memory.moves), started_at=memory.started_at)
        left = [move for move in memory.moves if move.uid not in under_way]
        await self._move(left, memory.closed, cluster, position, term)

    async def carry_out(self, decided: RoundDecision, start: RoundStart, term: Term) -> frozenset[str]:
        """Carry out a recorded decision. Return the uids of pods that stay, because log or manager refused.

        Deletion costs are recorded here, each part before it is written.
        """
        proposals = decided.outcome.proposals
        if LookAtDrains() in proposals:
            self.drains_wanted.set()
        refused = frozenset[str]()
        if decided.moves or decided.closed:
            refused = await self._move(decided.moves, decided.closed, start.cluster, start.position, term)
        await self._change_costs(proposals, start, term)
        return refused

    async def _move(
        self, moves: Sequence[RoundMove], closed: Iterable[str], cluster: ClusterView, position: int, term: Term
    ) -> frozenset[str]:
        """Close nodes, ask for the moves, and record the outcome."""
        await self.effects.close(closed, term)
        refused = await self.effects.move(moves, cluster, position, term)
        await self.facts.record([RoundCarriedOut(refused=sorted(refused))], position, term)
        return refused

    async def _change_costs(self, proposals: Sequence[Proposal], start: RoundStart, term: Term) -> None:
        """Record and write the deletion costs that a round proposes, until the log or the manager does not answer.

        The next round decides the other ones again.
        """
        cluster, position = start.cluster, start.position
        refused = self.effects.refused_costs(cluster.now)
        for costs in decided_costs(cluster.now, proposals, refused, cluster):
            if not (
                await self.facts.record([costs], position, term, COSTS) and await self._set_costs(costs, position, term)
            ):
                break

    async def _set_costs(self, decided: DeletionCostsDecided, position: int, term: Term) -> bool:
        """Write the deletion costs that a round has decided, and record the outcome.

        Returns:
            Whether the manager has answered.
        """
        refused, is_answered = await self.effects.set_costs(decided.costs, self.clock.now().timestamp(), term)
        await self.facts.record([DeletionCostsCarriedOut(refused=refused)], position, term, COSTS)
        return is_answered
