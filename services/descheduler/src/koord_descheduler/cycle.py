"""The main loop: a round every interval, on the leader.

All instances fold the log, only the leader decides. A round runs in a thread over an immutable view, so that the fold
and the pages answer meanwhile.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from koordcore.bus.folds.runner import FoldRunner
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import MOST_AT_ONCE
from koordcore.ports.leadership import Term
from koordcore.protocol.selectors import Selector
from koordcore.requests.objects import ChangeResult, ObjectChange
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import Logger
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.effects import eviction_draft, eviction_ref, is_to_carry_out, proposed_changes
from koord_descheduler.domain.framework.eviction import Attempt, EvictionLimiter
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.framework.round import Profile, RoundOutcome, run_round
from koord_descheduler.domain.job_control.controller import creations
from koord_descheduler.domain.job_control.viewing import JobReader
from koord_descheduler.domain.migration.arbitration import in_flight
from koord_descheduler.domain.migration.jobs import JobInFlight, JobsInFlight
from koord_descheduler.domain.plugins.evictors.migration_controller import JobRequest, JobRequests, job_of_pod
from koord_descheduler.domain.reporting.refusals import Refused, noting
from koord_descheduler.domain.reporting.round_story import round_ended
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.shell.facts import FactWriter
from koord_descheduler.shell.folding import ViewFold
from koord_descheduler.shell.leading import Leading
from koord_descheduler.shell.metrics import DeschedulerMetrics
from koord_descheduler.shell.object_writer import NotWritten, ObjectWriter
from koord_descheduler.shell.proving import Prover
from koord_descheduler.shell.telling import RoundTeller
from koord_descheduler.shell.views import views_are_current

_CHANGES_AT_ONCE: Final = 100
"""Changes in one request to the manager."""
_UNSEEN_SECONDS: Final = 60.0
"""Time after which a created job that was never folded counts no more. An API server tells of it later."""


@dataclass(slots=True, kw_only=True)
class Rounds:
    """Runs the rounds of a configuration.

    Attributes:
        builder: The folded cluster.
        runner: Folds the log into `builder`.
        leading: Whether this instance may decide.
        clock: Clock of the run.
        logger: Logger of the service.
        metrics: Metrics of the service.
        interval: Seconds from the start of a round to the start of the next; 0: one round per term.
        is_dry_run: Whether evictions are counted and not carried out.
        nodes: Selects the nodes of the rounds.
        limiter: Limits on the evictions of a round.
        make: Makes the profiles when the first term begins.
        migrating: Profiles whose pods leave by migration jobs.
        installation: Id of this installation, the same after a restart.
        facts: Appends facts.
        writer: Changes objects.
        shared: State that all plugins share.
        prover: Asks the scheduler where evicted pods would land.
        teller: Publishes the rounds as explanations.
        done: Number of finished rounds.
        begun: Number of rounds that have begun, also those of a cluster that is too small.
    """

    builder: ViewBuilder
    runner: FoldRunner[ViewFold]
    leading: Leading
    clock: Clock
    logger: Logger
    metrics: DeschedulerMetrics
    interval: float
    is_dry_run: bool
    nodes: Selector
    limiter: EvictionLimiter
    make: Callable[[SharedState], Sequence[Profile]]
    migrating: frozenset[str]
    installation: str
    facts: FactWriter
    writer: ObjectWriter
    shared: SharedState
    prover: Prover
    teller: RoundTeller
    done: int = 0
    begun: int = 0
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _waiting: list[asyncio.Future[None]] = field(default_factory=list["asyncio.Future[None]"], init=False)
    _reader: JobReader = field(init=False)
    _refused: Refused = field(default_factory=Refused, init=False)
    _created: dict[str, tuple[JobInFlight, float]] = field(
        default_factory=dict[str, tuple[JobInFlight, float]], init=False
    )
    """Name of a job that was created and is not folded yet -> the job, and Unix seconds of its creation."""

    def __post_init__(self) -> None:
        self._reader = JobReader(self.builder)

    async def run(self) -> None:
        """Run a round at the start of each interval while this instance leads. Never return; the caller cancels it.

        Raises:
            InvalidInput: The profiles cannot be made, for example because a PriorityClass does not exist.
        """
        await self.runner.caught_up()
        self.shared.priority_classes = self.builder.priority_classes()
        profiles = [noting(profile, self._refused) for profile in self.make(self.shared)]
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
        """Wait until the next round is due, `run_now` asks for one, or the term is over."""
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
        """Run one round and append its evictions. Return its decisions; None if the cluster has at most one node."""
        # 1. The view of this moment, and the jobs and evictions that are still under way.
        await views_are_current(self.builder)
        cluster = self.builder.view(self.clock.now().timestamp())
        position = self.builder.state.position
        await asyncio.to_thread(getattr, cluster, "pod_by_uid")  # an index over all pods; the event loop goes on
        self.shared.of(JobsInFlight).replace(self._in_flight(cluster))

        # 2. The plugins decide, in a thread.
        self._refused.clear()
        began = SystemClock().monotonic()
        try:
            outcome = await asyncio.to_thread(
                run_round,
                profiles,
                cluster,
                self.limiter,
                nodes=self.nodes,
                is_dry_run=self.is_dry_run,
                timed=self.metrics.plugin,
            )
        except InvalidInput as error:
            self.logger.warning("round_refused", reason=str(error))
            return None
        finally:
            seconds = SystemClock().monotonic() - began
            self.metrics.round_seconds.observe(seconds)

        # 3. The scheduler proves the moves of the profiles that want it.
        outcome.attempts[:] = await self.prover.proved(cluster, outcome.attempts)
        chosen = [attempt for attempt in outcome.attempts if is_to_carry_out(attempt)]
        moving = {attempt.pod.uid for attempt in chosen}
        requests = [request for request in self.shared.of(JobRequests).take() if request.pod.uid in moving]

        # 4. What they ask for becomes objects and facts, if this instance still leads.
        await self._change(proposed_changes(outcome.proposals, {each.pod.node for each in chosen}, cluster), term)
        direct = [attempt for attempt in chosen if attempt.profile not in self.migrating]
        refused = await self._append(direct, position, term) | await self._create(requests, cluster.now, term)
        self.metrics.count(outcome.attempts, refused, self.migrating)
        self.metrics.classify(outcome.classified)

        # 5. Say what happened.
        for fault in outcome.faults:
            self.logger.error("plugin_failed", profile=fault.profile, plugin=fault.plugin, error=fault.text)
        story = round_ended(
            outcome,
            self.limiter,
            self._refused,
            seconds=seconds,
            nodes=len(cluster.nodes),
            is_dry_run=self.is_dry_run,
        )
        await self.teller.tell(story, position, term)
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
        drafts = [eviction_draft(attempt, self.facts.last_eviction(eviction_ref(attempt.pod))) for attempt in attempts]
        cause = f"round/{position}/{attempts[0].pod.uid}"
        return await self.facts.append(drafts, cause, position, term) is not None

    def _in_flight(self, cluster: ClusterView) -> Iterator[JobInFlight]:
        """Yield the jobs that limits count: all that have not ended, created ones that are not folded, and evictions.

        A requested eviction without a job counts as a job.
        """
        jobs = self._reader.jobs()
        for job in jobs:
            self._created.pop(job.name, None)
            if job.is_in_flight:
                yield in_flight(job, cluster)
        for name, (job, since) in list(self._created.items()):
            if cluster.now - since > _UNSEEN_SECONDS:
                del self._created[name]
            else:
                yield job
        with_job = {job.pod.uid for job in jobs if job.pod is not None and job.is_in_flight}
        pods = cluster.pod_by_uid
        yield from (
            job_of_pod(uid, pods[uid]) for uid in self.builder.evictions() if uid in pods and uid not in with_job
        )

    async def _change(self, changes: Sequence[ObjectChange], term: Term) -> None:
        """Make the changes that plugins proposed. Those that fail are proposed again by the next round."""
        try:
            for begin in range(0, len(changes), _CHANGES_AT_ONCE):
                if self.leading.is_over(term):
                    return
                for outcome in await self.writer.change(changes[begin : begin + _CHANGES_AT_ONCE]):
                    if outcome.result is ChangeResult.REFUSED:
                        self.logger.warning("change_refused", reason=outcome.message)
        except NotWritten as error:
            self.logger.warning("changes_not_made", changes=len(changes), reason=str(error))

    async def _create(self, requests: Sequence[JobRequest], now: float, term: Term) -> frozenset[str]:
        """Create the jobs that a round asks for. Return the uids of the pods whose job was not created."""
        refused: set[str] = set()
        for begin in range(0, len(requests), _CHANGES_AT_ONCE):
            part = requests[begin : begin + _CHANGES_AT_ONCE]
            try:
                if self.leading.is_over(term):
                    raise NotWritten("this instance does not lead any more")
                outcomes = await self.writer.change(creations(part, self.installation))
            except NotWritten as error:
                self.logger.warning("jobs_not_created", jobs=len(part), reason=str(error))
                refused |= {request.pod.uid for request in part}
                continue
            for request, outcome in zip(part, outcomes, strict=True):
                if outcome.result in (ChangeResult.DONE, ChangeResult.EXISTS):
                    self._created[request.name] = job_of_pod(request.name, request.pod), now
                else:
                    self.logger.warning("job_refused", pod=request.pod.key, reason=outcome.message)
                    refused.add(request.pod.uid)
        return frozenset(refused)
