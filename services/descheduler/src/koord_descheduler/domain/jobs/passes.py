"""Decide one pass over all migration jobs: each function returns the changes of objects and the facts that follow.

    aborted ─► unworkable ─► soft_evictions_to_withdraw ─► advanced_plans ─► arbitrated ─► overtaken
    ─► look_at_due, then concluded ─► forgotten ─► collected, sometimes

The service makes the changes first, then it stores the facts. Changes have fixed names, so a pass that is repeated
after a kill changes nothing twice. An eviction is a fact itself: it is stored together with the step of its job, or not
at all. So a function gets the outcomes of its changes before it says what is stored.

Source:
    descheduler spec, 7.3 to 7.5, 7.10
"""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from koordcore.events.descheduling import Inputs
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.events.gateway import PodEvictionWithdrawn
from koordcore.events.migration import (
    SOFT_EVICTION_REFUSED,
    TOO_MANY_EVICTIONS,
    MigrationForgotten,
    RepackEnded,
    RepackForgotten,
)
from koordcore.protocol import keys
from koordcore.requests.objects import ChangeOutcome, DeleteObject, PatchObject
from koordcore.state import ClusterState
from koordcore.state.aggregates import EvictionState
from koordcore.state.migrations import ROLLED_BACK, MigrationState, RepackState
from koordcore.values.timestamps import unix_seconds

from koord_descheduler.domain.jobs import recording
from koord_descheduler.domain.jobs.arbitration import arbitration_pass, is_waiting
from koord_descheduler.domain.jobs.controller import KIND, JobController
from koord_descheduler.domain.jobs.effects import Plan, Refusals, asks_again, concluded_look, plan, soft_eviction
from koord_descheduler.domain.jobs.in_flight import JOB_EXISTS, pod_of
from koord_descheduler.domain.jobs.job import ConditionType, MigrationJob, Phase
from koord_descheduler.domain.jobs.limits import Availability, inputs_of
from koord_descheduler.domain.jobs.plan_steps import is_forgettable, next_step, repack_ref, reservations_of
from koord_descheduler.domain.jobs.state_machine import look
from koord_descheduler.domain.jobs.viewing import JobWorld, available_reservations, version_of
from koord_descheduler.domain.jobs.world import RETRY_SECONDS
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.workloads import replicas_of

COLLECTION_SECONDS: Final = 60.0
"""Time between two deletions of old jobs."""
AFTER_TTL: Final = 300.0
WITHOUT_TTL: Final = 1800.0

Step = Sequence[Draft]
"""Facts that are stored together or not at all."""


class Decided(NamedTuple):
    steps: Sequence[Step] = ()
    deletions: Sequence[DeleteObject] = ()
    patches: Sequence[PatchObject] = ()


class Called(NamedTuple):
    """A call for the end of a pod without a fact of its own, by the soft-eviction annotation. For the metrics."""

    trigger: str  # plugin or drain on whose behalf the pod is to leave; "" if a user asked for it
    namespace: str
    node: str
    is_done: bool


