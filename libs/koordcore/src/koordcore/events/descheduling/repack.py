"""Plans that move pods so that a waiting gang finds whole GPUs. All pods of a plan move, or none.

Writer: the leading descheduler. Aggregate: `repack.<id of the plan>`.

    RepackPlanned ─► RepackCommitted ─► RepackMoved ─► RepackEnded ─► RepackForgotten
          └───────────────── rolled back ─────────────────┘

Each move is a PodMigrationJob. None of them evicts its pod before the Reservations of all of them are available. From
`RepackPlanned` to `RepackEnded`, the scheduler holds the GPUs of the plan's nodes for the gang.
"""

import msgspec

from koordcore.events.descheduling.migration import MigratedPod
from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


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
