"""Progress of the migration of a pod: a PodMigrationJob reserves resources elsewhere, then evicts the pod.

Writer: the leading descheduler. Aggregate: `migration.<uid of the PodMigrationJob>`.

    MigrationHeld ─► MigrationArbitrated ─► MigrationAdvanced ... ─► MigrationEnded ─► MigrationForgotten

A plugin, a drain or a user creates the job as an object. The job's Reservation, and the eviction of its pod, have facts
of their own.

Plans that move pods so that a waiting gang finds whole GPUs. All pods of a plan move, or none.

Writer: the leading descheduler. Aggregate: `repack.<id of the plan>`.

    RepackPlanned ─► RepackCommitted ─► RepackMoved ─► RepackEnded ─► RepackForgotten
          └───────────────── rolled back ─────────────────┘

Each move is a PodMigrationJob. None of them evicts its pod before the Reservations of all of them are available. From
`RepackPlanned` to `RepackEnded`, the scheduler holds the GPUs of the plan's nodes for the gang.

Source:
    descheduler spec, 7.4, 7.5, 14
"""

from typing import Final

import msgspec

from koordcore.events.descheduling import ChangedField, Inputs
from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE

TOO_MANY_EVICTIONS: Final = "TooManyEvictions"
"""Code of a job that waits because the jobs of the descheduler evict as many pods as evictQPS and evictBurst allow."""
SOFT_EVICTION_REFUSED: Final = "SoftEvictionRefused"
"""Code of a job that waits because the API server refuses the annotation that asks for a soft eviction."""
FAILED_CALLS: Final = (TOO_MANY_EVICTIONS, SOFT_EVICTION_REFUSED)
"""Codes of jobs whose call of the eviction failed, so that they call again."""


class MigratedPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Namespace, name and uid of a pod that a PodMigrationJob names. `uid` is "" while it is unknown."""

    namespace: str
    name: str
    uid: str = ""


class MigrationCondition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition in the status of a PodMigrationJob: the state of one step of the migration.

    Attributes:
        type: Type of the condition, such as "ReservationScheduled" or "Eviction".
        is_true: Whether the step is done.
        reason: Why the step is done or not done, in one word.
        message: The same reason as a sentence.
    """

    type: str
    is_true: bool = False
    reason: str = ""
    message: str = ""


class MigrationProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The status of a PodMigrationJob: how far its migration has come.

    Attributes:
        phase: "" (not started), Pending, Running, Succeeded, Failed or Aborted.
        status: Type of the condition that changed last, or "Complete".
        reason: Reason of that condition, or of the failure, in one word.
        message: The same reason as a sentence.
        conditions: Conditions of the job, in the order in which they were added.
        reservation: Name of the job's Reservation; "" while there is none.
        node: Node of that Reservation; "" while it has none.
        bound_pod: The new pod that took the Reservation; None while there is none.
    """

    phase: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[MigrationCondition] = []
    reservation: str = ""
    node: str = ""
    bound_pod: MigratedPod | None = None


class MigrationNotice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Kubernetes event about a step of a PodMigrationJob.

    Attributes:
        reason: Reason in one word.
        message: Sentence for the user.
        is_warning: Whether its type is Warning. Otherwise, it is Normal.
        is_about_pod: Whether it is about the pod that migrates. Otherwise, it is about the job.
    """

    reason: str
    message: str
    is_warning: bool = False
    is_about_pod: bool = False


