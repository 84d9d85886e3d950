"""Limits on migrations: whether a workload can spare a pod, and how many jobs may be in flight.

Source:
    descheduler spec, 6.2, 7.3
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from koordcore.events.descheduling import Inputs, Number
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.jobs.arguments import Gate, MigrationControllerArgs, workload_limit
from koord_descheduler.domain.jobs.in_flight import JobsInFlight
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.disruptions import Disruptions
from koord_descheduler.domain.view.pods import PodView
from koord_descheduler.domain.view.workloads import WorkloadView


def has_expected_replicas(replicas: int | None, args: MigrationControllerArgs) -> bool:
    """Whether a pod may be migrated, judged by the replicas of its workload: 0 if unknown; None, without controller,
    passes.

    A workload with one replica, or with as many as may be in migration or unavailable, must not be touched. If one of
    these two limits is an invalid percentage, the result is False. If the arguments switch this check off, it is True.
    """
    if replicas is None or args.skip_check_expected_replicas or args.skips(Gate.EXPECTED_REPLICAS):
        return True
    try:
        limits = {
            workload_limit(replicas, args.max_migrating_per_workload),
            workload_limit(replicas, args.max_unavailable_per_workload),
        }
    except InvalidInput:
        return False
    return replicas != 1 and replicas not in limits


EXPECTED_REPLICAS: Final = "expected_replicas"
MAX_GLOBALLY: Final = "max_migrating_globally"
MAX_PER_NODE: Final = "max_migrating_per_node"
MAX_PER_NAMESPACE: Final = "max_migrating_per_namespace"
MAX_PER_WORKLOAD: Final = "max_migrating_per_workload"
MAX_UNAVAILABLE: Final = "max_unavailable_per_workload"
_UNKNOWN: Final = WorkloadView(0, ())


class CountedLimit(NamedTuple):
    code: str
    used: int  # Number of pods that count against the limit now, without the migration
    limit: int | None  # The limit; None if it is an invalid percentage

    @property
    def is_reached(self) -> bool:
        """Whether one more migration would exceed the limit. True if the limit is an invalid percentage."""
        return self.limit is None or self.used >= self.limit


@dataclass(slots=True)
class MoveLimits:
    """Limits on the number of concurrent migrations, which every plan of several moves must keep."""

    per_node: int | None = None  # Largest number of pods of one node that may migrate at the same time; None: no limit


def per_node_limit(args: MigrationControllerArgs) -> int | None:
    """The largest number of pods of one node that may migrate at the same time; None: no limit."""
    limit = args.max_migrating_per_node
    return None if not limit or limit < 0 or args.skips(Gate.MAX_MIGRATING_PER_NODE) else limit


def expected_replicas_refusals(pod: PodView, cluster: ClusterView, args: MigrationControllerArgs) -> Iterator[str]:
    """Yield a code if `has_expected_replicas` is False for the workload of a pod. An unknown workload counts as one
    without replicas.
    """
    if not has_expected_replicas(_replicas(pod, cluster), args):
        yield EXPECTED_REPLICAS


def expected_replicas_number(pod: PodView, cluster: ClusterView, args: MigrationControllerArgs) -> Number:
    """Replicas of a pod's workload, and the larger of the limits that must not be all of them.

    The limit is None if one of the two is an invalid percentage.
    """
    replicas = _replicas(pod, cluster) or 0
    limits = [limit_of(replicas, each) for each in (args.max_migrating_per_workload, args.max_unavailable_per_workload)]
    known = [limit for limit in limits if limit is not None]
    return Number(value=replicas, limit=max(known) if len(known) == len(limits) else None)


def _replicas(pod: PodView, cluster: ClusterView) -> int | None:
    return None if pod.controller is None else cluster.workloads.get(pod.controller.uid, _UNKNOWN).replicas


def limit_refusals(
    pod: PodView, cluster: ClusterView, jobs: JobsInFlight, args: MigrationControllerArgs
) -> Iterator[str]:
    """Codes of the limits that one more migration would exceed now."""
    return (each.code for each in counted_limits(pod, cluster, jobs, args) if each.is_reached)


def inputs_of(limits: Iterable[CountedLimit]) -> Inputs:
    """Code of a limit -> count and limit, for the audit."""
    return {each.code: Number(value=each.used, limit=each.limit) for each in limits}


def counted_limits(
    pod: PodView, cluster: ClusterView, jobs: JobsInFlight, args: MigrationControllerArgs
) -> Iterator[CountedLimit]:
    """Yield the limits on jobs in flight that apply to one more migration, with what counts against them now (7.3).

    Limits that are switched off, None or 0 are left out. The limits per workload apply to pods with a controller, and
    the one on migrating pods applies only if another pod of the workload migrates.
    """
    uid = pod.uid
    for gate, limit, count, code in (
        (Gate.MAX_MIGRATING_GLOBALLY, args.max_migrating_globally, jobs.others(uid), MAX_GLOBALLY),
        (Gate.MAX_MIGRATING_PER_NODE, args.max_migrating_per_node, jobs.others_on(pod.node, uid), MAX_PER_NODE),
        (
            Gate.MAX_MIGRATING_PER_NAMESPACE,
            args.max_migrating_per_namespace,
            jobs.others_in(pod.namespace, uid),
            MAX_PER_NAMESPACE,
        ),
    ):
        if limit and limit > 0 and not args.skips(gate):
            yield CountedLimit(code, count, limit)
    if pod.controller is not None:
        yield from _workload_limits(pod, pod.controller.uid, cluster, jobs, args)


def _workload_limits(
    pod: PodView, controller: str, cluster: ClusterView, jobs: JobsInFlight, args: MigrationControllerArgs
) -> Iterator[CountedLimit]:
    workload = cluster.workloads.get(controller, _UNKNOWN)
    migrating = jobs.others_of(controller, pod.uid)
    if migrating and not args.skips(Gate.MAX_MIGRATING_PER_WORKLOAD):
        limit = limit_of(workload.replicas, args.max_migrating_per_workload)
        yield CountedLimit(MAX_PER_WORKLOAD, len(migrating), limit)
    if not args.skips(Gate.MAX_UNAVAILABLE_PER_WORKLOAD):
        limit = limit_of(workload.replicas, args.max_unavailable_per_workload)
        yield CountedLimit(MAX_UNAVAILABLE, _unavailable(workload, migrating, cluster), limit)


def _unavailable(workload: WorkloadView, migrating: set[str], cluster: ClusterView) -> int:
    """Replicas of a workload that are unavailable or may become so, each counted once.

    A migrating pod that has left counts as a replica without a pod, or as its successor until that is ready.
    """
    unavailable = cluster.unavailable(workload)
    staying = sum(uid in cluster.pod_by_uid for uid in migrating - unavailable)
    return len(unavailable) + staying + cluster.missing(workload)


def limit_of(replicas: int, value: int | str | None) -> int | None:
    """None if `value` is not a valid percentage: then the caller must refuse the pods. See `workload_limit`."""
    try:
        return workload_limit(replicas, value)
    except InvalidInput:
        return None


class Availability:
    """The last check before an eviction: whether the workload of the pod can spare it at this moment.

    Arbitration has checked this when the job began. Since then, others may have taken pods of the same workload, or the
    workload was scaled down. It looks only at the pods of the workloads in question. The pods `leaving`, by uid, are
    evicted in this pass and count as unavailable. The caller adds to it.
    """

    def __init__(self, builder: ViewBuilder, args: MigrationControllerArgs, leaving: Collection[str]) -> None:
        self._builder = builder
        self._args = args
        self._leaving = leaving

    def refusal(self, pod: PodView) -> CountedLimit | None:
        """The limit that forbids to make a pod unavailable now; None if its workload can spare it.

        None also if no limit applies: the pod has no controller or has the evict annotation, arbitration is off, or the
        checks are switched off. The pod of an unknown workload is refused. The replicas of the workload are checked
        also without arbitration, see `has_expected_replicas`.

        Pods that are unavailable now, and replicas without a pod, count against the limit. Jobs that wait for their
        Reservation do not count, so that two jobs of a workload cannot wait for each other.
        """
        counted = self._counted(pod)
        return counted if counted is not None and counted.is_reached else None

    def _counted(self, pod: PodView) -> CountedLimit | None:
        if pod.controller is None or pod.has_evict_annotation:
            return None
        workload = self._builder.workloads().get(pod.controller.uid, _UNKNOWN)
        if not has_expected_replicas(workload.replicas, self._args):
            return CountedLimit(EXPECTED_REPLICAS, workload.replicas, workload.replicas)
        if not self._args.arbitration_args.enabled or self._args.skips(Gate.MAX_UNAVAILABLE_PER_WORKLOAD):
            return None
        if workload is _UNKNOWN:
            return CountedLimit(MAX_UNAVAILABLE, 0, 0)
        limit = limit_of(workload.replicas, self._args.max_unavailable_per_workload)
        pods = [each for owner in workload.owners for each in self._builder.pods_of(owner)]
        others = (each for each in pods if each.uid != pod.uid)
        unavailable = sum(each.uid in self._leaving or self._disruptions.takes(each) for each in others)
        missing = self._disruptions.missing(workload.replicas, len(pods))
        return CountedLimit(MAX_UNAVAILABLE, unavailable + missing, limit)

    @cached_property
    def _disruptions(self) -> Disruptions:
        return self._builder.disruptions()
