"""Explanations of scheduling attempts: events of the stream `KOORD_EXPLANATIONS_<cluster>`. Writer: schedulers.

The subject is `explanations.pod.<uid>`. An explanation is not a fact: no state follows from it. The stream keeps only
the newest explanations of each pod.

Diagnosis of an attempt that found no node. Explanations contain it; `koord explain` shows it.

Source:
    event-bus spec, 2 (KOORD_EXPLANATIONS); scheduler-core spec, 1.4 and 13; scheduler-core spec, 13.1 and
    13.2
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.pod import DecisionBasis, PlacementExplanation, Victim, merge_turn
from koordcore.events.registry import CATALOGUE

MOST_NODES_NAMED = 100
"""Largest number of node names in a group; `count` is the number of all its nodes."""


class NodeFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Nodes that one plugin refused for one reason, in a diagnosis.

    Attributes:
        plugin: Name of the plugin.
        reason: Text of the reason, for example "Insufficient cpu".
        preempt_might_help: Whether the eviction of pods may change the result. False for the code
            UnschedulableAndUnresolvable.
        count: Number of the nodes.
        nodes: Names of the nodes. If they are many, only some of them.
        details: One sentence per topology domain (limited), for example with the counted pods or the pods that prevent
            a placement.
    """

    plugin: str
    reason: str
    preempt_might_help: bool = False
    count: int
    nodes: list[str] = []
    details: list[str] = []


class PreemptionDiagnosis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Result of the preemption that a failed attempt tried.

    Attributes:
        plugin: Plugin that tried it.
        node: Nominated node; "" if none.
        victims: Pods to evict from that node.
        examined: Number of nodes on which preemption was tried.
        failed_message: Reason why preemption did not help; "" if it did.
    """

    plugin: str = ""
    node: str = ""
    victims: list[Victim] = []
    examined: int = 0
    failed_message: str = ""


class Suggestion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An action that may help a pod that found no node.

    Attributes:
        type: "EvictWorkloadSelf", "WaitingVictimReleased" or "DeleteConflictPVC".
        message: One sentence for people.
    """

    type: str
    message: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Reasons why an attempt found no node for a pod or a gang, grouped by plugin and reason.

    Attributes:
        questioned_key: "namespace/name" of the pod; for a member of a gang, the id of its gang group.
        pre_filter_message: Reason why the pod was refused before any node was examined; "" if nodes were examined.
        pre_filter_details: Sentences that name the causes of this refusal, for example the claims that are not bound.
        is_root_cause: False if the pod failed only because its gang group had already failed.
        already_waiting: For a member of a gang, number of pods of its gang group that wait at Permit; otherwise 0.
        waiting_on: Node -> number of these waiting pods.
        failures: Refused nodes by plugin and reason. Reasons that preemption may resolve come first.
        preemption: Result of preemption; None if it was not tried.
        suggestion: An action that may help; None for none.
    """

    questioned_key: str
    pre_filter_message: str = ""
    pre_filter_details: list[str] = []
    is_root_cause: bool = True
    already_waiting: int = 0
    waiting_on: dict[str, int] = {}
    failures: list[NodeFailure] = []
    preemption: PreemptionDiagnosis | None = None
    suggestion: Suggestion | None = None


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
