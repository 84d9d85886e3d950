"""State of the aggregate of a migration, see `koordcore.events.descheduling.migration`."""

from koordcore.events.descheduling.migration import MigratedPod, MigrationProgress
from koordcore.state.base import AggregateState


class MigrationState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """How far the migration of one pod is. Times are RFC 3339; "" means never.

    Attributes:
        job: Name of its PodMigrationJob; "" after that was deleted.
        pod: The pod; None if the job names none.
        origin: Node of the pod before its migration.
        controller: Uid of the controller of the pod; "" if it has none.
        trigger: Plugin, drain or user that asked for the job.
        reason: Why it was asked for.
        limits: Codes of the limits for which it waits, for arbitration or for the eviction; empty if it does not wait.
        progress: How far it is.
        since: Type of a condition -> time at which it became true or false.
        passed_at: When it passed arbitration.
        evicted_at: When the eviction of its pod was asked for.
        ended_at: When it succeeded, failed or was aborted.
    """

    job: str = ""
    pod: MigratedPod | None = None
    origin: str = ""
    controller: str = ""
    trigger: str = ""
    reason: str = ""
    limits: list[str] = []
    progress: MigrationProgress = MigrationProgress()
    since: dict[str, str] = {}
    passed_at: str = ""
    evicted_at: str = ""
    ended_at: str = ""
