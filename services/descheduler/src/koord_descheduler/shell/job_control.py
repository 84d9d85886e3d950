"""Lead migration jobs to their end, on the leader: a pass every interval carries out what `jobs.passes` decides.

    jobs ─► decisions ─► changes of objects, by the manager ─► facts of jobs and evictions, in batches

Source:
    descheduler spec, 7.4, 7.5, 7.10
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from koordcore.events.envelope import Draft
from koordcore.events.migration import MigrationEnded
from koordcore.ports.clock import Clock
from koordcore.ports.leadership import Term
from koordcore.requests.objects import ChangeOutcome, ChangeResult, DeleteObject, ObjectChange
from koordcore.service.telemetry.logging import Logger
from koordcore.state.migrations import MigrationState
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import unix_seconds

from koord_descheduler.domain.jobs import passes
from koord_descheduler.domain.jobs.controller import JobController
from koord_descheduler.domain.jobs.effects import judged
from koord_descheduler.domain.jobs.job import MigrationJob
from koord_descheduler.domain.jobs.passes import COLLECTION_SECONDS, Agenda, Decided, Step
from koord_descheduler.domain.jobs.recording import requested_evictions
from koord_descheduler.domain.jobs.viewing import all_jobs, counted_evictions
from koord_descheduler.domain.jobs.world import RETRY_SECONDS
from koord_descheduler.domain.view.building import ViewBuilder
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
    """Leads migration jobs to their end."""

    builder: ViewBuilder
    leading: Leading
    facts: FactWriter
    clock: Clock
    logger: Logger
    metrics: DeschedulerMetrics
    writer: ObjectWriter
    # Makes the controller when the first term begins. Later terms keep it. It raises InvalidInput while it cannot be
    # made, for example because a PriorityClass does not exist; then the jobs wait.
    make: Callable[[], JobController]
    without_claims: bool = False  # Whether Reservations leave out volumes with a claim (gate DisablePVCReservation)
    _controller: JobController | None = field(default=None, init=False)
    _agenda: Agenda = field(default_factory=Agenda, init=False)
    _collected_at: float = field(default=0.0, init=False)
    _waits: Problem = field(init=False)

    def __post_init__(self) -> None:
        self._waits = Problem("jobs_wait", self.logger)

    async def run(self) -> None:
        """Make a pass every interval while this instance leads. Never return; the caller cancels it."""
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
        self._agenda.clear()
        self._made()

    def _made(self) -> JobController | None:
        """The controller, with the recorded evictions. None if it cannot be made now; the reason is logged."""
        try:
            controller = self._controller or self.make()
        except InvalidInput as error:
            self._waits.lasts(str(error))
            return None
        controller.limiter.rebuild(counted_evictions(self.builder, self.clock.now().timestamp()))
        requests = requested_evictions(self.builder.state.of_kind(MigrationState).values())
        controller.budget.rebuild(requests)
        self._controller = controller
        return controller

    async def look_at_all(self, controller: JobController, term: Term) -> None:
        """Make one pass over all jobs.

        Raises:
            NotWritten: The manager does not answer. The effects are repeated at the next pass.
        """
        await views_are_current(self.builder)
        builder, now = self.builder, self.clock.now().timestamp()
        jobs = all_jobs(self.builder)
        await self._carry_out(passes.aborted(jobs, builder.state), term)
        await self._carry_out(passes.unworkable(jobs, builder, controller.policy.installation), term)
        existing = {job.uid for job in jobs}
        jobs = [job for job in jobs if not passes.is_unworkable(job)]
        await self._changed(passes.soft_evictions_to_withdraw(jobs, builder), term)
        await self._carry_out(passes.advanced_plans(jobs, builder, now), term)
        await self._carry_out(passes.arbitrated(jobs, builder, controller, now), term)
        await self._carry_out(passes.overtaken(jobs, builder, controller), term)
        await self._advance(jobs, controller, now, term)
        self._agenda.keep_only(existing)
        await self._carry_out(passes.forgotten(existing, builder.state, controller.limiter.memory_seconds, now), term)
        if now - self._collected_at >= COLLECTION_SECONDS:
            self._collected_at = now
            old = passes.collected(all_jobs(self.builder), builder.state, now)
            await self._append(old.steps, term)  # the end of a job comes before its object is gone
            await self._delete(old.deletions, term)

    async def _carry_out(self, decided: Decided, term: Term) -> None:
        await self._delete(decided.deletions, term)
        await self._changed(decided.patches, term)
        await self._append(decided.steps, term)

    async def _advance(self, jobs: Sequence[MigrationJob], controller: JobController, now: float, term: Term) -> None:
        """Look at the jobs that are due, make their changes, and record their steps."""
        builder, position = self.builder, self.builder.state.position
        controller.limiter.rebuild(counted_evictions(builder, now))
        looks = passes.look_at_due(jobs, builder, controller, self._agenda, now, without_claims=self.without_claims)
        for kind in looks.limited:
            self.metrics.limited(kind)
        for each in looks.plans:
            self._agenda.looked(each, builder.state, now)
            if each.evicts:
                controller.budget.take(now)
        outcomes = await self._changed([change for each in looks.plans for change in each.changes], term)
        steps = [*looks.held]
        for each in looks.plans:
            mine, outcomes = judged(each, outcomes[: len(each.changes)]), outcomes[len(each.changes) :]
            for outcome in mine:
                if outcome.result is ChangeResult.REFUSED:
                    self.logger.warning("job_change_refused", job=each.before.name, reason=outcome.message)
            step, called = passes.concluded(each, mine, builder, self.facts.last_eviction)
            if called is not None:
                self.metrics.called(called.trigger, called.namespace, called.node, is_done=called.is_done)
            steps.append(step)
            self._agenda.changed(each, mine, builder.state, now)
        await self._append([step for step in steps if step], term, position)
        controller.limiter.rebuild(counted_evictions(builder, now))

    async def _append(self, steps: Sequence[Step], term: Term, position: int | None = None) -> None:
        """Append facts, and wait until they are folded. They are based on `position`; None: the present one."""
        position = self.builder.state.position if position is None else position
        ended = [self._ended(draft) for step in steps for draft in step if isinstance(draft.event, MigrationEnded)]
        last, refused = await self.facts.append_steps(steps, f"jobs/{position}", position, term)
        for step in refused:
            self._agenda.not_stored(step[-1].ref.id)
        if last:
            await self.leading.folded(last)
            for phase, seconds in ended:
                self.metrics.job_seconds.labels(phase).observe(seconds)

    def _ended(self, draft: Draft) -> tuple[str, float]:
        """The phase in which a job ends, and the seconds since it passed arbitration; 0 if it never did."""
        assert isinstance(draft.event, MigrationEnded)
        before = self.builder.state.of_kind(MigrationState).get(draft.ref.id)
        begun = before.passed_at if before is not None else ""
        now = self.clock.now().timestamp()
        return draft.event.progress.phase, now - unix_seconds(begun) if begun else 0.0

    async def _delete(self, deletions: Sequence[DeleteObject], term: Term) -> None:
        log_refused_deletions(self.logger, deletions, await self._changed(deletions, term))

    async def _changed(self, changes: Sequence[ObjectChange], term: Term) -> list[ChangeOutcome]:
        """Raises NotWritten: this instance does not lead any more, or the manager does not answer."""
        outcomes: list[ChangeOutcome] = []
        for begin in range(0, len(changes), _CHANGES_AT_ONCE):
            if self.leading.is_over(term):
                raise NotWritten("this instance does not lead any more")
            outcomes += await self.writer.change(changes[begin : begin + _CHANGES_AT_ONCE])
        return outcomes
