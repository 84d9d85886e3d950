"""Requests to the descheduler: run a round, drain a node, abort a migration, simulate rounds (dry run)."""

import msgspec


class RunRound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Request to the descheduler to run an extra round now, besides its periodic rounds.

    Attributes:
        asked_by: Name of the user or service that asks. It is stored with the request.
    """

    asked_by: str = ""


class StartDrain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Request to the descheduler to empty a node: create a DrainNode, or confirm the one that exists.

    Attributes:
        node: Name of the node.
        confirm: Whether pods may be evicted as soon as they have places elsewhere. False: a user confirms the plan
            later.
    """

    node: str
    confirm: bool = False


class AbortMigration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request to the descheduler to abort a migration: delete the PodMigrationJob and its Reservation.

    Attributes:
        name: Name of the PodMigrationJob.
    """

    name: str


class DryRunRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Request to the descheduler to simulate rounds on the present state of the cluster. Nothing is changed.

    Attributes:
        rounds: Number of rounds, from 1 to 1000.
        config: A DeschedulerConfiguration as YAML; "" for the configuration that the descheduler runs with.
        asked_by: Name of the user or service that asks. It is recorded.
    """

    rounds: int = 10
    config: str = ""
    asked_by: str = ""


class DryRunNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Note to the descheduler for its audit: a user has simulated rounds in another process, such as `koord`.

    Attributes:
        asked_by: Name of the user.
        configuration_hash: Hash of the configuration that was tried, 16 hex digits.
        rounds: Number of rounds.
        moves: Number of pods that would move.
        without_place: Number of pods that would find no place.
        without_gain: Number of pods whose move would not make the cluster better.
    """

    asked_by: str
    configuration_hash: str
    rounds: int
    moves: int = 0
    without_place: int = 0
    without_gain: int = 0


class PlannedMove(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that the simulated rounds of a dry run would move to another node.

    Attributes:
        pod: The pod as "namespace/name".
        uid: Uid of the pod.
        source: Node that the pod leaves.
        target: Node on which the scheduler would place it.
        plugin: Plugin that chooses the pod.
        reason: Why the plugin chooses the pod.
    """

    pod: str
    uid: str
    source: str
    target: str
    plugin: str
    reason: str


class DryRunAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer to a dry run: what the simulated rounds would do.

    Attributes:
        rounds: Number of simulated rounds.
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
