"""One pass of arbitration over all jobs. The service runs it every interval, and a dry run after each round.

Source:
    descheduler spec, 7.4
"""

from collections.abc import Sequence
from dataclasses import dataclass

from koord_descheduler.domain.job_control.controller import JobController
from koord_descheduler.domain.migration.arbitration import Arbitrated, arbitrate
from koord_descheduler.domain.migration.job import MigrationJob
from koord_descheduler.domain.migration.plan_steps import rolled_back
from koord_descheduler.domain.view.cluster import ClusterView


@dataclass(frozen=True, slots=True)
class ArbitrationPass:
    """The result of a pass.

    Attributes:
        decided: The decisions about the waiting jobs.
        dropped: Waiting jobs that have failed without a decision: they were late, or their plan was rolled back.
    """

    decided: Arbitrated
    dropped: Sequence[MigrationJob]


def arbitration_pass(
    jobs: Sequence[MigrationJob],
    waiting: Sequence[MigrationJob],
    cluster: ClusterView,
    controller: JobController,
) -> ArbitrationPass:
    """Decide which waiting migration jobs may begin.

    Args:
        jobs: All jobs. Those that passed arbitration count against the limits.
        waiting: The jobs to decide.
        cluster: The cluster now.
        controller: The job controller: its arguments have the limits, and its plugin decides which pods must not be
            migrated.
    """
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