@CATALOGUE.register(kind="migration")
class MigrationHeld(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A PodMigrationJob must wait because of limits, before its arbitration or before the eviction of its pod.

    Attributes:
        job: Name of the PodMigrationJob.
        pod: The pod to migrate.
        limits: Codes of the limits that are reached, for example "max_migrating_per_node".
        inputs: Code of a limit -> count and limit at the time when the job began to wait.
    """

    job: str
    pod: MigratedPod
    limits: list[str] = []
    inputs: Inputs = {}


@CATALOGUE.register(kind="migration")
class MigrationArbitrated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A PodMigrationJob passed arbitration: no limit is reached, so the migration may begin.

    Attributes:
        job: Name of the PodMigrationJob.
        pod: The pod to migrate.
        node: Node of the pod; "" if it has none.
        controller: Uid of the pod's controller, such as its ReplicaSet; "" if it has none.
        trigger: Plugin, drain or user that created the job.
        reason: Why the job was created.
        round: RFC 3339 time of the round that created it; "" if no round did.
        profile: Profile of the configuration whose plugin created it; "" if none did.
        inputs: Code of a limit -> count and limit. Empty if no limit applies.
    """

    job: str
    pod: MigratedPod
    node: str = ""
    controller: str = ""
    trigger: str = ""
    reason: str = ""
    round: str = ""
    profile: str = ""
    inputs: Inputs = {}


@CATALOGUE.register(kind="migration")
class MigrationAdvanced(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A running migration took a step, or a condition of its PodMigrationJob changed.

    Attributes:
        pod: The pod to migrate, with its uid.
        progress: Status of the job after the step.
        replicas: If the step requests the eviction of the pod, the number of replicas that its workload should have.
            None for other steps, and for a pod without a known workload.
        notices: Kubernetes events about the step.
        soft_eviction: If the step set the soft-eviction annotation of the pod, its values; else None.
    """

    pod: MigratedPod
    progress: MigrationProgress
    replicas: int | None = None
    soft_eviction: ChangedField | None = None
    notices: list[MigrationNotice] = []


@CATALOGUE.register(kind="migration")
class MigrationEnded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A PodMigrationJob ended: it succeeded, failed, or was aborted.

    Attributes:
        job: Name of the PodMigrationJob.
        pod: The pod to migrate; None if the job names none.
        progress: Final status of the job.
        refusals: Codes of the rules by which the pod must not be migrated, for example "daemonset"; empty if the job
            ended for another reason.
        notices: Kubernetes events about the last step. If none has the reason of the end, there is one more event.
    """

    job: str
    pod: MigratedPod | None = None
    progress: MigrationProgress
    refusals: list[str] = []
    notices: list[MigrationNotice] = []


@CATALOGUE.register(kind="migration")
class MigrationForgotten(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The object PodMigrationJob of an ended migration was deleted, so the state of the migration is dropped."""


class RepackMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod that a plan moves.

    Attributes:
        job: Name of its PodMigrationJob.
        pod: The pod.
        source: Node that the pod leaves.
        target: Node on which the scheduler would place it, when it was asked.
    """

    job: str
    pod: MigratedPod
    source: str
    target: str = ""


@CATALOGUE.register(kind="repack")
class RepackPlanned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A round of the descheduler found moves that make room for a waiting gang. The scheduler's engine has proved them.

    Attributes:
        gang: The gang as "namespace/name"; the pod if a single pod waits.
        members: The waiting pods for which the plan makes room.
        nodes: Nodes on which room is made. The moved pods must not land there.
        moves: Pods that move, with their PodMigrationJobs.
        gpus: Number of whole GPUs that the members need together.
        fragment_before: GPU milli of all nodes that typical pods cannot use, before the plan.
        fragment_after: The same after the plan, with the members placed.
        reason: Why the plan is made, as a sentence.
        profile: Profile of the descheduler's configuration.
        plugin: Plugin that made the plan.
        priority: Lowest priority of the members. Pods of a higher priority may take the GPUs of `nodes`.
        round: RFC 3339 time of the round that made the plan; "" in facts of older versions.
    """

    gang: str
    members: list[MigratedPod]
    nodes: list[str]
    moves: list[RepackMove]
    gpus: int = 0
    fragment_before: float = 0.0
    fragment_after: float = 0.0
    reason: str = ""
    profile: str = ""
    plugin: str = ""
    priority: int = 0
    round: str = ""


@CATALOGUE.register(kind="repack")
class RepackCommitted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The Reservations of all moves of a plan are available, so all its pods may be evicted now.

    Attributes:
        reservations: Name of a PodMigrationJob -> node of its Reservation.
    """

    reservations: dict[str, str]


@CATALOGUE.register(kind="repack")
class RepackMoved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """All pods of a plan have moved. The gang still waits to be placed, so the scheduler holds the GPUs for it."""


@CATALOGUE.register(kind="repack")
class RepackEnded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A plan ended: done, rolled back before any eviction, or incomplete because a move failed after the commit.

    From then on, the scheduler no longer holds the GPUs of its nodes.

    Attributes:
        result: "done", "rolled_back" or "incomplete".
        reason: Why, as a sentence.
    """

    result: str
    reason: str = ""


@CATALOGUE.register(kind="repack")
class RepackForgotten(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An ended plan is old, so its state is dropped."""
