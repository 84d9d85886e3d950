"""Decisions about a pod: placement, release, nomination. Writer: schedulers. Aggregate: `pod.<uid>`.

    PodPlaced -> PodReleased
    PodPlaced -> PodReallocated (its amounts or its allocation on the node changed)
    PodPlaced -> PodDeviceUnhealthy -> PodDeviceUnhealthy (without devices: all are healthy again)
    PodNominated (with a PodEvictionRequested for each victim, one atomic batch) -> victims are deleted -> PodPlaced

The counts of a `PlacementExplanation` add up: feasible + sum of excluded = considered. They are recorded during the
decision.

Source: event-bus spec, 2.1 and 4.2; scheduler-core spec, 1.4, 6 and 13.
"""

from typing import Any, Final

import msgspec

from koordcore.events.envelope import BasedOn, Event
from koordcore.events.registry import CATALOGUE
from koordcore.protocol.annotations.allocation import without_typed_annotations
from koordcore.protocol.annotations.gang import BoundGang
from koordcore.values import codec
from koordcore.values.allocation import NOTHING, Allocation

RESIZED: Final = "resized"  # Reason of `PodReallocated`: the pod counts with other amounts since it is resized


class PluginExclusion(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Number of nodes that one plugin refused first, and its reasons.

    If several plugins refuse a node, it counts only for the first one in the order of the filters.
    """

    plugin: str  # Name of the plugin
    excluded: int  # Number of these nodes
    reasons: dict[str, int]  # Reason text -> number of nodes, e.g. {"Insufficient cpu": 12}.


class NodeScore(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A feasible node with its score."""

    node: str  # Name of the node
    total: int  # Sum of `parts`
    parts: dict[str, int]  # Plugin -> its score multiplied by its weight


class PlacementExplanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Numbers that show why a node was chosen, or why no node was feasible."""

    nodes_considered: int  # Number of examined nodes. These are all nodes unless the profile samples.
    nodes_feasible: int  # Number of nodes that passed every filter
    nodes_unexamined: int = 0  # Number of nodes that were not examined
    exclusions: list[PluginExclusion] = []  # Refused nodes by plugin, in the order of the filters
    top: list[NodeScore] = []  # Best feasible nodes, best first
    policy_version: str  # Digest of the scheduler's effective configuration
    based_on: BasedOn  # Last fact and observation that were folded when the decision was made


class DecisionBasis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The knowledge of the scheduler when it made an attempt. With it, a re-run can repeat the attempt from the log."""

    based_on: BasedOn  # Last fact and observation that were folded
    # Decisions that found a node have numbers within a leadership term. This is the last number at the time of the
    # attempt. The attempt counted the pods of all decisions up to it, even if they were not in the log yet.
    ordinal: int
    decided_at: float  # Unix seconds of the run's clock
    forgotten: int = 0  # Number of decisions up to `ordinal` that had been undone
    # Position of the scheduler's last append that the log had confirmed. It may lie behind `based_on.ev`.
    acknowledged: int = 0
    read_ahead: int = 0  # Last position that was read ahead of the fold, after a conflict; 0 for none
    found: bool = False  # True if decision `ordinal` is this attempt itself


def merge_standing(body: dict[str, Any]) -> dict[str, Any]:
    """Convert the body of a PodPlaced from schema 1: the old fields `ordinal` and `standing` become `basis`.

    `body` is changed and returned.
    """
    ordinal, standing = body.pop("ordinal", 0), body.pop("standing", None)
    if standing is not None:
        based_on = body["explanation"]["based_on"]
        body["basis"] = {"based_on": based_on, "ordinal": ordinal, "found": True, **_renamed(standing)}
    return body


def merge_turn(body: dict[str, Any]) -> dict[str, Any]:
    """Convert the body of a PodNominated or PodUnschedulable from schema 1: `turn` becomes the field `basis`.

    `body` is changed and returned.
    """
    turn = body.pop("turn", None)
    if turn is not None:
        body["basis"] = {**turn, **_renamed(turn.pop("standing"))}
    return body


def _renamed(standing: dict[str, Any]) -> dict[str, Any]:
    return {"forgotten" if key == "retracted" else key: value for key, value in standing.items()}


def _type_allocation(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a PodPlaced of schema 1 with its allocation and gang annotations converted."""
    body = merge_standing(body)
    stated = without_typed_annotations(body.pop("annotations", {}))
    typed = {"allocation": stated.allocation, "gang": stated.gang, "annotations": stated.others}
    return {**body, **{name: codec.to_builtins(value) for name, value in typed.items() if value}}


@CATALOGUE.register(kind="pod", schema=2, upcasters={1: _type_allocation})
class PodPlaced(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The scheduler chose a node for the pod. The node's ledger changed in the same atomic batch."""

    namespace: str
    name: str
    node: str  # Name of the chosen node
    # Resource -> amount that the pod takes: milli-cores for cpu, whole units for everything else.
    requests: dict[str, int]
    attempt: int  # Number of this scheduling attempt for the pod, from 1
    queued_at: str  # RFC 3339 time at which the pod was submitted
    # Resources that the pod got besides `requests`: CPUs, NUMA zones, devices, Reservation, quota.
    allocation: Allocation = NOTHING
    gang: BoundGang | None = None  # Gang group that is bound together with the pod; None if the pod is bound alone
    annotations: dict[str, str] = {}  # Annotations that the PreBind step of installed plugins sets on the pod object
    basis: DecisionBasis | None = None  # Positions and decisions that the decision was based on; None: not recorded
    explanation: PlacementExplanation  # Why this node was chosen


@CATALOGUE.register(kind="pod")
class PodReleased(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The placement of the pod ended. The node's ledger changed in the same atomic batch."""

    namespace: str
    name: str
    node: str  # Name of the node
    # "deleted" (deleted in the API), "finished" (phase Succeeded or Failed), "node-gone", or "bind-failed" (the API
    # server refused the binding; the pod is placed again).
    reason: str


@CATALOGUE.register(kind="pod")
class PodReallocated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The resources that a placed pod or Reservation holds on its node changed.

    The node's ledger changed in the same atomic batch.
    """

    namespace: str
    name: str
    node: str  # Name of the node
    # Resource -> amount that the pod or Reservation holds from now on: milli-cores for cpu, whole units for everything
    # else.
    requests: dict[str, int]
    # What the pod or Reservation holds besides `requests` from now on: CPUs, NUMA zones, devices ...
    allocation: Allocation = NOTHING
    # "pre-allocated" (a Reservation took over the pod's resources, and the pod became its owner), "resized" (the pod is
    # or was resized on its node, and counts with other amounts), or "reservation-deleted" (the pod no longer uses it).
    reason: str


class Victim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that preemption evicts."""

    uid: str
    namespace: str
    name: str
    priority: int = 0  # Priority of the pod
    # Whether its eviction violates a PodDisruptionBudget. Such a pod is chosen only if no other choice of pods makes
    # room.
    violates_budget: bool = False


@CATALOGUE.register(kind="pod", schema=2, upcasters={1: merge_turn})
class PodNominated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Preemption promised the pod a node: the pod will fit there after the victims have left.

    The next attempt tries this node first. The evictions of the victims are requested in the same atomic batch.
    """

    namespace: str
    name: str
    node: str  # Name of the nominated node
    victims: list[Victim] = []  # Pods that are evicted from it
    plugin: str  # Plugin that chose the node: "DefaultPreemption", "ElasticQuota", "Coscheduling"
    candidates: int = 0  # Number of examined nodes
    attempt: int = 0  # Number of the attempt that failed, from 1
    message: str = ""  # Result of the preemption as one sentence for people
    # Positions and decisions that the attempt was based on; None if they were not recorded, or if it was the attempt of
    # another pod of the same job.
    basis: DecisionBasis | None = None


@CATALOGUE.register(kind="pod")
class PodNominationCleared(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The pod is no longer nominated for a node."""

    namespace: str
    name: str
    node: str  # Name of the node
    # "outranked" (a pod of higher priority took the place), "unhelpful" (the next attempt found that the pod does not
    # fit there), or "deleted" (the pod was deleted).
    reason: str


class UnhealthyDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A device that takes no new pod."""

    type: str  # Type of the device: "gpu", "rdma" or "fpga"
    minor: int  # Index of the device on its node
    id: str = ""  # UUID or bus id of the device; "" if it is unknown


@CATALOGUE.register(kind="pod")
class PodDeviceUnhealthy(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Devices that the pod holds became unhealthy, or healthy again. The pod keeps them."""

    namespace: str
    name: str
    node: str  # Name of the node
    # All devices of the pod that are unhealthy now, by type and minor. Empty: all are healthy again.
    devices: list[UnhealthyDevice] = []
