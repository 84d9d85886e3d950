"""The age at which migration jobs are deleted, with their Reservations.

Source:
    descheduler spec, 7.10
"""

from typing import Final

from koord_descheduler.domain.migration.job import MigrationJob

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
