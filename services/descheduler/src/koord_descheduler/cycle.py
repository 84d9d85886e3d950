"""The main loop: a round every interval, on the leader.

All instances fold the log, only the leader decides. A round runs in a thread over an immutable view, so that the fold
and the pages answer meanwhile.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from koordcore.bus.folds.runner import FoldRunner
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Origin
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import MOST_AT_ONCE, Appended, Conflict, EventLog
from koordcore.ports.leadership import Term
from koordcore.protocol.selectors import Selector
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import Logger
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339

from koord_descheduler.domain.effects import eviction_draft, eviction_ref, is_to_carry_out
from koord_descheduler.domain.framework.eviction import Attempt, EvictionLimiter
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.framework.round import Profile, RoundOutcome, run_round
from koord_descheduler.domain.migration.jobs import JobsInFlight
from koord_descheduler.domain.plugins.evictors.migration_controller import JobRequests, job_of_pod
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.shell.folding import ViewFold
from koord_descheduler.shell.leading import Leading
from koord_descheduler.shell.metrics import DeschedulerMetrics


@dataclass(slots=True, kw_only=True)
class Rounds:
    """Runs the rounds of a configuration.

    Attributes:
        builder: The folded cluster.
        runner: Folds the log into `builder`.
        log: The log.
        leading: Whether this instance may decide.
        clock: Clock of the run.
        logger: Logger of the service.
        metrics: Metrics of the service.
        actor: Name of this instance in the facts that it writes.
        interval: Seconds from the start of a round to the start of the next; 0: one round per term.
        is_dry_run: Whether evictions are counted and not carried out.
        nodes: Selects the nodes of the rounds.
        limiter: Budgets of a round.
        make: Makes the profiles when the first term begins.
        methods: Profile -> how its pods are evicted.
        shared: What the plugins share.
        done: Number of finished rounds.
        begun: Number of rounds that have begun, also those of a cluster that is too small.
    """

    builder: ViewBuilder
    runner: FoldRunner[ViewFold]
    log: EventLog
    leading: Leading
    clock: Clock
    logger: Logger
    metrics: DeschedulerMetrics
    actor: str
    interval: float
    is_dry_run: bool
    nodes: Selector
    limiter: EvictionLimiter
    make: Callable[[SharedState], Sequence[Profile]]
    methods: dict[str, str]
    shared: SharedState
    done: int = 0
    begun: int = 0
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _waiting: list[asyncio.Future[None]] = field(default_factory=list["asyncio.Future[None]"], init=False)
    _ended: dict[AggregateRef, int] = field(default_factory=dict[AggregateRef, int], init=False)
    """Aggregate of an eviction that failed before -> sequence of its last event, as the log said it."""

    async def run(self) -> None:
        """Run a round at the start of each interval while this instance leads. Never return; the caller cancels it.

        Raises:
            InvalidInput: The profiles cannot be made, for example because a PriorityClass does not exist.
        """
        await self.runner.caught_up()
        self.shared.priority_classes = self.builder.priority_classes()
        profiles = self.make(self.shared)
        while True:
            term = await self.leading.term()
            began = self.clock.monotonic()
            waiting, self._waiting = self._waiting, []
            self._wanted.clear()
            self.begun += 1
            await self.round(profiles, term)
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
            await self._rest(began, term)

    async def run_now(self) -> None:
        """Run a round besides those of the interval, and wait until it has ended. Rounds never overlap."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._wanted.set()
        await waiter

    async def _rest(self, began: float, term: Term) -> None:
        """Wait until the next round is due, or until somebody wants one."""
        if self.interval:
            pause = self.clock.sleep(max(0.0, began + self.interval - self.clock.monotonic()))
        else:
            pause = self.leading.lost(term)
        tasks: set[asyncio.Future[Any]] = {asyncio.ensure_future(pause), asyncio.ensure_future(self._wanted.wait())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def round(self, profiles: Sequence[Profile], term: Term) -> RoundOutcome | None:
        """Run one round and append its evictions. Return what it decided; None if the cluster is too small."""
        # 1. The view of this moment, and the evictions that are still under way.
        cluster = self.builder.view(self.clock.now().timestamp())
        position = self.builder.state.position
        pods = cluster.pod_by_uid
        self.shared.of(JobsInFlight).replace(
            job_of_pod(uid, pods[uid]) for uid in self.builder.evictions() if uid in pods
        )

        # 2. The plugins decide, in a thread.
        began = SystemClock().monotonic()
        try:
            outcome = await asyncio.to_thread(
                run_round, profiles, cluster, self.limiter, nodes=self.nodes, is_dry_run=self.is_dry_run
            )
        except InvalidInput as error:
            self.logger.warning("round_refused", reason=str(error))
            return None
        finally:
            self.metrics.round_seconds.observe(SystemClock().monotonic() - began)
        self.shared.of(JobRequests).requests.clear()

        # 3. What they ask for becomes facts, if this instance still leads.
        chosen = [attempt for attempt in outcome.attempts if is_to_carry_out(attempt)]
        refused = await self._append(chosen, position, term)
        self.metrics.count(outcome.attempts, refused)

        # 4. Say what happened.
        for fault in outcome.faults:
            self.logger.error("plugin_failed", profile=fault.profile, plugin=fault.plugin, error=fault.text)
        self.done += 1
        if outcome.attempts:
            self.logger.info("round", evictions=len(chosen) - len(refused), attempts=len(outcome.attempts))
        return outcome

    async def _append(self, attempts: Sequence[Attempt], position: int, term: Term) -> frozenset[str]:
        """Append the eviction of each pod, and return the uids of the pods whose eviction the log did not store.

        A pod whose eviction somebody else requested meanwhile is refused alone.
        """
        refused: set[str] = set()
        for begin in range(0, len(attempts), MOST_AT_ONCE):
            part = attempts[begin : begin + MOST_AT_ONCE]
            if not await self._stored(part, position, term):
                for attempt in part:
                    if len(part) == 1 or not await self._stored([attempt], position, term):
                        refused.add(attempt.pod.uid)
        return frozenset(refused)

    async def _stored(self, attempts: Sequence[Attempt], position: int, term: Term) -> bool:
        if self.leading.is_over(term):
            return False
        drafts = [
            eviction_draft(attempt, self.methods, self._ended.get(eviction_ref(attempt.pod), 0)) for attempt in attempts
        ]
        origin = Origin(
            causation_id=f"round/{position}/{attempts[0].pod.uid}",
            correlation_id=attempts[0].pod.uid,
            actor=self.actor,
            epoch=term.epoch,
            occurred_at=rfc3339(self.clock.now()),
            based_on=position,
        )
        outcome = await self.log.append(CATALOGUE.seal(drafts, origin))
        if isinstance(outcome, Conflict):
            self._learn(outcome)
        if not isinstance(outcome, Appended):
            self.logger.warning("evictions_not_stored", pods=len(attempts), outcome=str(outcome))
        return isinstance(outcome, Appended)

    def _learn(self, conflict: Conflict) -> None:
        """Remember the last events of evictions that ended before, so that these pods can be evicted once more.

        An eviction that is still under way, or that this instance has not folded yet, is not learned.
        """
        under_way = self.builder.evictions()
        for ref, seq in conflict.moved:
            if ref.id not in under_way and seq <= self.builder.state.position:
                self._ended[ref] = seq
