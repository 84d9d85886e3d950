"""Carry out recorded decisions: close nodes, create jobs, append evictions, write deletion costs, record the outcome.

Each effect may be repeated: objects have fixed names, and the log stores the request to evict a pod once. So the next
leader carries out again what a killed one has decided.

Source:
    descheduler spec, 5.1, 7.2, 14
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from koordcore.events.descheduling import (
    COSTS,
    DeletionCostsCarriedOut,
    DeletionCostsDecided,
    PodCost,
    RoundCarriedOut,
    RoundMove,
)
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import MOST_AT_ONCE
from koordcore.ports.leadership import Term
from koordcore.requests.objects import ChangeNode, ChangeResult
from koordcore.service.telemetry.logging import Logger

from koord_descheduler.domain.framework.plugin import LookAtDrains, Proposal
from koord_descheduler.domain.jobs.arguments import MigrationControllerArgs
from koord_descheduler.domain.jobs.controller import creation
from koord_descheduler.domain.jobs.in_flight import JobInFlight, job_of_pod
from koord_descheduler.domain.rounds.effects import cost_patch, eviction_draft, eviction_ref
from koord_descheduler.domain.rounds.memory import RoundDecision, RoundStart, decided_costs
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.shell.facts import FactWriter, RoundFacts
from koord_descheduler.shell.folding import views_are_current
from koord_descheduler.shell.leading import Leading
from koord_descheduler.shell.object_writer import NotWritten, ObjectWriter

_CHANGES_AT_ONCE: Final = 100
"""Changes in one request to the manager."""
_REFUSED_SECONDS: Final = 600.0
"""Time for which a refused change of a deletion cost is not tried again."""
_UNSEEN_SECONDS: Final = 60.0
"""Time after which a created job that was never folded counts no more. An API server tells of it later."""


@dataclass(slots=True, kw_only=True)
class RoundEffects:
    leading: Leading
    facts: FactWriter
    writer: ObjectWriter
    # Profile whose pods leave by migration jobs -> arguments of its MigrationController.
    migrating: Mapping[str, MigrationControllerArgs]
    installation: str  # Id of this installation, the same after a restart
    logger: Logger
    _created: dict[str, tuple[JobInFlight, float]] = field(
        default_factory=dict[str, tuple[JobInFlight, float]], init=False
    )
    """Name of a job that was created and is not folded yet -> the job, and Unix seconds of its creation."""
    _refused: dict[PodCost, float] = field(default_factory=dict[PodCost, float], init=False)
    """Change of a deletion cost that was refused -> Unix seconds."""

    async def move(self, moves: Sequence[RoundMove], cluster: ClusterView, position: int, term: Term) -> frozenset[str]:
        """Ask for the moves of a round. Return the uids of pods that stay, because log or manager refused.

        Pods that do not exist any more are left out: the moves may be older than `cluster`.
        """
        existing = [move for move in moves if move.uid in cluster.pod_by_uid]
        direct = [move for move in existing if not move.job]
        by_job = [move for move in existing if move.job]
        return await self._evict(direct, position, term) | await self._create(by_job, cluster, term)

    async def close(self, nodes: Iterable[str], term: Term) -> None:
        """If a node cannot be closed, log it; the next round proposes it again. No-op if the term is over."""
        changes = [ChangeNode(name=name, unschedulable=True) for name in nodes]
        try:
            for begin in range(0, len(changes), _CHANGES_AT_ONCE):
                if self.leading.is_over(term):
                    return
                for outcome in await self.writer.change(changes[begin : begin + _CHANGES_AT_ONCE]):
                    if outcome.result is ChangeResult.REFUSED:
                        self.logger.warning("change_refused", reason=outcome.message)
        except NotWritten as error:
            self.logger.warning("changes_not_made", changes=len(changes), reason=str(error))

    async def set_costs(self, costs: Sequence[PodCost], now: float, term: Term) -> tuple[dict[str, str], bool]:
        """Write the deletion costs of pods, until the manager does not answer. `now`: Unix seconds.

        Return the uid of each pod that keeps its deletion cost -> the reason; and whether the manager has answered. If
        it has not, each further request would hold up the round for as long.
        """
        refused: dict[str, str] = {}
        for begin in range(0, len(costs), _CHANGES_AT_ONCE):
            part = costs[begin : begin + _CHANGES_AT_ONCE]
            try:
                if self.leading.is_over(term):
                    raise NotWritten("this instance does not lead any more")
                outcomes = await self.writer.change([cost_patch(each) for each in part])
            except NotWritten as error:
                return refused | {each.uid: str(error) for each in costs[begin:]}, False
            for cost, outcome in zip(part, outcomes, strict=True):
                if outcome.result is not ChangeResult.DONE:
                    refused[cost.uid] = outcome.message or str(outcome.result)
                    self._refused[cost] = now
        return refused, True

    def refused_costs(self, now: float) -> Set[PodCost]:
        """The changes of deletion costs that the API server refused a short time ago. Older ones are forgotten."""
        self._refused = {cost: at for cost, at in self._refused.items() if now - at < _REFUSED_SECONDS}
        return self._refused.keys()

    def unseen(self, seen: Set[str], now: float) -> Iterator[JobInFlight]:
        """Yield the created jobs that the fold does not have yet, and forget the others.

        `seen`: names of the folded jobs.
        """
        for name, (job, since) in list(self._created.items()):
            if name in seen or now - since > _UNSEEN_SECONDS:
                del self._created[name]
            else:
                yield job

    async def _evict(self, moves: Sequence[RoundMove], position: int, term: Term) -> frozenset[str]:
        """Append the eviction of each pod. Return the uids of the pods whose eviction the log did not store.

        A pod whose eviction somebody else requested meanwhile is refused alone.
        """
        refused: set[str] = set()
        for begin in range(0, len(moves), MOST_AT_ONCE):
            part = moves[begin : begin + MOST_AT_ONCE]
            if not await self._is_stored(part, position, term):
                for move in part:
                    if len(part) == 1 or not await self._is_stored([move], position, term):
                        refused.add(move.uid)
        return frozenset(refused)

    async def _is_stored(self, moves: Sequence[RoundMove], position: int, term: Term) -> bool:
        drafts = [eviction_draft(move, self.facts.last_eviction(eviction_ref(move))) for move in moves]
        cause = f"round/{position}/{moves[0].uid}"
        return await self.facts.append(drafts, cause, position, term) is not None

    async def _create(self, moves: Sequence[RoundMove], cluster: ClusterView, term: Term) -> frozenset[str]:
        """Create the jobs of a round. Return the uids of the pods whose job was not created.

        If the manager does not answer, the other jobs are not tried: each request would hold up the round for as long.
        """
        known = [move for move in moves if move.profile in self.migrating]
        refused = {move.uid for move in moves if move.profile not in self.migrating}
        for begin in range(0, len(known), _CHANGES_AT_ONCE):
            part = known[begin : begin + _CHANGES_AT_ONCE]
            changes = [creation(move, self.migrating[move.profile], self.installation) for move in part]
            try:
                if self.leading.is_over(term):
                    raise NotWritten("this instance does not lead any more")
                outcomes = await self.writer.change(changes)
            except NotWritten as error:
                left = known[begin:]
                self.logger.warning("jobs_not_created", jobs=len(left), reason=str(error))
                return frozenset(refused | {move.uid for move in left})
            for move, outcome in zip(part, outcomes, strict=True):
                if outcome.result in (ChangeResult.DONE, ChangeResult.EXISTS):
                    self._created[move.job] = job_of_pod(move.job, cluster.pod_by_uid[move.uid]), cluster.now
                else:
                    self.logger.warning("job_refused", pod=f"{move.namespace}/{move.name}", reason=outcome.message)
                    refused.add(move.uid)
        return frozenset(refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundExecution:
    builder: ViewBuilder
    facts: RoundFacts
    effects: RoundEffects  # Sends the requests to the manager, and appends evictions
    clock: Clock
    logger: Logger
    drains_wanted: asyncio.Event  # Is set if a plugin asks for a look at all drains

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
        """Return the uids of pods that stay, because log or manager refused.

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
        """Return whether the manager has answered."""
        refused, is_answered = await self.effects.set_costs(decided.costs, self.clock.now().timestamp(), term)
        await self.facts.record([DeletionCostsCarriedOut(refused=refused)], position, term, COSTS)
        return is_answered
