"""Vectors of the descheduler about limits on migrations: jobs in flight, and evictions over time."""

from __future__ import annotations

from dataclasses import replace

from conformance.adapters.descheduler.running import cluster_of
from conformance.registry import Json, adapter
from koord_descheduler.domain.config.arguments import native_args
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.jobs.arguments import MigrationControllerArgs
from koord_descheduler.domain.jobs.in_flight import JobsInFlight, in_flight
from koord_descheduler.domain.jobs.job import job_from_json
from koord_descheduler.domain.jobs.object_limiter import EvictionBuckets, ObjectLimiter
from koord_descheduler.domain.jobs.plugin import MigrationController
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.workloads import WorkloadView, replicas_of


def cluster_with_workloads(given: dict[str, Json]) -> ClusterView:
    """Return the cluster of a case, with the replicas of its workloads."""
    replicas: dict[str, int] = given.get("workloads") or {}
    workloads = {uid: WorkloadView(count, (uid,)) for uid, count in replicas.items()}
    return replace(cluster_of(given), workloads=workloads)


def jobs_of(given: dict[str, Json], cluster: ClusterView) -> JobsInFlight:
    """Return the jobs in flight of a case."""
    jobs = JobsInFlight()
    for raw in given.get("jobs") or ():
        job = job_from_json(raw)
        if job.is_in_flight:
            jobs.add(in_flight(job, cluster))
    return jobs


@adapter("descheduler.migration_filter")
def migration_filter(given: dict[str, Json]) -> dict[str, Json]:
    """Whether a job may be created for a pod now (descheduler spec, 7.2, 7.3)."""
    cluster = cluster_with_workloads(given)
    shared = SharedState()
    shared.put(jobs_of(given, cluster))
    args = native_args(given.get("args") or {}, MigrationControllerArgs)
    plugin = MigrationController(args, shared)
    return {"evictable": not plugin.refusals(cluster.pod_by_key[given["pod"]], cluster)}


@adapter("descheduler.object_limiter")
def object_limiter(given: dict[str, Json]) -> dict[str, Json]:
    """Token buckets per workload and namespace (descheduler spec, 7.7)."""
    cluster = cluster_with_workloads(given)
    args = native_args(given.get("args") or {}, MigrationControllerArgs)
    limiter = ObjectLimiter(args, EvictionBuckets())
    limited: list[bool] = []
    for step in given["steps"]:
        now, pod = float(step["at"]), cluster.pod_by_key[step["pod"]]
        if step["do"] == "evicted":
            limiter.evicted(pod, now, replicas_of(pod, cluster.workloads))
        else:
            limited.append(limiter.is_limited(pod, now))
    return {"limited": limited}
