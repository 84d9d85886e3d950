"""MigrationController as a plugin: it filters pods, and turns an eviction into a request for a migration job.

`BaseFilter` says which pods may be evicted at all, whatever runs at the moment.

Source:
    descheduler spec, 6.1, 7.2
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordcore.events.descheduling import Inputs, Number
from koordcore.protocol.annotations.pods import NEVER_EVICT
from koordcore.protocol.migrations import RESERVATION_FIRST

from koord_descheduler.domain.config.arguments import native_args, parse_selector_text, selector_or_all
from koord_descheduler.domain.framework import codes
from koord_descheduler.domain.framework.codes import NodeFit, identity_refusals, priority_number
from koord_descheduler.domain.framework.plugin import MovePlan, Point
from koord_descheduler.domain.framework.registry import PluginKind, SharedState
from koord_descheduler.domain.jobs.arguments import Gate, MigrationControllerArgs, check
from koord_descheduler.domain.jobs.in_flight import JOB_EXISTS, JobsInFlight, job_of_pod
from koord_descheduler.domain.jobs.limits import (
    EXPECTED_REPLICAS,
    MoveLimits,
    counted_limits,
    expected_replicas_number,
    expected_replicas_refusals,
    inputs_of,
    limit_refusals,
    per_node_limit,
)
from koord_descheduler.domain.jobs.object_limiter import OBJECT_LIMITER, EvictionBuckets, ObjectLimiter
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import FAILED, PodView


class BaseFilter:
    """The checks of single pods, without the limits on jobs and without the state of workloads.

    Raises:
        InvalidInput: A selector is invalid, or the priority threshold cannot be resolved.
    """

    def __init__(self, args: MigrationControllerArgs, priority_classes: Mapping[str, int]) -> None:
        self._args = args
        threshold = args.priority_threshold
        self._threshold = None if threshold is None else threshold.resolved(priority_classes)
        if args.evict_system_critical_pods or args.skips(Gate.SYSTEM_CRITICAL) or args.skips(Gate.PRIORITY_THRESHOLD):
            self._threshold = None
        self._protects_critical = not (args.evict_system_critical_pods or args.skips(Gate.SYSTEM_CRITICAL))
        self._protects_bare = not (args.evict_all_bare_pods or args.skips(Gate.BARE_PODS))
        self._protects_local = not (args.evict_local_storage_pods or args.skips(Gate.LOCAL_STORAGE))
        self._protects_claims = args.ignore_pvc_pods and not args.skips(Gate.PVC)
        selector = selector_or_all(None if args.skips(Gate.LABEL_SELECTOR) else args.label_selector)
        self._selector = selector if selector.requirements else None
        self._namespaces = None if args.skips(Gate.NAMESPACES) else args.namespaces
        self._node_fit = NodeFit(parse_selector_text(args.node_selector))
        self._asks_fit = args.node_fit and not args.skips(Gate.NODE_FIT)

    def refusals(self, pod: PodView) -> tuple[str, ...]:
        """Codes of all reasons against the pod. The evict annotation of the pod makes all checks pass."""
        return () if pod.has_evict_annotation else (*self._kind(pod), *self._value(pod), *self._scope(pod))

    def numbers(self, pod: PodView) -> Inputs:
        cost = Number(value=pod.eviction_cost, limit=NEVER_EVICT)
        return {**priority_number(pod, self._threshold), codes.MAX_EVICTION_COST: cost}

    def pre_eviction_refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """`node_fit` if the pod fits no other node and the arguments ask for that check, unless it has the evict
        annotation.
        """
        if not self._asks_fit or pod.has_evict_annotation or self._node_fit.has_place(pod, cluster):
            return ()
        return (codes.NODE_FIT,)

    def _kind(self, pod: PodView) -> Iterator[str]:
        yield from identity_refusals(pod)
        if pod.is_daemon:
            yield codes.DAEMON_SET
        if pod.is_bare and self._protects_bare:
            is_failed = pod.object.status.phase == FAILED
            if not (is_failed and self._args.evict_failed_bare_pods):
                yield codes.BARE_POD

    def _value(self, pod: PodView) -> Iterator[str]:
        if self._protects_critical and pod.is_system_critical:
            yield codes.SYSTEM_CRITICAL
        if self._threshold is not None and pod.priority is not None and pod.priority >= self._threshold:
            yield codes.PRIORITY_THRESHOLD
        if pod.must_stay:
            yield codes.MAX_EVICTION_COST
        if not self._args.evict_do_not_disrupt_pods and pod.forbids_disruption:
            yield codes.DO_NOT_DISRUPT

    def _scope(self, pod: PodView) -> Iterator[str]:
        if self._protects_local and pod.has_local_storage:
            yield codes.LOCAL_STORAGE
        if self._protects_claims and pod.claims:
            yield codes.PVC
        if self._selector is not None and not self._selector.matches(pod.labels):
            yield codes.LABEL_SELECTOR
        if self._namespaces is not None and not self._namespaces.passes(pod.namespace):
            yield codes.NAMESPACE


NAME: Final = "MigrationController"
SCHEDULER_NAME: Final = "scheduler_name"
_JOBS: Final = uuid.UUID("3b0e2a52-7a1f-5c0e-9f5a-6f6b1d1c8a40")
"""Namespace of the names of jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    name: str  # Name of the job. It follows from pod and time, so that a repeated request creates no second job.
    pod: PodView
    plan: str = ""  # Id of the plan that moves the pod together with others; "" if it moves alone


