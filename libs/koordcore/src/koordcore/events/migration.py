"""Migrations of pods, and the plans that move pods so that a waiting gang finds whole GPUs.

Writer: the leading descheduler. Aggregates: `migration.<uid of the PodMigrationJob>`, `repack.<id of the plan>`.

    MigrationHeld ─► MigrationArbitrated ─► MigrationAdvanced ... ─► MigrationEnded ─► MigrationForgotten

    RepackPlanned ─► RepackCommitted ─► RepackMoved ─► RepackEnded ─► RepackForgotten
          └───────────────── rolled back ─────────────────┘

A PodMigrationJob reserves resources elsewhere, then evicts the pod. A plugin, a drain or a user creates the object. Its
Reservation, and the eviction of its pod, have facts of their own. Each move of a plan is such a job. None of them
evicts its pod before the Reservations of all of them are available: all pods of a plan move, or none. From
`RepackPlanned` to `RepackEnded`, the scheduler holds the GPUs of the plan's nodes for the gang.

Source: descheduler spec, 7.4, 7.5, 14.
"""

from typing import Final

import msgspec

from koordcore.events.descheduling import ChangedField, Inputs
from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE

# Code of a job that waits because the jobs of the descheduler evict as many pods as evictQPS and evictBurst allow.
TOO_MANY_EVICTIONS: Final = "TooManyEvictions"
# Code of a job that waits because the API server refuses the annotation that asks for a soft eviction.
SOFT_EVICTION_REFUSED: Final = "SoftEvictionRefused"
# Codes of jobs whose call of the eviction failed, so that they call again.
FAILED_CALLS: Final = (TOO_MANY_EVICTIONS, SOFT_EVICTION_REFUSED)


class MigratedPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Namespace, name and uid of a pod that a PodMigrationJob names. `uid` is "" while it is unknown."""

    namespace: str
    name: str
    uid: str = ""


class MigrationCondition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition in the status of a PodMigrationJob: the state of one step of the migration."""

    type: str  # Type of the condition, such as "ReservationScheduled" or "Eviction"
    is_true: bool = False  # Whether the step is done
    reason: str = ""  # Why the step is done or not done, in one word
    message: str = ""  # The same reason as a sentence


class MigrationProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The status of a PodMigrationJob: how far its migration has come."""

    phase: str = ""  # "" (not started), Pending, Running, Succeeded, Failed or Aborted
    status: str = ""  # Type of the condition that changed last, or "Complete"
    reason: str = ""  # Reason of that condition, or of the failure, in one word
    message: str = ""  # The same reason as a sentence
    conditions: list[MigrationCondition] = []  # Conditions of the job, in the order in which they were added
    reservation: str = ""  # Name of the job's Reservation; "" while there is none
    node: str = ""  # Node of that Reservation; "" while it has none
    bound_pod: MigratedPod | None = None  # The new pod that took the Reservation; None while there is none


class MigrationNotice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Kubernetes event about a step of a PodMigrationJob."""

    reason: str  # Reason in one word
    message: str  # Sentence for the user
    is_warning: bool = False  # Whether its type is Warning. Otherwise, it is Normal.
    is_about_pod: bool = False  # Whether it is about the pod that migrates. Otherwise, it is about the job.


