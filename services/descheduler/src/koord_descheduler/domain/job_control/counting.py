"""The migration jobs that a round counts: as jobs in flight, and as pods that leave their nodes.

Source:
    descheduler spec, 7.3, 9.4 (1)
"""

from collections.abc import Iterable, Iterator

from koord_descheduler.domain.migration.arbitration import in_flight
from koord_descheduler.domain.migration.job import MigrationJob
from koord_descheduler.domain.migration.jobs import JobInFlight
from koord_descheduler.domain.plugins.evictors.migration_controller import job_of_pod
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView


def counted_jobs(jobs: Iterable[MigrationJob], evictions: Iterable[str], cluster: ClusterView) -> Iterator[JobInFlight]:
    """Yield the jobs that have not ended. A requested eviction without a job counts as a job.

    Args:
        jobs: All jobs, with their facts.
        evictions: Uids of pods whose eviction was requested and has neither succeeded nor failed.
        cluster: The cluster.
    """
    with_job: set[str] = set()
    for job in jobs:
        if job.is_in_flight:
            yield in_flight(job, cluster)
            if job.pod is not None:
                with_job.add(job.pod.uid)
    pods = cluster.pod_by_uid
    yield from (job_of_pod(uid, pods[uid]) for uid in evictions if uid in pods and uid not in with_job)


def migrating_pods(jobs: Iterable[MigrationJob], builder: ViewBuilder) -> Iterator[str]:
    """Yield the uids of the pods of jobs that have not ended.

    Args:
        jobs: All jobs, with their facts.
        builder: The folded cluster.
    """
    for job in jobs:
        if job.is_in_flight and job.pod is not None:
            found = None if job.pod.uid else builder.pod_named(job.pod.namespace, job.pod.name)
            yield job.pod.uid if found is None else found.uid
