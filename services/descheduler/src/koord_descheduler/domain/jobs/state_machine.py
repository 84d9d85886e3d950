"""The next steps of a migration job: a pure function of the job and of the state of pods and Reservations.

    looked = look(job, world, policy, now)
    ... the caller carries `looked.effects` out, passes the result to `created` or `evicted`, and looks again ...

A job never evicts before its Reservation has a node, and it evicts by uid. Each effect has a name that depends on the
job alone, so that a repeated effect changes nothing.

Source:
    descheduler spec, 7.5, 7.6
"""

from dataclasses import replace

from koordcore.protocol import keys
from koordcore.protocol.migrations import EVICT_DIRECTLY

from koord_descheduler.domain.jobs.job import (
    Condition,
    ConditionType,
    MigrationJob,
    Phase,
    PodRef,
    Reason,
)
from koord_descheduler.domain.jobs.plan_steps import rolled_back
from koord_descheduler.domain.jobs.world import (
    POLICIES,
    RETRY_SECONDS,
    CreateReservation,
    DeleteReservation,
    Effect,
    Evict,
    JobEvent,
    JobPolicy,
    Looked,
    OrderReservation,
    ReservationView,
    World,
)
from koord_descheduler.domain.view.pods import PodView


def look(job: MigrationJob, world: World, policy: JobPolicy, now: float) -> Looked:
    """Advance a job that has passed arbitration until it waits, ends, or needs an effect that the caller must carry
    out.

    A job that is paused, has ended, or belongs to another installation is returned unchanged. `now`: Unix seconds.
    """
    if not job.is_for(policy.installation) or job.is_paused or not job.is_in_flight:
        return Looked(job=job)
    run = _Run(job, world, policy)
    run.go(now)
    return Looked(job=run.job, effects=tuple(run.effects), events=tuple(run.events), requeue=run.requeue)


def created(job: MigrationJob, error: str) -> Looked:
    """The job after the effect CreateReservation. `error`: why it was refused; "" if the Reservation exists now.

    If the Reservation was refused, the job stays in its phase with a false condition, and a later look tries again.
    """
    type_ = ConditionType.RESERVATION_CREATED
    if error:
        message = f"Failed to create Reservation caused by {error}"
        failed = job.with_condition(type_, Condition(False, str(Reason.FAILED_CREATE_RESERVATION), message))
        return Looked(job=failed, events=(_warning(Reason.FAILED_CREATE_RESERVATION, message),))
    message = f'Successfully create Reservation "{job.reservation_name}"'
    event = JobEvent("job", "Normal", str(type_), message)
    return Looked(job=replace(job, reservation=job.reservation_name), events=(event,))


def evicted(job: MigrationJob, pod: PodView, error: str) -> Looked:
    """The job after the effect Evict. `error`: why it was refused; "" if it was accepted.

    If the eviction was refused, the job is unchanged, and the result only has a warning event.
    """
    if error:
        return Looked(job=job, events=(_warning(Reason.EVICTING, f'Failed evict Pod "{pod.key}" caused by {error}'),))
    message = f'Pod "{pod.key}" evicted from node "{pod.node}" by the reason "{job.cause}"'
    events = (
        JobEvent("pod", "Normal", "Descheduled", f'Pod evicted from node "{pod.node}" by the reason "{job.cause}"'),
        JobEvent("job", "Normal", str(Reason.EVICTING), message),
    )
    asked = job.with_condition(ConditionType.EVICTION, Condition(False, str(Reason.EVICTING), message))
    return Looked(job=asked, events=events, requeue=RETRY_SECONDS)


def eviction_of(job: MigrationJob, pod: PodView, policy: JobPolicy) -> Evict:
    """Its policy is the label of the pod, else the label of the job, else that of the settings (7.6 (2, 3)).

    Its options are those of the job, else those of the settings.
    """
    wanted = pod.labels.get(keys.EVICT_POLICY) or job.labels.get(keys.EVICT_POLICY)
    options = policy.delete_options if job.delete_options is None else job.delete_options
    return Evict(pod, wanted if wanted in POLICIES else policy.eviction_policy, options)