@CATALOGUE.register(kind="migration")
class MigrationHeld(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A PodMigrationJob must wait because of limits, before its arbitration or before the eviction of its pod."""

    job: str  # Name of the PodMigrationJob
    pod: MigratedPod  # The pod to migrate
    limits: list[str] = []  # Codes of the limits that are reached, for example "max_migrating_per_node"
    inputs: Inputs = {}  # Code of a limit -> count and limit at the time when the job began to wait


@CATALOGUE.register(kind="migration")
class MigrationArbitrated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A PodMigrationJob passed arbitration: no limit is reached, so the migration may begin."""

    job: str  # Name of the PodMigrationJob
    pod: MigratedPod  # The pod to migrate
    node: str = ""  # Node of the pod; "" if it has none
    controller: str = ""  # Uid of the pod's controller, such as its ReplicaSet; "" if it has none
    trigger: str = ""  # Plugin, drain or user that created the job
    reason: str = ""  # Why the job was created
    round: str = ""  # RFC 3339 time of the round that created it; "" if no round did
    profile: str = ""  # Profile of the configuration whose plugin created it; "" if none did
    inputs: Inputs = {}  # Code of a limit -> count and limit. Empty if no limit applies.


@CATALOGUE.register(kind="migration")
class MigrationAdvanced(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A running migration took a step, or a condition of its PodMigrationJob changed."""

    pod: MigratedPod  # The pod to migrate, with its uid
    progress: MigrationProgress  # Status of the job after the step
    # If the step requests the eviction of the pod, the number of replicas that its workload should have. None for other
    # steps, and for a pod without a known workload.
    replicas: int | None = None
    # If the step requests the eviction of the pod, the uid of its controller; "" for other steps, and without one.
    controller: str = ""
    # If the step set the soft-eviction annotation of the pod, its values; else None.
    soft_eviction: ChangedField | None = None
    notices: list[MigrationNotice] = []  # Kubernetes events about the step


@CATALOGUE.register(kind="migration")
class MigrationEnded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A PodMigrationJob ended: it succeeded, failed, or was aborted."""

    job: str  # Name of the PodMigrationJob
    pod: MigratedPod | None = None  # The pod to migrate; None if the job names none
    progress: MigrationProgress  # Final status of the job
    # Codes of the rules by which the pod must not be migrated, for example "daemonset"; empty if the job ended for
    # another reason.
    refusals: list[str] = []
    # Kubernetes events about the last step. If none has the reason of the end, there is one more event.
    notices: list[MigrationNotice] = []


@CATALOGUE.register(kind="migration")
class MigrationForgotten(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The object PodMigrationJob of an ended migration was deleted, so the state of the migration is dropped."""


class RepackMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod that a plan moves."""

    job: str  # Name of its PodMigrationJob
    pod: MigratedPod  # The pod
    source: str  # Node that the pod leaves
    target: str = ""  # Node on which the scheduler would place it, when it was asked


@CATALOGUE.register(kind="repack")
class RepackPlanned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A round of the descheduler found moves that make room for a waiting gang.

    The scheduler's engine has proved them.
    """

    gang: str  # The gang as "namespace/name"; the pod if a single pod waits
    members: list[MigratedPod]  # The waiting pods for which the plan makes room
    nodes: list[str]  # Nodes on which room is made. The moved pods must not land there.
    moves: list[RepackMove]  # Pods that move, with their PodMigrationJobs
    gpus: int = 0  # Number of whole GPUs that the members need together
    fragment_before: float = 0.0  # GPU milli of all nodes that typical pods cannot use, before the plan
    fragment_after: float = 0.0  # The same after the plan, with the members placed
    reason: str = ""  # Why the plan is made, as a sentence
    profile: str = ""  # Profile of the descheduler's configuration
    plugin: str = ""  # Plugin that made the plan
    priority: int = 0  # Lowest priority of the members. Pods of a higher priority may take the GPUs of `nodes`.
    round: str = ""  # RFC 3339 time of the round that made the plan; "" in facts of older versions


@CATALOGUE.register(kind="repack")
class RepackCommitted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The Reservations of all moves of a plan are available, so all its pods may be evicted now."""

    reservations: dict[str, str]  # Name of a PodMigrationJob -> node of its Reservation


@CATALOGUE.register(kind="repack")
class RepackMoved(Event, frozen=True, kw_only=True, omit_defaults=True):
    """All pods of a plan have moved. The gang still waits to be placed, so the scheduler holds the GPUs for it."""


@CATALOGUE.register(kind="repack")
class RepackEnded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A plan ended: done, rolled back before any eviction, or incomplete because a move failed after the commit.

    From then on, the scheduler no longer holds the GPUs of its nodes.
    """

    result: str  # "done", "rolled_back" or "incomplete"
    reason: str = ""  # Why, as a sentence


@CATALOGUE.register(kind="repack")
class RepackForgotten(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An ended plan is old, so its state is dropped."""