@dataclass(slots=True)
class JobRequests:
    """The requests of a round, in order. The service takes them after the round."""

    requests: list[JobRequest] = field(default_factory=list[JobRequest])

    def take(self) -> list[JobRequest]:
        taken, self.requests = self.requests, []
        return taken


class MigrationController:
    """Filters pods by their own properties, by their workload and by the jobs in flight.

    It implements FilterPlugin, CountingPlugin, DryRunEvictPlugin, LimitingEvictPlugin and PlanEvictPlugin.

    Raises:
        InvalidInput: A selector is invalid, or the priority threshold cannot be resolved.
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
        return self._args.dry_run

    def refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        """The evict annotation lifts all but two reasons: a job that exists, and a scheduler without Reservations."""
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
        """Codes of the reasons that stay at a later attempt: from the properties of the pod and the replicas of its
        workload.

        Empty if the pod has the evict annotation.
        """
        if pod.has_evict_annotation:
            return ()
        return (*self._base.refusals(pod), *expected_replicas_refusals(pod, cluster, self._args))

    def numbers(self, pod: PodView, cluster: ClusterView) -> Inputs:
        found = inputs_of(counted_limits(pod, cluster, self._jobs, self._args))
        return {
            **found,
            EXPECTED_REPLICAS: expected_replicas_number(pod, cluster, self._args),
            **self._base.numbers(pod),
        }

    def shortage(self, pod: PodView, cluster: ClusterView) -> Inputs:
        """By the code `object_limiter`: the tokens of the bucket for which `evict` refuses a pod."""
        found = self._object_limiter.limiting(pod, cluster.now)
        return {} if found is None else {OBJECT_LIMITER: found.number}

    def pre_eviction_refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        return self._base.pre_eviction_refusals(pod, cluster)

    def evict(self, pod: PodView, reason: str, plugin: str, cluster: ClusterView) -> bool:
        """The job is created after the round, and counts against the limits from now on."""
        return self._ask(pod, cluster, "")

    def evict_for(self, plan: MovePlan, pod: PodView, plugin: str, cluster: ClusterView) -> bool:
        """Its Reservation always comes first."""
        return self._ask(pod, cluster, plan.id)

    def withdraw(self, plan: MovePlan) -> None:
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


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.EVICT, Point.FILTER}),
    is_native=True,
    decode=lambda raw: native_args(raw, MigrationControllerArgs),
    check=check,
    make=MigrationController,
)
