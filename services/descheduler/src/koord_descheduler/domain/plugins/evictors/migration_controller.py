"""MigrationController as a plugin: it filters pods, and turns an eviction into a request for a migration job.

Source:
    descheduler spec, 7.2
"""

import uuid
from dataclasses import dataclass, field
from typing import Final

from koordcore.events.descheduling import Inputs

from koord_descheduler.domain.arguments.common import native_args
from koord_descheduler.domain.arguments.migration_controller import (
    RESERVATION_FIRST,
    MigrationControllerArgs,
    check,
)
from koord_descheduler.domain.evictability.base_filter import BaseFilter
from koord_descheduler.domain.framework.plans import MovePlan
from koord_descheduler.domain.framework.plugin import Point
from koord_descheduler.domain.framework.registry import PluginKind, SharedState
from koord_descheduler.domain.migration.jobs import JobInFlight, JobsInFlight
from koord_descheduler.domain.migration.limits import (
    EXPECTED_REPLICAS,
    MoveLimits,
    counted_limits,
    expected_replicas_number,
    expected_replicas_refusals,
    inputs_of,
    limit_refusals,
    per_node_limit,
)
from koord_descheduler.domain.migration.object_limiter import OBJECT_LIMITER, EvictionBuckets, ObjectLimiter
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView

NAME: Final = "MigrationController"
JOB_EXISTS: Final = "migration_job_exists"
SCHEDULER_NAME: Final = "scheduler_name"
_JOBS: Final = uuid.UUID("3b0e2a52-7a1f-5c0e-9f5a-6f6b1d1c8a40")
"""Namespace of the names of jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """The request of a round to create a migration job.

    Attributes:
        name: Name of the job. It follows from pod and time, so that a repeated request creates no second job.
        pod: The pod that is to migrate.
        plan: Id of the plan that moves the pod together with others; "" if it moves alone.
    """

    name: str
    pod: PodView
    plan: str = ""


@dataclass(slots=True)
class JobRequests:
    """The requests of a round, in order. The service takes them after the round."""

    requests: list[JobRequest] = field(default_factory=list[JobRequest])

    def take(self) -> list[JobRequest]:
        """Return the requests, and forget them."""
        taken, self.requests = self.requests, []
        return taken


class MigrationController:
    """Filters pods by their own properties, by their workload and by the jobs in flight.

    Args:
        args: Its arguments.
        shared: Jobs in flight, buckets of the object limiter, and requests of the round.

    Raises:
        InvalidInput: A selector is invalid, or the priority threshold cannot be resolved.

    Source:
        descheduler spec, 7.2
    """

    name = NAME

    def __init__(self, args: MigrationControllerArgs, shared: SharedState) -> None:
        self._args = args
        self._base = BaseFilter(args, shared.priority_classes)
        self._jobs = shared.of(JobsInFlight)
        self._requests = shared.of(JobRequests)
        self._object_limiter = ObjectLimiter(args, shared.of(EvictionBuckets))
        shared.of(MoveLimits).per_node = per_node_limit(args)

    @property
    def is_dry_run(self) -> bool:
        """Return whether the arguments set a dry run: evictions are counted, but no job is created."""
        return self._args.dry_run

    def refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Return the codes of all reasons why a pod must not migrate now; empty if it may.

        The evict annotation lifts all but two reasons: a job that exists, and a scheduler without Reservations.
        """
        if self._jobs.has(pod.uid, pod.namespace, pod.name):
            return (JOB_EXISTS,)
        args = self._args
        if args.default_job_mode == RESERVATION_FIRST and pod.scheduler_name not in args.scheduler_names:
            return (SCHEDULER_NAME,)
        if pod.has_evict_annotation:
            return ()
        refusals = self.lasting_refusals(pod, cluster)
        return refusals or tuple(limit_refusals(pod, cluster, self._jobs, args))

    def lasting_refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Return the codes of the reasons that stay at a later attempt, so that a new attempt does not help.

        They come from the properties of the pod and the replicas of its workload, not from the jobs in flight. Empty if
        there are none, or if the pod has the evict annotation.
        """
        if pod.has_evict_annotation:
            return ()
        return (*self._base.refusals(pod), *expected_replicas_refusals(pod, cluster, self._args))

    def numbers(self, pod: PodView, cluster: ClusterView) -> Inputs:
        """Return the counts and limits of the reasons that there can be against a pod, by code."""
        found = inputs_of(counted_limits(pod, cluster, self._jobs, self._args))
        return {
            **found,
            EXPECTED_REPLICAS: expected_replicas_number(pod, cluster, self._args),
            **self._base.numbers(pod),
        }

    def shortage(self, pod: PodView, cluster: ClusterView) -> Inputs:
        """Return code `object_limiter` -> tokens of the bucket for which `evict` refuses a pod; else empty."""
        found = self._object_limiter.limiting(pod, cluster.now)
        return {} if found is None else {OBJECT_LIMITER: found.number}

    def pre_eviction_refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """Return the code `node_fit` if the arguments ask for this check and the pod fits no other node."""
        return self._base.pre_eviction_refusals(pod, cluster)

    def evict(self, pod: PodView, reason: str, plugin: str, cluster: ClusterView) -> bool:
        """Request a migration job for a pod. Return False if this filter or the object limiter refuses the pod.

        The job is created after the round, and counts against the limits from now on. `reason` and `plugin` are not
        used here.
        """
        return self._ask(pod, cluster, "")

    def evict_for(self, plan: MovePlan, pod: PodView, plugin: str, cluster: ClusterView) -> bool:
        """Request a migration job that is part of a plan. Its Reservation always comes first. See `evict`."""
        return self._ask(pod, cluster, plan.id)

    def withdraw(self, plan: MovePlan) -> None:
        """Remove the jobs that were requested for a plan in this round."""
        for request in self._requests.requests:
            if request.plan == plan.id:
                self._jobs.drop(request.name)
        self._requests.requests[:] = [each for each in self._requests.requests if each.plan != plan.id]

    def _ask(self, pod: PodView, cluster: ClusterView, plan: str) -> bool:
        if self.refusals(pod, cluster) or self._object_limiter.is_limited(pod, cluster.now):
            return False
        request = JobRequest(name=str(uuid.uuid5(_JOBS, f"{pod.uid}/{cluster.now}")), pod=pod, plan=plan)
        self._requests.requests.append(request)
        self._jobs.add(job_of_pod(request.name, pod))
        return True


def job_of_pod(name: str, pod: PodView) -> JobInFlight:
    """Return the entry by which limits count the migration job `name` of a pod."""
    return JobInFlight(
        name=name,
        namespace=pod.namespace,
        pod_name=pod.name,
        pod_uid=pod.uid,
        node=pod.node,
        controller="" if pod.controller is None else pod.controller.uid,
    )


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.EVICT, Point.FILTER}),
    is_native=True,
    decode=lambda raw: native_args(raw, MigrationControllerArgs),
    check=check,
    make=MigrationController,
)
