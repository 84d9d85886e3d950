"""Explanations of scheduling attempts: events of the stream `KOORD_EXPLANATIONS_<cluster>`. Writer: schedulers.

The subject is `explanations.pod.<uid>`. An explanation is not a fact: no state follows from it. The stream keeps only
the newest explanations of each pod.

Source:
    event-bus spec, 2 (KOORD_EXPLANATIONS); scheduler-core spec, 1.4 and 13
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE
from koordcore.events.scheduling.diagnosis import Diagnosis
from koordcore.events.scheduling.placement_explanation import PlacementExplanation
from koordcore.events.scheduling.pod import DecisionBasis, merge_turn


@CATALOGUE.register(kind="pod", stream="explanations", schema=2, upcasters={1: merge_turn})
class PodUnschedulable(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt to place the pod found no feasible node.

    Attributes:
        attempt: Number of the attempt for this pod, from 1.
        queued_at: RFC 3339 time at which the pod was submitted.
        message: One sentence: "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) were unschedulable.".
        retry_at: RFC 3339 time of the next attempt at the latest; "" if the pod waits for an event.
        explanation: Number of examined nodes, and the refusals by plugin.
        diagnosis: Reasons with names of nodes, and the result of preemption; None if no node was examined and the
            message says all.
        basis: Positions and decisions that the attempt was based on; None if the attempt of another pod gave the
            reason.
    """

    namespace: str
    name: str
    attempt: int
    queued_at: str
    message: str
    retry_at: str = ""
    explanation: PlacementExplanation
    diagnosis: Diagnosis | None = None
    basis: DecisionBasis | None = None


@CATALOGUE.register(kind="pod", stream="explanations")
class DecisionAbandoned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The scheduler gave up a decision after repeated conflicts or an internal error, and queued the pod again.

    Attributes:
        attempt: Number of the attempt for this pod, from 1.
        reason: Why the decision was given up, one sentence; for an internal error with the id of the bug.
    """

    namespace: str
    name: str
    attempt: int
    reason: str


@CATALOGUE.register(kind="pod", stream="explanations")
class PodGated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A PreEnqueue plugin keeps the pod out of the scheduling queue, or the pod waits at Permit for its gang.

    Attributes:
        message: Reason, for people.
    """

    namespace: str
    name: str
    message: str
