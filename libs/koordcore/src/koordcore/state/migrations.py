"""State of the aggregate of a migration: how far a PodMigrationJob has moved its pod to another node.

The events are in `koordcore.events.descheduling.migration`.
"""

from koordcore.events.descheduling.migration import MigratedPod, MigrationProgress
from koordcore.state.base import AggregateState


class MigrationState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of the migration of one pod by a PodMigrationJob. Times are RFC 3339; "" means never.

    Attributes:
        job: Name of the PodMigrationJob; "" after the job was deleted.
        pod: The pod to migrate; None if the job names none.
        origin: Node of the pod before its migration.
        controller: Uid of the controller of the pod; "" if it has none.
        trigger: Plugin, drain or user that created the job.
        reason: Why the job was created.
        round: RFC 3339 time of the round that created it; "" if no round did.
        profile: Profile whose plugin created it; "" if none did.
        limits: Codes of the limits because of which the job waits, before arbitration or before the eviction; empty if
            it does not wait.
        progress: Status of the job.
        since: Type of a condition -> time at which it became true or false.
        passed_at: When the job passed arbitration.
        evicted_at: When the eviction of the pod was requested.
        replicas: Replicas that the workload of the pod should have had then; None if it has no known workload.
        ended_at: When the job succeeded, failed or was aborted.
    """

    job: str = ""
    pod: MigratedPod | None = None
    origin: str = ""
    controller: str = ""
    trigger: str = ""
    reason: str = ""
    round: str = ""
    profile: str = ""
    limits: list[str] = []
    progress: MigrationProgress = MigrationProgress()
    since: dict[str, str] = {}
    passed_at: str = ""
    evicted_at: str = ""
    replicas: int | None = None
    ended_at: str = ""
