"""Arbitration: the waiting migration jobs that may go on, and their order.

The service runs a pass every interval, and a dry run after each round.

Source:
    descheduler spec, 7.4
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.events.descheduling import Inputs

from koord_descheduler.domain.jobs.arguments import MigrationControllerArgs
from koord_descheduler.domain.jobs.controller import JobController
from koord_descheduler.domain.jobs.in_flight import JOB_EXISTS, JobsInFlight, in_flight, pod_of
from koord_descheduler.domain.jobs.job import MigrationJob, Phase, Reason
from koord_descheduler.domain.jobs.limits import counted_limits, inputs_of
from koord_descheduler.domain.jobs.plan_steps import rolled_back
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.orders import give_up_order
from koord_descheduler.domain.view.pods import PodView

BATCH_JOB: Final = "Job"


@dataclass(frozen=True, slots=True)
class Arbitrated:
    """The result of one pass over the waiting jobs, each in the order in which they were decided."""

    passed: tuple[MigrationJob, ...]  # Jobs that go on, with the annotation
    failed: tuple[MigrationJob, ...]  # Jobs whose pods must not be migrated; they have failed
    waiting: dict[str, tuple[str, ...]]  # Name of a job -> codes of the limits for which it waits
    # Name of a failed job -> codes of the rules by which its pod must not be migrated.
    refusals: dict[str, tuple[str, ...]]
    inputs: dict[str, Inputs]  # Name of a job that passed or waits -> the numbers of the limits that decided


def is_waiting(job: MigrationJob) -> bool:
    """Whether a job has neither ended nor passed arbitration."""
    return job.phase in (Phase.NEW, Phase.PENDING) and not job.has_passed


def arbitrate(
    jobs: Sequence[MigrationJob],
    cluster: ClusterView,
    args: MigrationControllerArgs,
    lasting_refusals: Callable[[PodView, ClusterView], Sequence[str]],
) -> Arbitrated:
    """Decide all waiting jobs. A job that passes counts for the limits of the jobs after it.

    A job passes, waits for limits, or fails because its pod must not be migrated. A job without an existing pod passes.
    Of two jobs of one pod, the older one goes first, and the other one waits for its end, whatever the limits are. If
    arbitration is switched off, or the pod has the evict annotation, limits do not apply to the job.

    `lasting_refusals` returns the codes of the reasons against a pod that a later attempt does not remove.
    """
    migrating = [job for job in jobs if job.is_in_flight and job.has_passed]
    counted = JobsInFlight()
    for job in migrating:
        counted.add(in_flight(job, cluster))
    passed: list[MigrationJob] = []
    failed: list[MigrationJob] = []
    held: dict[str, tuple[str, ...]] = {}
    refused: dict[str, tuple[str, ...]] = {}
    inputs: dict[str, Inputs] = {}
    waiting = [job for job in jobs if is_waiting(job)]
    first = _first_jobs(migrating, waiting, cluster)
    for job in ordered(waiting, migrating, cluster):
        pod = pod_of(job, cluster)
        if pod is not None:
            lasting = tuple(lasting_refusals(pod, cluster))
            if lasting:
                refused[job.name] = lasting
                failed.append(job.failed(Reason.FORBIDDEN, forbidden(pod)))
                continue
            if first[pod.uid] is not job:
                held[job.name], inputs[job.name] = (JOB_EXISTS,), {}
                continue
            limits = args.arbitration_args.enabled and not pod.has_evict_annotation
            applied = tuple(counted_limits(pod, cluster, counted, args)) if limits else ()
            reached = tuple(each for each in applied if each.is_reached)
            inputs[job.name] = inputs_of(reached or applied)
            if reached:
                held[job.name] = tuple(each.code for each in reached)
                continue
        passed.append(job.passed())
        counted.add(in_flight(job, cluster))
    return Arbitrated(tuple(passed), tuple(failed), held, refused, inputs)


def _first_jobs(
    migrating: Iterable[MigrationJob], waiting: Iterable[MigrationJob], cluster: ClusterView
) -> dict[str, MigrationJob]:
    """Uid of a pod -> the only one of its jobs that may go on: the one that migrates it, else the oldest.

    A paused job works on no pod, not even when it is late. So it is left out. When it goes on, it waits like a second
    job.
    """
    first: dict[str, MigrationJob] = {}
    working = (job for job in migrating if not job.is_paused)
    for job in (*working, *sorted(waiting, key=lambda each: (each.created, each.name))):
        pod = pod_of(job, cluster)
        if pod is not None:
            first.setdefault(pod.uid, job)
    return first


def forbidden(pod: PodView) -> str:
    return f'Pod "{pod.key}" is forbidden to migrate because it does not meet the requirements'


def ordered(
    waiting: Iterable[MigrationJob], migrating: Iterable[MigrationJob], cluster: ClusterView
) -> list[MigrationJob]:
    """Return the waiting jobs in the order of their decision, by four stable sorts.

    Each sort outranks those before it: by creation, newest second first; by the give-up order of their pods, missing
    pods first; pods of one batch Job together; batch Jobs with more pods in migration first (descheduler spec, 7.4
    (1)).
    """
    jobs = sorted(waiting, key=lambda job: job.name)
    jobs.sort(key=lambda job: -int(job.created))
    jobs = _by_pods(jobs, cluster)
    jobs = _together(jobs, cluster)
    moving = Counter(_batch_job_of(job, cluster) for job in migrating)
    moving[""] = 0
    return sorted(jobs, key=lambda job: -moving[_batch_job_of(job, cluster)])


def _by_pods(jobs: list[MigrationJob], cluster: ClusterView) -> list[MigrationJob]:
    found: dict[str, list[MigrationJob]] = {}
    pods: dict[str, PodView] = {}
    missing: list[MigrationJob] = []
    for job in jobs:
        pod = pod_of(job, cluster)
        if pod is None:
            missing.append(job)
        else:
            pods[pod.uid] = pod
            found.setdefault(pod.uid, []).append(job)
    return missing + [job for pod in give_up_order(pods.values()) for job in found[pod.uid]]


def _together(jobs: list[MigrationJob], cluster: ClusterView) -> list[MigrationJob]:
    groups: dict[str, list[MigrationJob]] = {}
    for job in jobs:
        batch = _batch_job_of(job, cluster)
        groups.setdefault(f"batch {batch}" if batch else f"job {job.uid} {job.name}", []).append(job)
    return [job for group in groups.values() for job in group]


def _batch_job_of(job: MigrationJob, cluster: ClusterView) -> str:
    """Uid of the batch Job that controls the pod of a job; "" if none does."""
    pod = pod_of(job, cluster)
    controller = None if pod is None else pod.controller
    return controller.uid if controller is not None and controller.kind == BATCH_JOB else ""


@dataclass(frozen=True, slots=True)
class ArbitrationPass:
    decided: Arbitrated
    # Waiting jobs that have failed without a decision: they were late, or their plan was rolled back.
    dropped: Sequence[MigrationJob]


def arbitration_pass(
    jobs: Sequence[MigrationJob],
    waiting: Sequence[MigrationJob],
    cluster: ClusterView,
    controller: JobController,
) -> ArbitrationPass:
    """Decide the jobs `waiting`. Those of `jobs` that passed arbitration count against the limits."""
    dropped, in_time = list[MigrationJob](), list[MigrationJob]()
    for job in waiting:
        plan = cluster.gpus.plans.get(job.plan)
        failed = job.timed_out() if job.is_over(cluster.now) else rolled_back(job, plan)
        if failed is None:
            in_time.append(job)
        else:
            dropped.append(failed)
    moving = [job for job in jobs if job.has_passed]
    return ArbitrationPass(
        arbitrate([*moving, *in_time], cluster, controller.args, controller.plugin.lasting_refusals), dropped
    )