@dataclass(slots=True)
class Agenda:
    """When each job is looked at next: once something has changed that it looks at, or its time has come.

    It is memory of the leader, not facts: a new leader looks at all jobs.
    """

    _due: dict[str, float] = field(default_factory=dict[str, float])
    """Uid of a job that waits -> Unix seconds of the next look, if nothing changes before."""
    _seen: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Uid of a job -> the state of objects on which its last step was based, see `version_of`."""
    _refused: Refusals = field(default_factory=Refusals)
    """Uid of a job of which a change was refused."""

    def is_due(self, job: MigrationJob, state: ClusterState, now: float) -> bool:
        seen = self._seen.get(job.uid)
        return seen is None or self._due.get(job.uid, 0.0) <= now or seen != version_of(state, job)

    def looked(self, found: Plan, state: ClusterState, now: float) -> None:
        """Note a look, before its effects. After effects, the job is looked at again in the next pass."""
        uid, looked = found.before.uid, found.looked
        self._due[uid] = now + (RETRY_SECONDS if looked.requeue is None else looked.requeue)
        if looked.effects:
            self._seen.pop(uid, None)
        else:
            self._seen[uid] = version_of(state, looked.job)

    def changed(self, found: Plan, outcomes: Sequence[ChangeOutcome], state: ClusterState, now: float) -> None:
        """Note the outcomes of the changes of a look. After a refusal, the job waits longer each time."""
        uid = found.before.uid
        if (pause := self._refused.pause_after(uid, outcomes, now)) is not None:
            self._due[uid] = now + pause
            self._seen[uid] = version_of(state, found.looked.job)

    def not_stored(self, uid: str) -> None:
        """Look at a job again in the next pass, because the log has refused its facts."""
        self._seen.pop(uid, None)

    def keep_only(self, existing: Set[str]) -> None:
        """Drop what is kept of jobs without an object, also of those without facts."""
        for uid in self._due.keys() - existing:
            self._refused.forget(uid)
            del self._due[uid]
            self._seen.pop(uid, None)

    def clear(self) -> None:
        self._due.clear()
        self._seen.clear()
        self._refused.clear()


class Looks(NamedTuple):
    """The looks of one pass at the jobs that are due, before their changes are made."""

    plans: list[Plan]
    held: list[Step]  # that a job waits because of a limit, as far as this was not recorded before
    limited: list[str]  # types of the buckets of the object limiter, one for each look that has to wait


def aborted(jobs: Iterable[MigrationJob], state: ClusterState) -> Decided:
    """Record the end of jobs that a user has aborted."""
    facts = state.of_kind(MigrationState)
    ended = [job for job in jobs if not job.is_in_flight and (known := facts.get(job.uid)) and not known.ended_at]
    return Decided([[_draft(job, recording.ended_event(job), state)] for job in ended])


def unworkable(jobs: Iterable[MigrationJob], builder: ViewBuilder, own: str) -> Decided:
    """End the jobs whose objects cannot be carried out, for example because of an unreadable ttl.

    The Reservations that were created for them are given back, and their evictions are withdrawn. A Reservation that a
    user named stays, because the job may never have begun. A paused job is left alone. `own`: id of the installation.
    """
    failed = [job.invalid() for job in jobs if is_unworkable(job) and job.is_for(own) and not job.is_paused]
    state = builder.state
    return Decided(
        [[_draft(job, recording.ended_event(job), state), *_withdrawn(job, state)] for job in failed],
        [DeleteObject(kind="Reservation", name=job.created_reservation) for job in failed if job.created_reservation],
    )


def is_unworkable(job: MigrationJob) -> bool:
    return bool(job.fault) and job.is_in_flight


def advanced_plans(jobs: Iterable[MigrationJob], builder: ViewBuilder, now: float) -> Decided:
    """Commit the plans whose Reservations are all available, roll back those that cannot succeed, drop old ones."""
    steps, given_back = list[Step](), list[DeleteObject]()
    by_name = {job.name: job for job in jobs}
    for id_, state in builder.state.of_kind(RepackState).items():
        event: Event | None = RepackForgotten() if is_forgettable(state, now) else None
        if not state.ended_at:
            members = (builder.pod_named(each.namespace, each.name) for each in state.plan.members)
            waits = any(pod is not None and pod.is_active and not pod.node for pod in members)
            available = available_reservations(builder.state, state, by_name)
            event = next_step(state, by_name, available, is_waiting=waits, now=now)
        if isinstance(event, RepackEnded) and event.result == ROLLED_BACK:
            given_back += (DeleteObject(kind="Reservation", name=name) for name in reservations_of(state, by_name))
        if event is not None:
            steps.append([Draft(repack_ref(id_), event, state.seq)])
    return Decided(steps, given_back)


def arbitrated(jobs: Sequence[MigrationJob], builder: ViewBuilder, controller: JobController, now: float) -> Decided:
    """Decide which waiting jobs go on. A late job gives back the Reservation that its user named."""
    own = controller.policy.installation
    waiting = [job for job in jobs if is_waiting(job) and job.is_for(own) and not job.is_paused]
    if not waiting:
        return Decided()
    cluster, state = builder.view(now), builder.state
    found = arbitration_pass(jobs, waiting, cluster, controller)
    decided, known, facts = found.decided, {job.name: job for job in jobs}, state.of_kind(MigrationState)
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
    return Decided(
        [[_draft(job, event, state)] for job, event in recorded],
        [DeleteObject(kind="Reservation", name=job.reservation) for job in found.dropped if job.reservation],
    )


def overtaken(jobs: Iterable[MigrationJob], builder: ViewBuilder, controller: JobController) -> Decided:
    """Withdraw the pending evictions of jobs whose workload cannot spare the pod any more, and record the limit.

    An eviction may wait for a disruption budget for long, or its annotation for an external controller. Meanwhile, the
    workload may have lost other pods or replicas. The job requests the eviction again once the limit allows it.
    """
    availability, steps = Availability(builder, controller.args, ()), list[Step]()
    known = {job.uid: job for job in jobs}
    for uid, pending in builder.evictions().items():
        job = known.get(pending.request.job_uid)
        pod = None if job is None else builder.pod_named(pending.request.namespace, pending.request.name)
        full = None if pod is None or pod.uid != uid else availability.refusal(pod)
        if job is None or full is None:
            continue
        event = PodEvictionWithdrawn(reason="LimitReached", message=f"{full.code} does not allow it any more")
        held = [draft for step in _held(job, full.code, inputs_of([full]), builder.state) for draft in step]
        steps.append([Draft(AggregateRef("eviction", uid), event, pending.seq), *held])
    patches, states = list[PatchObject](), builder.state.of_kind(MigrationState)
    for job in known.values():
        back = soft_eviction_removal(states[job.uid], builder) if job.uid in states and job.is_in_flight else []
        pod = builder.pod_named(back[0].namespace, back[0].name) if back else None
        full = None if pod is None or pod.is_terminating else availability.refusal(pod)
        if full is not None:
            patches += back
            steps += _held(job, full.code, inputs_of([full]), builder.state)
    return Decided(steps, patches=patches)


def _second_jobs(passed: Iterable[MigrationJob], builder: ViewBuilder) -> set[str]:
    """Uids of the jobs that wait until another job of their pod has ended.

    Arbitration lets one job of a pod pass. But a user may have set the annotation of another one. The job that has come
    furthest goes on, else the oldest. A paused job neither waits nor lets others wait.
    """
    first: dict[str, MigrationJob] = {}
    second = set[str]()

    def order(job: MigrationJob) -> tuple[bool, bool, float, str]:
        return job.condition(ConditionType.EVICTION) is None, not job.reservation, job.created, job.name

    for job in sorted((job for job in passed if not job.is_paused), key=order):
        pod = None if job.pod is None else builder.pod_named(job.pod.namespace, job.pod.name)
        is_its_pod = pod is not None and job.pod is not None and job.pod.uid in ("", pod.uid)
        if pod is not None and is_its_pod and first.setdefault(pod.uid, job) is not job:
            second.add(job.uid)
    return second


def look_at_due(
    jobs: Iterable[MigrationJob],
    builder: ViewBuilder,
    controller: JobController,
    agenda: Agenda,
    now: float,
    *,
    without_claims: bool,
) -> Looks:
    """Look at the jobs that are due. Evictions stay within the limits of objects, workloads and `evictQPS`.

    Nothing changes yet: evictions of the pass count against copies of the limits. The caller takes the tokens of the
    rate before it makes the changes. Those of the objects follow from the facts, see `counted_evictions`.
    """
    limiter, budget = controller.limiter.trial(), controller.budget.trial()
    world = JobWorld(builder, limiter, now)
    under_way, leaving = builder.leaving(), set[str]()
    availability = Availability(builder, controller.args, leaving)
    found = Looks([], [], [])
    passed = [job for job in jobs if job.is_in_flight and job.has_passed]
    second = _second_jobs(passed, builder)
    for job in passed:
        if not agenda.is_due(job, builder.state, now):
            continue
        if job.uid in second and not job.is_over(now):
            found.held.extend(_held(job, JOB_EXISTS, {}, builder.state))
            continue
        world.shortage = None
        looked = look(job, world, controller.policy, now)
        if world.shortage is not None:
            found.limited.append(world.shortage.kind)
            if looked.job == job:
                found.held.extend(_held(job, world.shortage.code, world.shortage.inputs, builder.state))
            else:  # this look has a fact already
                looked = replace(looked, requeue=0.0)
        looked = asks_again(job, looked, world, under_way, controller.policy)
        one = plan(job, looked, under_way, now, without_claims=without_claims)
        if one.evicts and one.pod is not None:
            if one.pod.uid in leaving:
                continue  # another job of the pod asks for its eviction in this pass; this one then waits for it
            if (full := availability.refusal(one.pod)) is not None:
                found.held.extend(_held(job, full.code, inputs_of([full]), builder.state))
                continue  # looked at again in the next pass
            if not budget.take(now):
                found.held.extend(_held(job, TOO_MANY_EVICTIONS, budget.inputs(now), builder.state))
                continue
            leaving.add(one.pod.uid)
            if job.condition(ConditionType.EVICTION) is None:
                limiter.evicted(one.pod, now, replicas_of(one.pod, builder.workloads()))
        found.plans.append(one)
    return found


def concluded(
    done: Plan, outcomes: Sequence[ChangeOutcome], builder: ViewBuilder, last_eviction: Callable[[AggregateRef], int]
) -> tuple[Step, Called | None]:
    """Return the facts of one look: the eviction that it asks for, and the step of the job. Empty if nothing is new.

    `last_eviction` returns the sequence of the last event of an eviction that has ended before; 0 if unknown.
    """
    looked, state = concluded_look(done, outcomes), builder.state
    job, pod, drafts = looked.job, done.pod, list[Draft]()
    if done.eviction is not None and pod is not None:
        ref = AggregateRef("eviction", pod.uid)
        drafts.append(Draft(ref, done.eviction, last_eviction(ref)))
    softly = soft_eviction(done, outcomes)
    is_refused = done.evicts and done.eviction is None and softly is None
    called = None
    if done.evicts and done.eviction is None and pod is not None:
        called = Called(job.annotations.get(keys.EVICT_TRIGGER, ""), pod.namespace, pod.node, not is_refused)
    replicas = replicas_of(pod, builder.workloads()) if done.evicts else None
    known = state.of_kind(MigrationState).get(job.uid)
    has_waited = done.evicts and not is_refused and known is not None and bool(known.limits)
    controller = pod.controller.uid if done.evicts and pod is not None and pod.controller is not None else ""
    event = recording.advanced_event(
        done.before, job, replicas, softly, looked.events, controller=controller, has_waited=has_waited
    )
    if event is not None:
        drafts.append(_draft(job, event, state))
        drafts += _withdrawn(job, state)
    elif is_refused:
        drafts += (draft for step in _held(job, SOFT_EVICTION_REFUSED, {}, state) for draft in step)
    return drafts, called


def _withdrawn(job: MigrationJob, state: ClusterState) -> list[Draft]:
    """The fact that withdraws the pending eviction of a job that ended without success; empty if there is none."""
    if job.is_in_flight or job.phase is Phase.SUCCEEDED or job.pod is None:
        return []
    pending = state.of_kind(EvictionState).get(job.pod.uid)
    if pending is None or pending.request.job_uid != job.uid:
        return []
    message = f"PodMigrationJob {job.name} ended: {job.phase}"
    event = PodEvictionWithdrawn(reason="JobEnded", message=message)
    return [Draft(AggregateRef("eviction", job.pod.uid), event, pending.seq)]


def soft_evictions_to_withdraw(jobs: Iterable[MigrationJob], builder: ViewBuilder) -> list[PatchObject]:
    """Remove the soft-eviction annotation from the pods of jobs that do not want their pods to leave any more.

    Those are jobs that were deleted or aborted, have failed, or are paused. An annotation that somebody else has
    written since is kept.
    """
    known = {job.uid: job for job in jobs}
    changes = list[PatchObject]()
    for uid, facts in builder.state.of_kind(MigrationState).items():
        job = known.get(uid)
        is_wanted = job is not None and not job.is_paused and (job.is_in_flight or job.phase is Phase.SUCCEEDED)
        if not is_wanted:
            changes += soft_eviction_removal(facts, builder)
    return changes


def soft_eviction_removal(facts: MigrationState, builder: ViewBuilder) -> list[PatchObject]:
    """The change that removes the annotation which a job set on its pod; empty if the pod does not have it."""
    if not facts.soft_eviction or facts.pod is None:
        return []
    pod = builder.pod_named(facts.pod.namespace, facts.pod.name)
    if pod is None or pod.uid != facts.pod.uid or pod.annotations.get(keys.SOFT_EVICTION) != facts.soft_eviction:
        return []
    patch = {"metadata": {"annotations": {keys.SOFT_EVICTION: None}}}
    return [PatchObject(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid, patch=patch)]


def forgotten(existing: Set[str], state: ClusterState, memory_seconds: float, now: float) -> Decided:
    """Record that the objects of jobs are gone. `existing`: uids of the others.

    A job that had not ended is aborted by that. The next pass forgets it.

    As long as the object limiter counts the eviction of a job, its facts are kept. So a new leader counts it, too.
    """
    steps = list[Step]()
    for uid, facts in state.of_kind(MigrationState).items():
        if uid in existing:
            continue
        ref = AggregateRef("migration", uid)
        if not facts.ended_at:
            steps.append([Draft(ref, recording.deleted_event(facts), facts.seq)])
        elif not (facts.evicted_at and now - unix_seconds(facts.evicted_at) < memory_seconds):
            steps.append([Draft(ref, MigrationForgotten(), facts.seq)])
    return Decided(steps)


def collected(jobs: Iterable[MigrationJob], state: ClusterState, now: float) -> Decided:
    """Delete old jobs, of any phase, with their Reservations. A job in flight is recorded as aborted before."""
    old = [job for job in jobs if is_collectable(job, now)]
    ended = [job.aborted("the job is too old") for job in old if job.is_in_flight]
    deletions: list[DeleteObject] = []
    for job in old:
        if job.reservation:
            deletions.append(DeleteObject(kind="Reservation", name=job.reservation))
        deletions.append(DeleteObject(kind=KIND, name=job.name, uid=job.uid))
    return Decided([[_draft(job, recording.ended_event(job), state)] for job in ended], deletions)


def is_collectable(job: MigrationJob, now: float) -> bool:
    """Five minutes after its ttl, or thirty minutes after its creation if it has none (descheduler spec, 7.10)."""
    return now - job.created >= (job.ttl + AFTER_TTL if job.ttl else WITHOUT_TTL)


def _held(job: MigrationJob, limit: str, inputs: Inputs, state: ClusterState) -> list[Step]:
    """The fact that a job which has passed waits because of a limit; empty if it was recorded before.

    A job whose call was refused keeps that reason while it waits for the token of its next call.
    """
    known = state.of_kind(MigrationState).get(job.uid)
    if limit == TOO_MANY_EVICTIONS and known is not None and known.limits == [SOFT_EVICTION_REFUSED]:
        return []
    event = recording.held_event(job, [limit], known, inputs)
    return [] if event is None else [[_draft(job, event, state)]]


def _draft(job: MigrationJob, event: Event, state: ClusterState) -> Draft:
    ref = recording.migration_ref(job)
    return Draft(ref, event, state.last_seq(ref))
