"""Lead migration jobs to their end, on the leader: arbitration every interval, and looks at the jobs that passed.

    jobs ─► look at each ─► changes of objects, by the manager ─► facts of jobs and evictions, in batches

Effects on objects come first. They have fixed names, so a look that is repeated after a kill changes nothing twice. An
eviction is a fact itself: it is stored together with the step of its job, or not at all.

Source:
    descheduler spec, 7.4, 7.5, 7.10
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from koordcore.events.descheduling import Inputs
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.events.migration import (
    SOFT_EVICTION_REFUSED,
    TOO_MANY_EVICTIONS,
    MigrationEnded,
    MigrationForgotten,
    RepackEnded,
    RepackForgotten,
)
from koordcore.ports.clock import Clock
from koordcore.ports.leadership import Term
from koordcore.protocol import keys
from koordcore.requests.objects import ChangeOutcome, ChangeResult, DeleteObject, ObjectChange
from koordcore.service.telemetry.logging import Logger
from koordcore.state.migrations import ROLLED_BACK, MigrationState, RepackState
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import unix_seconds

from koord_descheduler.domain.jobs import recording
from koord_descheduler.domain.jobs.arbitration import arbitration_pass, is_waiting
from koord_descheduler.domain.jobs.controller import KIND, JobController
from koord_descheduler.domain.jobs.effects import Plan, Refusals, asks_again, concluded, plan, soft_eviction
from koord_descheduler.domain.jobs.in_flight import pod_of
from koord_descheduler.domain.jobs.job import ConditionType, MigrationJob
from koord_descheduler.domain.jobs.limits import inputs_of
from koord_descheduler.domain.jobs.passes import INTERVAL, Availability, is_collectable
from koord_descheduler.domain.jobs.plan_steps import is_forgettable, next_step, repack_ref, reservations_of
from koord_descheduler.domain.jobs.state_machine import look
from koord_descheduler.domain.jobs.viewing import JobReader, JobWorld, available_reservations, version_of
from koord_descheduler.domain.jobs.world import RETRY_SECONDS
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.pods import PodView
from koord_descheduler.domain.view.workloads import replicas_of
from koord_descheduler.shell.facts import PAUSE_SECONDS, FactWriter
from koord_descheduler.shell.folding import views_are_current
from koord_descheduler.shell.leading import Leading
from koord_descheduler.shell.metrics import DeschedulerMetrics
from koord_descheduler.shell.object_writer import NotWritten, ObjectWriter, log_refused_deletions
from koord_descheduler.shell.waiting import Problem

_CHANGES_AT_ONCE: Final = 100
"""Changes in one request to the manager."""


@dataclass(slots=True, kw_only=True)
class JobControl:
    """Leads migration jobs to their end.

    Attributes:
        builder: The folded cluster.
        leading: Whether this instance may decide.
        facts: Appends facts.
        clock: Clock of the run.
        logger: Logger of the service.
        metrics: Metrics of the service.
        writer: Changes objects.
        make: Makes the controller when the first term begins. Later terms keep it. It raises InvalidInput while it
            cannot be made, for example because a PriorityClass does not exist; then the jobs wait.
        without_claims: Whether Reservations leave out volumes with a claim (gate DisablePVCReservation).
    """

    builder: ViewBuilder
    leading: Leading
    facts: FactWriter
    clock: Clock
    logger: Logger
    metrics: DeschedulerMetrics
    writer: ObjectWriter
    make: Callable[[], JobController]
    without_claims: bool = False
    _reader: JobReader = field(init=False)
    _controller: JobController | None = field(default=None, init=False)
    _due: dict[str, float] = field(default_factory=dict[str, float], init=False)
    """Uid of a job that waits -> Unix seconds of the next look, if nothing changes before."""
    _seen: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]], init=False)
    """Uid of a job -> the state of objects on which its last step was based, see `version_of`."""
    _refused: Refusals = field(default_factory=Refusals, init=False)
    """Uid of a job of which a change was refused."""
    _collected_at: float = field(default=0.0, init=False)
    _waits: Problem = field(init=False)

    def __post_init__(self) -> None:
        self._reader = JobReader(self.builder)
        self._waits = Problem("jobs_wait", self.logger)

    async def run(self) -> None:
        """Look at all jobs every interval while this instance leads. Never return; the caller cancels it."""
        while True:
            term = await self.leading.term()
            controller = self._controller or self._made()
            if controller is None:
                await self.clock.sleep(RETRY_SECONDS)
                continue
            try:
                await self.look_at_all(controller, term)
            except NotWritten as error:
                self._waits.lasts(str(error))
            else:
                self._waits.is_over()
            interval = controller.args.arbitration_args.interval
            await self.clock.sleep(PAUSE_SECONDS if self.facts.takes_nothing else interval)

    def begin(self) -> None:
        """Begin a term: all jobs are due, and the limits count the evictions that any leader has recorded.

        Rounds use the limits, too, so this happens before the first round of the term.
        """
        self._due.clear()
        self._seen.clear()
        self._refused.clear()
        self._made()

    def _made(self) -> JobController | None:
        """Return the controller, with the recorded evictions. None if it cannot be made now; the reason is logged."""
        try:
            controller = self._controller or self.make()
        except InvalidInput as error:
            self._waits.lasts(str(error))
            return None
        evictions = list(recording.recorded_evictions(self.builder.state.of_kind(MigrationState).values()))
        controller.limiter.rebuild(evictions)
        controller.budget.rebuild(each.at for each in evictions)
        self._controller = controller
        return controller

    async def look_at_all(self, controller: JobController, term: Term) -> None:
        """Arbitrate the waiting jobs, look at those that are due, and delete old ones.

        Raises:
            NotWritten: The manager does not answer. The effects are repeated at the next look.
        """
        await views_are_current(self.builder)
        now = self.clock.now().timestamp()
        jobs = self._reader.jobs()
        await self._record_aborted(jobs, term)
        await self._advance_plans(jobs, now, term)
        await self._arbitrate(jobs, controller, now, term)
        await self._advance(jobs, controller, now, term)
        await self._forget(jobs, controller, now, term)
        if now - self._collected_at >= INTERVAL:
            self._collected_at = now
            await self._collect(self._reader.jobs(), now, term)

    async def _record_aborted(self, jobs: Sequence[MigrationJob], term: Term) -> None:
        """Record the end of jobs that a user has aborted."""
        facts = self.builder.state.of_kind(MigrationState)
        aborted = [job for job in jobs if not job.is_in_flight and (known := facts.get(job.uid)) and not known.ended_at]
        await self._append([[self._draft(job, recording.ended_event(job))] for job in aborted], term)

    async def _advance_plans(self, jobs: Sequence[MigrationJob], now: float, term: Term) -> None:
        """Commit the plans whose Reservations are all available, roll back those that cannot succeed, drop old ones."""
        steps: list[list[Draft]] = []
        given_back: list[DeleteObject] = []
        by_name = {job.name: job for job in jobs}
        for id_, state in self.builder.state.of_kind(RepackState).items():
            event: Event | None = RepackForgotten() if is_forgettable(state, now) else None
            if not state.ended_at:
                members = (self.builder.pod_named(each.namespace, each.name) for each in state.plan.members)
                is_waiting = any(pod is not None and pod.is_active and not pod.node for pod in members)
                available = available_reservations(self.builder.state, state, by_name)
                event = next_step(state, by_name, available, is_waiting=is_waiting, now=now)
            if isinstance(event, RepackEnded) and event.result == ROLLED_BACK:
                given_back += (DeleteObject(kind="Reservation", name=name) for name in reservations_of(state, by_name))
            if event is not None:
                steps.append([Draft(repack_ref(id_), event, state.seq)])
        log_refused_deletions(self.logger, given_back, await self._changed(given_back, term))
        await self._append(steps, term)

    async def _arbitrate(self, jobs: Sequence[MigrationJob], controller: JobController, now: float, term: Term) -> None:
        """Decide which waiting jobs go on, and record it. A late job gives back the Reservation that its user named."""
        own = controller.policy.installation
        waiting = [job for job in jobs if is_waiting(job) and job.is_for(own) and not job.is_paused]
        if not waiting:
            return
        cluster = self.builder.view(now)
        found = arbitration_pass(jobs, waiting, cluster, controller)
        decided = found.decided
        known, facts = {job.name: job for job in jobs}, self.builder.state.of_kind(MigrationState)
        recorded = [
            (job, recording.arbitrated_event(job, pod_of(job, cluster), decided.inputs.get(job.name, {})))
            for job in decided.passed
        ]
        recorded += [(job, recording.ended_event(job, decided.refusals[job.name])) for job in decided.failed]
        recorded += [(job, recording.ended_event(job)) for job in found.dropped]
        for name, limits in decided.waiting.items():
            event = recording.held_event(known[name], limits, facts.get(known[name].uid), decided.inputs[name])
            if event is not None:
                recorded.append((known[name], event))
        given_back = [
            DeleteObject(kind="Reservation", name=job.reservation) for job in found.dropped if job.reservation
        ]
        log_refused_deletions(self.logger, given_back, await self._changed(given_back, term))
        await self._append([[self._draft(job, event)] for job, event in recorded], term)

    async def _advance(self, jobs: Sequence[MigrationJob], controller: JobController, now: float, term: Term) -> None:
        """Look at the jobs that are due, carry out their effects, and record their steps."""
        position = self.builder.state.position
        limiter = controller.limiter.trial()
        world = JobWorld(self.builder, limiter, now)
        under_way = self.builder.leaving()
        leaving: set[str] = set()
        availability = Availability(self.builder, controller.args, leaving)
        plans: list[Plan] = []
        held: list[list[Draft]] = []
        for job in jobs:
            if not (job.is_in_flight and job.has_passed) or not self._is_due(job, now):
                continue
            world.shortage = None
            looked = look(job, world, controller.policy, now)
            if world.shortage is not None:
                self.metrics.limited(world.shortage.kind)
                if looked.job == job:
                    held += self._held(job, world.shortage.code, world.shortage.inputs)
                else:  # this look has a fact already
                    looked = replace(looked, requeue=0.0)
            looked = asks_again(job, looked, world, under_way, controller.policy)
            found = plan(job, looked, under_way, now, without_claims=self.without_claims)
            if found.evicts and found.pod is not None:
                if found.pod.uid in leaving:
                    continue  # another job of the pod asks for its eviction in this pass; this one then waits for it
                if (full := availability.refusal(found.pod)) is not None:
                    held += self._held(job, full.code, inputs_of([full]))
                    continue  # looked at again in the next pass
                if not controller.budget.take(now):
                    held += self._held(job, TOO_MANY_EVICTIONS, controller.budget.inputs(now))
                    continue
                leaving.add(found.pod.uid)
                if job.condition(ConditionType.EVICTION) is None:
                    limiter.evicted(found.pod, now, replicas_of(found.pod, self.builder.workloads()))
            plans.append(found)
            self._due[job.uid] = now + (RETRY_SECONDS if looked.requeue is None else looked.requeue)
            if looked.effects:
                self._seen.pop(job.uid, None)
            else:
                self._seen[job.uid] = version_of(self.builder.state, looked.job)
        outcomes = await self._changed([change for each in plans for change in each.changes], term)
        steps = held
        for each in plans:
            mine, outcomes = outcomes[: len(each.changes)], outcomes[len(each.changes) :]
            steps.append(self._step(each, mine))
            if (pause := self._refused.pause_after(each.before.uid, mine, now)) is not None:
                self._due[each.before.uid] = now + pause
                self._seen[each.before.uid] = version_of(self.builder.state, each.looked.job)
        await self._append([step for step in steps if step], term, position)
        for each in plans:
            if each.evicts and each.pod is not None:
                self._take_tokens(each.before, each.pod, controller)

    def _held(self, job: MigrationJob, limit: str, inputs: Inputs) -> list[list[Draft]]:
        """Return the fact that a job which has passed waits because of a limit; empty if it was recorded before.

        A job whose call was refused keeps that reason while it waits for the token of its next call.
        """
        known = self.builder.state.of_kind(MigrationState).get(job.uid)
        if limit == TOO_MANY_EVICTIONS and known is not None and known.limits == [SOFT_EVICTION_REFUSED]:
            return []
        event = recording.held_event(job, [limit], known, inputs)
        return [] if event is None else [[self._draft(job, event)]]

    def _take_tokens(self, job: MigrationJob, pod: PodView, controller: JobController) -> None:
        """Take the tokens of an eviction that a job has asked for, with the time and the replicas that its fact has.

        A job that asks once more, because the gateway gave up, takes them once.
        """
        recorded = self.builder.state.of_kind(MigrationState).get(job.uid)
        is_stored = recorded is not None and recorded.evicted_at  # else the log has refused it
        if recorded is not None and is_stored and job.condition(ConditionType.EVICTION) is None:
            controller.limiter.evicted(pod, unix_seconds(recorded.evicted_at), recorded.replicas)

    def _step(self, done: Plan, outcomes: Sequence[ChangeOutcome]) -> list[Draft]:
        """Return the facts of one look: the eviction that it asks for, and the step of the job."""
        looked = concluded(done, outcomes)
        job = looked.job
        for outcome in outcomes:
            if outcome.result is ChangeResult.REFUSED:
                self.logger.warning("job_change_refused", job=job.name, reason=outcome.message)
        drafts: list[Draft] = []
        if done.eviction is not None and done.pod is not None:
            ref = AggregateRef("eviction", done.pod.uid)
            drafts.append(Draft(ref, done.eviction, self.facts.last_eviction(ref)))
        softly, pod = soft_eviction(done, outcomes), done.pod
        is_refused = done.evicts and done.eviction is None and softly is None
        if done.evicts and done.eviction is None and pod is not None:
            trigger = job.annotations.get(keys.EVICT_TRIGGER, "")
            self.metrics.called(trigger, pod.namespace, pod.node, is_done=not is_refused)
        replicas = replicas_of(pod, self.builder.workloads()) if done.evicts else None
        known = self.builder.state.of_kind(MigrationState).get(job.uid)
        has_waited = done.evicts and not is_refused and known is not None and bool(known.limits)
        event = recording.advanced_event(done.before, job, replicas, softly, looked.events, has_waited=has_waited)
        if event is not None:
            drafts.append(self._draft(job, event))
        elif is_refused:
            drafts += chain.from_iterable(self._held(job, SOFT_EVICTION_REFUSED, {}))
        return drafts

    def _is_due(self, job: MigrationJob, now: float) -> bool:
        """Return whether a job is to be looked at: something that it looks at has changed, or its time has come."""
        seen = self._seen.get(job.uid)
        return seen is None or self._due.get(job.uid, 0.0) <= now or seen != version_of(self.builder.state, job)

    async def _forget(self, jobs: Sequence[MigrationJob], controller: JobController, now: float, term: Term) -> None:
        """Record that the objects of jobs are gone, and drop what is kept of them.

        As long as the object limiter counts the eviction of a job, its facts are kept. So a new leader counts it, too.
        """
        existing, memory = {job.uid for job in jobs}, controller.limiter.memory_seconds
        gone = [
            uid
            for uid, state in self.builder.state.of_kind(MigrationState).items()
            if uid not in existing and not (state.evicted_at and now - unix_seconds(state.evicted_at) < memory)
        ]
        for uid in self._due.keys() - existing:  # also those without facts
            self._refused.forget(uid)
            del self._due[uid]
            self._seen.pop(uid, None)
        refs = [AggregateRef("migration", uid) for uid in gone]
        state = self.builder.state
        await self._append([[Draft(ref, MigrationForgotten(), state.last_seq(ref))] for ref in refs], term)

    async def _collect(self, jobs: Sequence[MigrationJob], now: float, term: Term) -> None:
        """Delete old jobs, of any phase, with their Reservations. A job that has not ended is recorded as aborted."""
        old = [job for job in jobs if is_collectable(job, now)]
        ended = [job.aborted("the job is too old") for job in old if job.is_in_flight]
        await self._append([[self._draft(job, recording.ended_event(job))] for job in ended], term)
        changes: list[DeleteObject] = []
        for job in old:
            if job.reservation:
                changes.append(DeleteObject(kind="Reservation", name=job.reservation))
            changes.append(DeleteObject(kind=KIND, name=job.name, uid=job.uid))
        log_refused_deletions(self.logger, changes, await self._changed(changes, term))

    def _draft(self, job: MigrationJob, event: Event) -> Draft:
        ref = recording.migration_ref(job)
        return Draft(ref, event, self.builder.state.last_seq(ref))

    async def _append(self, steps: Sequence[Sequence[Draft]], term: Term, position: int | None = None) -> None:
        """Append facts, and wait until they are folded.

        Args:
            steps: The facts. Those of a step are stored together or not at all.
            term: The term of the leader.
            position: Position of the log on which they are based. None: the present one.
        """
        position = self.builder.state.position if position is None else position
        ended = [self._ended(draft) for step in steps for draft in step if isinstance(draft.event, MigrationEnded)]
        last, refused = await self.facts.append_steps(steps, f"jobs/{position}", position, term)
        for step in refused:
            self._seen.pop(step[-1].ref.id, None)  # looked at again in the next pass
        if last:
            await self.leading.folded(last)
            for phase, seconds in ended:
                self.metrics.job_seconds.labels(phase).observe(seconds)

    def _ended(self, draft: Draft) -> tuple[str, float]:
        """Return the phase in which a job ends, and the seconds since it passed arbitration; 0 if it never did."""
        assert isinstance(draft.event, MigrationEnded)
        before = self.builder.state.of_kind(MigrationState).get(draft.ref.id)
        begun = before.passed_at if before is not None else ""
        now = self.clock.now().timestamp()
        return draft.event.progress.phase, now - unix_seconds(begun) if begun else 0.0

    async def _changed(self, changes: Sequence[ObjectChange], term: Term) -> list[ChangeOutcome]:
        """Change objects if this instance still leads, and return one outcome per change.

        Raises:
            NotWritten: It does not lead any more, or the manager does not answer.
        """
        outcomes: list[ChangeOutcome] = []
        for begin in range(0, len(changes), _CHANGES_AT_ONCE):
            if self.leading.is_over(term):
                raise NotWritten("this instance does not lead any more")
            outcomes += await self.writer.change(changes[begin : begin + _CHANGES_AT_ONCE])
        return outcomes
