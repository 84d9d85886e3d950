"""Commands and questions to the descheduler."""

import msgspec


class RunRound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Run a round of the descheduler now, besides those of its interval.

    Attributes:
        asked_by: Who asks, for the log of the service.
    """

    asked_by: str = ""


class StartDrain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Empty a node: create its DrainNode, or confirm the one that exists.

    Attributes:
        node: Name of the node.
        confirm: Whether its pods may be migrated as soon as they have places.
    """

    node: str
    confirm: bool = False


class AbortMigration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Delete a migration job and its Reservation.

    Attributes:
        name: Name of the PodMigrationJob.
    """

    name: str


class DryRunRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Play rounds on the present state, with the running configuration or another one. Nothing is changed.

    Attributes:
        rounds: Number of rounds, from 1 to 1000.
        config: A DeschedulerConfiguration as YAML; "" for the running one.
    """

    rounds: int = 10
    config: str = ""


class PlannedMove(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that rounds would move.

    Attributes:
        pod: The pod as "namespace/name".
        uid: Its uid.
        source: Node that it leaves.
        target: Node on which the scheduler would place it.
        plugin: Plugin that chooses it.
        reason: Why.
    """

    pod: str
    uid: str
    source: str
    target: str
    plugin: str
    reason: str


class DryRunAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What rounds would do.

    Attributes:
        rounds: Number of rounds.
        moves: Pods that would move, in the order of their evictions.
        without_place: Pods as "namespace/name" that a plugin chose and that would find no place. They would stay.
        without_gain: Pods as "namespace/name" that would find a place, but the cluster would not get better. They would
            stay, because their profile proves its moves.
        faults: Errors of plugins, one sentence each.
        position: Position of the log on which the answer is based.
    """

    rounds: int
    moves: list[PlannedMove] = []
    without_place: list[str] = []
    without_gain: list[str] = []
    faults: list[str] = []
    position: int