class _Run:
    """The steps of one look. Each step returns whether the job goes on to the next step."""

    def __init__(self, job: MigrationJob, world: World, policy: JobPolicy) -> None:
        self.job = job
        self.effects: list[Effect] = []
        self.events: list[JobEvent] = []
        self.requeue: float | None = None
        self._world = world
        self._policy = policy

    def go(self, now: float) -> None:
        if not (self._is_in_time(now) and self._has_a_plan() and self._has_begun() and self._may_be_evicted()):
            return
        if (self.job.mode or self._policy.default_mode) == EVICT_DIRECTLY:
            if self._is_evicted(None):
                self.job = self.job.succeeded(f'Pod "{self._pod.key}" has been evicted')
            return
        if not self._has_asked_for_reservation():
            return
        reservation = self._created_reservation()
        if reservation is None or not self._is_placed(reservation) or not self._is_for_another_pod(reservation):
            return
        if not self._is_committed():
            return
        if self._is_evicted(reservation):
            self._finish(reservation)

    @property
    def _pod(self) -> PodRef:
        assert self.job.pod is not None, "a running job has a pod"
        return self.job.pod

    def _found_pod(self) -> PodView | None:
        return self._world.pod(self._pod.namespace, self._pod.name)

    def _is_stranger(self, pod: PodView) -> bool:
        """Whether a pod with the name of the job's pod has another uid, so that it is another pod."""
        return bool(self._pod.uid) and pod.uid != self._pod.uid

    def _is_in_time(self, now: float) -> bool:
        if not self.job.is_over(now):
            return True
        if self.job.reservation:
            self.effects.append(DeleteReservation(self.job.reservation))
        self.job = self.job.timed_out()
        self.events.append(_warning(Reason.TIMEOUT, self.job.message))
        return False

    def _has_a_plan(self) -> bool:
        """The job fails if its plan was rolled back."""
        if not self.job.plan or self.job.condition(ConditionType.EVICTION) is not None:
            return True
        plan = self._world.plan(self.job.plan)
        failed = self.job.rolled_back("Its plan is not known any more") if plan is None else rolled_back(self.job, plan)
        if failed is None:
            return True
        if self.job.reservation:
            self.effects.append(DeleteReservation(self.job.reservation))
        self.job = failed
        self.events.append(_warning(Reason.PLAN_ROLLED_BACK, failed.message))
        return False

    def _is_committed(self) -> bool:
        """Whether the Reservations of all jobs of the plan were available, so that the pods may leave."""
        plan = self._world.plan(self.job.plan) if self.job.plan else None
        return plan is None or bool(plan.committed_at) or self._wait()

    def _has_begun(self) -> bool:
        if self.job.phase is Phase.RUNNING:
            return True
        if self.job.pod is None or not self.job.pod.namespace or not self.job.pod.name:
            return self._fail(Reason.INVALID_POD_REF, "Abort job caused by invalid PodRef")
        pod = self._found_pod()
        if pod is None or self._is_stranger(pod):
            return self._fail_without_pod()
        self.job = replace(self.job, phase=Phase.RUNNING, pod=PodRef(pod.namespace, pod.name, pod.uid))
        return True

    def _may_be_evicted(self) -> bool:
        if self.job.has_evict_annotation or self.job.condition(ConditionType.EVICTION) is not None:
            return True
        pod = self._found_pod()
        return pod is None or not self._world.is_limited(pod) or self._wait()

    def _has_asked_for_reservation(self) -> bool:
        if self.job.reservation:
            return True
        pod = self._found_pod()
        if pod is None:
            return self._fail_without_pod()
        name = self.job.reservation_name
        existing = None if name == self.job.uid else self._world.reservation(name)
        if existing is not None:
            if existing.job != self.job.uid:
                message = f'Abort job caused by existing Reservation "{name}", which was not created for it'
                return self._fail(Reason.FAILED_CREATE_RESERVATION, message)
            looked = created(self.job, "")
            self.job = looked.job
            self.events += looked.events
            return True
        plan = self._world.plan(self.job.plan) if self.job.plan else None
        self.effects.append(CreateReservation(pod, frozenset() if plan is None else frozenset(plan.plan.nodes)))
        return False

    def _created_reservation(self) -> ReservationView | None:
        self._set(ConditionType.RESERVATION_CREATED, Condition(True))
        reservation = self._world.reservation(self.job.reservation)
        if reservation is None:
            message = f'Abort job caused by missing Reservation "{self.job.reservation}"'
            self._fail(Reason.MISSING_RESERVATION, message)
        elif not reservation.has_order:
            self.effects.append(OrderReservation(reservation.name))
        return reservation

    def _is_placed(self, reservation: ReservationView) -> bool:
        type_ = ConditionType.RESERVATION_SCHEDULED
        scheduled = reservation.conditions.get("Scheduled")
        if scheduled is not None and scheduled.reason == Reason.UNSCHEDULABLE:
            refused = Condition(False, str(Reason.UNSCHEDULABLE), scheduled.message)
            if self._set(type_, refused):
                self.events.append(_warning(Reason.UNSCHEDULABLE, scheduled.message))
        if reservation.phase in ("", "Pending"):
            return self._wait()
        ready = reservation.conditions.get("Ready")
        if reservation.phase == "Failed" and ready is not None and ready.reason == "Expired":
            return self._fail(Reason.RESERVATION_EXPIRED, "Reservation expired", event=False)
        if not reservation.is_scheduled:
            message = scheduled.message if scheduled is not None else ""
            return self._fail(Reason.UNSCHEDULABLE, message, event=False)
        known = self.job.condition(type_)
        if known is not None and known.is_true:
            return True
        pod = self._found_pod()
        if pod is not None and pod.node == reservation.node:
            message = f'Scheduler assignes the Reservation "{reservation.name}" on the same node as the Pod'
            return self._fail(Reason.FORBIDDEN, message)
        self.job = replace(self.job, node=reservation.node)
        message = f'Assigned Reservation "{reservation.name}" to node "{reservation.node}"'
        self._set(type_, Condition(True))
        self._tell(str(type_), message)
        return True

    def _is_for_another_pod(self, reservation: ReservationView) -> bool:
        """A job does not evict its pod if the Reservation is for the pod itself."""
        if not self._pod.uid or self._pod.uid not in reservation.owner_pods:
            return True
        pod = self._found_pod()
        if pod is None:
            return self._fail_without_pod()
        scheduled = self._world.pod_scheduled(pod)
        if scheduled is None or not scheduled.is_true:
            if reservation.phase == "Succeeded" and all(each.uid != pod.uid for each in reservation.current_owners):
                return self._fail(Reason.FORBIDDEN, "Reservation is already bound by another Pod")
            message = "" if scheduled is None else scheduled.message
            self._set(ConditionType.POD_SCHEDULED, Condition(False, str(Reason.UNSCHEDULABLE), message))
            return self._wait()
        self._set(ConditionType.POD_SCHEDULED, Condition(True))
        self._complete(f'Assign Pod "{pod.key}" to node "{self.job.node}"')
        return False

    def _is_evicted(self, reservation: ReservationView | None) -> bool:
        condition = self.job.condition(ConditionType.EVICTION)
        if condition is not None and condition.is_true:
            return True
        pod = self._found_pod()
        if pod is None or self._is_stranger(pod):
            if condition is None:
                return self._fail_without_pod()
            message = f'Pod "{self._pod.key}" has been evicted'
            self._set(ConditionType.EVICTION, Condition(True, str(Reason.EVICT_COMPLETE), message))
            self._tell(str(Reason.EVICT_COMPLETE), message)
            return True
        if condition is not None and condition.reason == Reason.EVICTING:
            return self._wait()
        if reservation is not None and reservation.phase == "Succeeded":
            return self._fail(Reason.FORBIDDEN, "Reservation is already bound by another Pod")
        self.effects.append(eviction_of(self.job, pod, self._policy))
        return False

    def _finish(self, reservation: ReservationView) -> None:
        bound = next(iter(reservation.current_owners), None)
        type_ = ConditionType.POD_BOUND_RESERVATION
        if bound is None:
            message = f'Waiting for a Pod that binds Reservation "{reservation.name}"'
            if self._set(type_, Condition(False, str(Reason.WAIT_FOR_BIND), message)):
                self._tell(str(Reason.WAIT_FOR_BIND), message)
            self._wait()
            return
        message = f'Bind Pod "{bound.key}" in Reservation "{reservation.name}"'
        if self._set(ConditionType.RESERVATION_BOUND, Condition(True)):
            self.job = replace(self.job, bound_pod=bound)
            self._tell(str(type_), message)
        pod = self._world.pod(bound.namespace, bound.name)
        if pod is not None and not pod.is_ready:
            waiting = f'Waiting for Pod "{bound.key}" to become ready'
            if self._set(ConditionType.BOUND_POD_READY, Condition(False, str(Reason.WAIT_FOR_READY), waiting)):
                self._tell(str(Reason.WAIT_FOR_READY), waiting)
            self._wait()
            return
        if self._set(ConditionType.BOUND_POD_READY, Condition(True)):
            self._tell(str(ConditionType.BOUND_POD_READY), f'Pod "{bound.key}" is ready')
        self._set(type_, Condition(True, "", message))
        self._complete(message)

    def _complete(self, message: str) -> None:
        self.job = self.job.succeeded(message)
        self._tell("Complete", message)

    def _set(self, type_: ConditionType, condition: Condition) -> bool:
        """Return whether the condition changed."""
        before = self.job
        self.job = before.with_condition(type_, condition)
        return self.job is not before

    def _tell(self, reason: str, message: str) -> None:
        self.events.append(JobEvent("job", "Normal", reason, message))

    def _wait(self) -> bool:
        self.requeue = RETRY_SECONDS
        return False

    def _fail_without_pod(self) -> bool:
        return self._fail(Reason.MISSING_POD, f'Abort job caused by missing Pod "{self._pod.key}"')

    def _fail(self, reason: Reason, message: str, *, event: bool = True) -> bool:
        self.job = self.job.failed(reason, message)
        if event:
            self.events.append(_warning(reason, message))
        return False


def _warning(reason: Reason, message: str) -> JobEvent:
    return JobEvent("job", "Warning", str(reason), message)
