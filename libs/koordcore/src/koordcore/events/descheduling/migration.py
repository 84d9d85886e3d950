"""How the migration of a pod goes on. Writer: the leading descheduler.

Aggregate: `migration.<uid of the PodMigrationJob>`.

    MigrationHeld ─► MigrationArbitrated ─► MigrationAdvanced ... ─► MigrationEnded ─► MigrationForgotten

The job itself is an object, which a plugin, a drain or a user asked for. The Reservation of a job, and the eviction of
its pod, have facts of their own.

Source:
    descheduler spec, 7.4, 7.5, 14
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class MigratedPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod that a migration job names. `uid` is "" while it is not known."""

    namespace: str
    name: str
    uid: str = ""


class MigrationCondition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one step of a job.

    Attributes:
        type: Type of the condition, such as "ReservationScheduled".
        is_true: Whether the step is done.
        reason: Why not, or how, in one word.
        message: The same in words.
    """

    type: str
    is_true: bool = False
    reason: str = ""
    message: str = ""


class MigrationProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a job is.

    Attributes:
        phase: "", Pending, Running, Succeeded, Failed or Aborted.
        status: Type of the condition that changed last, or "Complete".
        reason: Reason of that condition, or of the failure.
        message: The same in words.
        conditions: The conditions, in the order in which they came.
        reservation: Name of its Reservation; "" while there is none.
        node: Node of its Reservation; "" while there is none.
        bound_pod: The pod that took its Reservation; None while there is none.
    """

    phase: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[MigrationCondition] = []
    reservation: str = ""
    node: str = ""
    bound_pod: MigratedPod | None = None


@CATALOGUE.register(kind="migration")
class MigrationHeld(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A job waits because of limits: for arbitration, or later for the eviction of its pod.

    Attributes:
        job: Name of the PodMigrationJob.
        pod: The pod.
        limits: Codes of the limits for which it waits.
    """

    job: str
    pod: MigratedPod
    limits: list[str] = []


@CATALOGUE.register(kind="migration")
class MigrationArbitrated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A job passed arbitration and may begin.

    Attributes:
        job: Name of the PodMigrationJob.
        pod: The pod.
        node: Node of the pod; "" if it has none.
        controller: Uid of its controller; "" if it has none.
        trigger: Plugin, drain or user that asked for the job.
        reason: Why it was asked for.
    """

    job: str
    pod: MigratedPod
    node: str = ""
    controller: str = ""
    trigger: str = ""
    reason: str = ""


@CATALOGUE.register(kind="migration")
class MigrationAdvanced(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A job took a step, or a condition changed.

    Attributes:
        pod: The pod, with its uid.
        progress: How far the job is now.
    """

    pod: MigratedPod
    progress: MigrationProgress


@CATALOGUE.register(kind="migration")
class MigrationEnded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A job succeeded, failed, or was aborted.

    Attributes:
        job: Name of the PodMigrationJob.
        pod: The pod; None if the job names none.
        progress: How far the job came.
    """

    job: str
    pod: MigratedPod | None = None
    progress: MigrationProgress


@CATALOGUE.register(kind="migration")
class MigrationForgotten(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The PodMigrationJob of a migration was deleted."""
