"""Checks of one pass over all jobs: can a workload spare a pod now, and which jobs are old enough to be deleted.

Arbitration has checked the workload when the job began. Since then, others may have taken pods of it.

Source:
    descheduler spec, 7.3, 7.10
"""

from collections.abc import Collection
from functools import cached_property
from typing import Final

from koord_descheduler.domain.jobs.arguments import Gate, MigrationControllerArgs
from koord_descheduler.domain.jobs.job import MigrationJob
from koord_descheduler.domain.jobs.limits import MAX_UNAVAILABLE, CountedLimit, limit_of
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.disruptions import Disruptions
from koord_descheduler.domain.view.pods import PodView


class Availability:
    """Decides on the evictions of one pass over the jobs. It looks only at the pods of the workloads in question.

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


INTERVAL: Final = 60.0
"""Seconds between two looks at all jobs."""
AFTER_TTL: Final = 300.0
WITHOUT_TTL: Final = 1800.0


def is_collectable(job: MigrationJob, now: float) -> bool:
    """Return whether a job of any phase is old enough to be deleted.

    That is five minutes after its ttl, or thirty minutes after its creation if it has none.

    Args:
        job: The job.
        now: Unix seconds.

    Source:
        descheduler spec, 7.10
    """
    return now - job.created >= (job.ttl + AFTER_TTL if job.ttl else WITHOUT_TTL)
