"""What was decided about a pod. Writer: schedulers. Aggregate: `pod.<uid>`.

    PodPlaced -> PodReleased
    PodNominated (with a PodEvictionRequested for each victim, one atomic batch) -> victims are deleted -> PodPlaced

source    event-bus spec, 2.1 and 4.2; scheduler-core spec, 6
"""

import msgspec

from koordcore.events.envelope import BasedOn, Event
from koordcore.events.registry import CATALOGUE
from koordcore.events.scheduling.placement_explanation import PlacementExplanation


class Standing(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a decision was taken on beside the positions of `based_on`, so that it can be taken again.

    decided_at     unix seconds of the run's clock
    retracted      how many decisions with smaller ordinals had been taken back by then
    acknowledged   last position of an own append that was known, which may lie behind `based_on.ev`
    read_ahead     last position that was read ahead of the fold, after a conflict
    """

    decided_at: float
    retracted: int = 0
    acknowledged: int = 0
    read_ahead: int = 0


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where an attempt that placed nothing stood among its scheduler's decisions, so that it can be made again.

    ordinal    number of the last decision that had found a node by then
    found      that one was this attempt: it lost its node while it waited for others
    """

    ordinal: int
    based_on: BasedOn
    standing: Standing
    found: bool = False


@CATALOGUE.register(kind="pod")
class PodPlaced(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A node was chosen for the pod; the node's ledger changed in the same atomic batch.

    node        name of the chosen node
    requests    what the pod takes: cpu in milli-cores, everything else in whole units
    attempt     number of this scheduling attempt, from 1
    queued_at   RFC 3339 time at which the pod was submitted
    annotations allocation annotations that the binding carries to the object (protocol spec, 4.2: resource-status,
                device-allocated, reservation-allocated ...)
    ordinal     number of the decision in its scheduler's term: it was taken on what the log had at `based_on` and on
                the decisions of the same term with smaller numbers, which may have been stored only afterwards
    standing    what else it was taken on; None: not recorded
    """

    namespace: str
    name: str
    node: str
    requests: dict[str, int]
    attempt: int
    queued_at: str
    annotations: dict[str, str] = {}
    ordinal: int = 0
    standing: Standing | None = None
    explanation: PlacementExplanation


@CATALOGUE.register(kind="pod")
class PodReleased(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The pod no longer holds its place; what it took was returned to the node in the same atomic batch.

    reason    "deleted" (gone from the API), "finished" (phase Succeeded or Failed), "node-gone",
              "bind-failed" (the API server refused the binding: the pod is placed anew)
    """

    namespace: str
    name: str
    node: str
    reason: str


class Victim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that has to go. violates_budget: a PodDisruptionBudget does not allow it, and nothing else helped."""

    uid: str
    namespace: str
    name: str
    priority: int = 0
    violates_budget: bool = False


@CATALOGUE.register(kind="pod")
class PodNominated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The pod will fit on the node once the victims are gone; the node is tried first then.

    plugin       who found it: "DefaultPreemption", "ElasticQuota", "Coscheduling"
    candidates   how many nodes were examined
    message      one sentence for a person
    turn         the attempt that led to it; None: not recorded, or it was another pod's of the same job
    """

    namespace: str
    name: str
    node: str
    victims: list[Victim] = []
    plugin: str
    candidates: int = 0
    attempt: int = 0
    message: str = ""
    turn: Turn | None = None


@CATALOGUE.register(kind="pod")
class PodNominationCleared(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The nomination is no longer in force. reason:

    "outranked" (by a pod of higher priority), "unhelpful" (its next attempt found that it does not fit there),
    "deleted" (the pod is gone)
    """

    namespace: str
    name: str
    node: str
    reason: str
