"""Requests to the descheduler: run a round, drain a node, abort a migration, simulate rounds (dry run)."""

import msgspec


class RunRound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Request to the descheduler to run an extra round now, besides its periodic rounds."""

    asked_by: str = ""  # Name of the user or service that asks. It is stored with the request.


class StartDrain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Request to the descheduler to empty a node: create a DrainNode, or confirm the one that exists."""

    node: str  # Name of the node
    # Whether pods may be evicted as soon as they have places elsewhere. False: a user confirms the plan later.
    confirm: bool = False


class AbortMigration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request to the descheduler to abort a migration: delete the PodMigrationJob and its Reservation."""

    name: str  # Name of the PodMigrationJob


class DryRunRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Request to the descheduler to simulate rounds on the present state of the cluster. Nothing is changed."""

    rounds: int = 10  # Number of rounds, from 1 to 1000
    config: str = ""  # A DeschedulerConfiguration as YAML; "" for the configuration that the descheduler runs with
    asked_by: str = ""  # Name of the user or service that asks. It is recorded.


class DryRunNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Note to the descheduler for its audit: a user has simulated rounds in another process, such as `koord`."""

    asked_by: str  # Name of the user
    configuration_hash: str  # Hash of the configuration that was tried, 16 hex digits
    rounds: int  # Number of rounds
    moves: int = 0  # Number of pods that would move
    without_place: int = 0  # Number of pods that would find no place
    without_gain: int = 0  # Number of pods whose move would not make the cluster better


class PlannedMove(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that the simulated rounds of a dry run would move to another node."""

    pod: str  # The pod as "namespace/name"
    uid: str  # Uid of the pod
    source: str  # Node that the pod leaves
    target: str  # Node on which the scheduler would place it
    plugin: str  # Plugin that chooses the pod
    reason: str  # Why the plugin chooses the pod


class DryRunAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer to a dry run: what the simulated rounds would do."""

    rounds: int  # Number of simulated rounds
    moves: list[PlannedMove] = []  # Pods that would move, in the order of their evictions
    # Pods as "namespace/name" that a plugin chose and that would find no place. They would stay.
    without_place: list[str] = []
    # Pods as "namespace/name" that would find a place, but the cluster would not get better. They would stay, because
    # their profile proves its moves.
    without_gain: list[str] = []
    faults: list[str] = []  # Errors of plugins, one sentence each
    position: int  # Position of the log on which the answer is based
