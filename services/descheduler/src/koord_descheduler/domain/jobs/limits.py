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
    """Return whether a pod of a workload may be migrated, judged by the replicas of the workload.

    A workload with one replica, or with as many as may be in migration or unavailable, must not be touched. If one of
    these two limits is an invalid percentage, the result is False. If the arguments switch this check off, it is True.

    Args:
        replicas: Replicas of the workload, 0 if it is unknown; None for a pod without controller, which passes.
        args: Arguments of the MigrationController.

    Source:
        descheduler spec, 6.2
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
    """A limit that applies to a migration.

    Attributes:
        code: Code of the limit.
        used: Number of pods that count against the limit now, without the migration.
        limit: The limit; None if it is an invalid percentage.
    """

    code: str
    used: int
    limit: int | None

    @property
    def is_reached(self) -> bool:
        """Return whether one more migration would exceed the limit. True if the limit is an invalid percentage."""
        return self.limit is None or self.used >= self.limit


@dataclass(slots=True)
class MoveLimits:
    """Limits on the number of concurrent migrations, which every plan of several moves must keep.

    Attributes:
        per_node: Largest number of pods of one node that may migrate at the same time; None: no limit.
    """

    per_node: int | None = None


def per_node_limit(args: MigrationControllerArgs) -> int | None:
    """Return the largest number of pods of one node that may migrate at the same time; None: no limit."""
    limit = args.max_migrating_per_node
    return None if not limit or limit < 0 or args.skips(Gate.MAX_MIGRATING_PER_NODE) else limit


def expected_replicas_refusals(pod: PodView, cluster: ClusterView, args: MigrationControllerArgs) -> Iterator[str]:
    """Yield a code if the workload of a pod has too few replicas to ever spare one.

    Refused are a single replica, and a workload for which `maxMigratingPerWorkload` or `maxUnavailablePerWorkload`
    allows as many pods as it has replicas, or is an invalid percentage. So is an unknown workload. A pod without
    controller is not refused, and nothing is if the arguments switch this check off.

    Source:
        descheduler spec, 6.2
    """
    if not has_expected_replicas(_replicas(pod, cluster), args):
        yield EXPECTED_REPLICAS


def expected_replicas_number(pod: PodView, cluster: ClusterView, args: MigrationControllerArgs) -> Number:
    """Return the replicas of a pod's workload, and the larger of the limits that must not be all of them.

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
    """Yield the codes of the limits on jobs in flight that one more migration would exceed now."""
    return (each.code for each in counted_limits(pod, cluster, jobs, args) if each.is_reached)


def inputs_of(limits: Iterable[CountedLimit]) -> Inputs:
    """Return code of a limit -> count and limit, for the audit."""
    return {each.code: Number(value=each.used, limit=each.limit) for each in limits}


def counted_limits(
    pod: PodView, cluster: ClusterView, jobs: JobsInFlight, args: MigrationControllerArgs
) -> Iterator[CountedLimit]:
    """Yield the limits on jobs in flight that apply to one more migration, with what counts against them now.

    Limits that are switched off, None or 0 are left out. The limits per workload apply to pods with a controller, and
    the one on migrating pods applies only if another pod of the workload migrates.

    Args:
        pod: The pod that is to migrate.
        cluster: The cluster.
        jobs: The jobs that count.
        args: Arguments of the MigrationController.

    Source:
        descheduler spec, 7.3
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
    """Return the number of replicas of a workload that are unavailable or may become so, each counted once.

    A migrating pod that has left counts as a replica without a pod, or as its successor until that is ready.
    """
    unavailable = cluster.unavailable(workload)
    staying = sum(uid in cluster.pod_by_uid for uid in migrating - unavailable)
    return len(unavailable) + staying + cluster.missing(workload)


def limit_of(replicas: int, value: int | str | None) -> int | None:
    """Return the largest number of pods of a workload that a limit allows; None if `value` is not a valid percentage.

    With None, the caller must refuse the pods.

    Args:
        replicas: Number of replicas of the workload.
        value: The limit as a number of pods, or as a percentage such as "10%"; None for the default.
    """
    try:
        return workload_limit(replicas, value)
    except InvalidInput:
        return None


class Availability:
    """The last check before an eviction: whether the workload of the pod can spare it at this moment.

    Arbitration has checked this when the job began. Since then, others may have taken pods of the same workload. It
    looks only at the pods of the workloads in question.

    Args:
        builder: The folded cluster.
        args: Arguments of the MigrationController.
        leaving: Uids of the pods that are evicted in this pass. They count as unavailable. The caller adds to it.
    """

    def __init__(self, builder: ViewBuilder, args: MigrationControllerArgs, leaving: Collection[str]) -> None:
        self._builder = builder
        self._args = args
        self._leaving = leaving

    def refusal(self, pod: PodView) -> CountedLimit | None:
        """Return the limit that forbids to make a pod unavailable now; None if its workload can spare it.

        None also if no limit applies: the pod has no controller or has the evict annotation, arbitration is off, or the
        check is switched off. The pod of an unknown workload is refused.

        Pods that are unavailable now, and replicas without a pod, count against the limit. Jobs that wait for their
        Reservation do not count, so that two jobs of a workload cannot wait for each other.
        """
        counted = self._counted(pod)
        return counted if counted is not None and counted.is_reached else None

    def _counted(self, pod: PodView) -> CountedLimit | None:
        """Return the unavailable pods of a pod's workload, and the limit; None if no limit applies."""
        if (
            pod.controller is None
            or pod.has_evict_annotation
            or not self._args.arbitration_args.enabled
            or self._args.skips(Gate.MAX_UNAVAILABLE_PER_WORKLOAD)
        ):
            return None
        workload = self._builder.workloads().get(pod.controller.uid)
        if workload is None:
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
