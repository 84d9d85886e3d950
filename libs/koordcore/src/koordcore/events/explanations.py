"""Explanations of scheduling attempts, with the diagnosis of one that found no node. Writer: schedulers.

Stream `KOORD_EXPLANATIONS_<cluster>`, subject `explanations.pod.<uid>`. An explanation is not a fact: no state follows
from it. The stream keeps only the newest explanations of each pod.

Source: event-bus spec, 2 (KOORD_EXPLANATIONS); scheduler-core spec, 1.4 and 13.
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.pod import DecisionBasis, PlacementExplanation, Victim, merge_turn
from koordcore.events.registry import CATALOGUE

MOST_NODES_NAMED = 100  # Largest number of node names in a group; `count` is the number of all its nodes


class Shortage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A resource of which all nodes of a group have too little for a pod.

    Amounts: milli-cores for cpu (also batch and mid), bytes for memory and storage, else units.
    """

    resource: str  # Name of the resource; "pods" for the number of pods
    needs: int  # What the pod needs
    most: int = 0  # Largest free amount of a node of the group; it may be another node for each resource
    largest: int = 0  # Largest allocatable amount of a node of the group


class NodeFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Nodes that one plugin refused for one reason, in a diagnosis."""

    plugin: str  # Name of the plugin
    reason: str  # Text of the reason, for example "Insufficient cpu"
    # Whether the eviction of pods may change the result. False for the code UnschedulableAndUnresolvable.
    preempt_might_help: bool = False
    count: int  # Number of the nodes
    nodes: list[str] = []  # Names of the nodes. If they are many, only some of them.
    # One sentence per topology domain (limited), for example with the counted pods or the pods that prevent a
    # placement.
    details: list[str] = []
    # Resources that every node of the group lacks, in the order of the pod's requests. Empty if the plugin compares no
    # amounts, and in logs of earlier versions.
    shortages: list[Shortage] = []
    needs: str = ""  # What the pod needs of a node, if it is not an amount, for example "2 GPUs"; "" if not known


class QuotaShortage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The limit of a quota that a pod would exceed. Amounts: milli-cores for cpu, whole units otherwise."""

    quota: str  # Name of the quota: that of the pod, or an ancestor
    resource: str  # First of the exceeded resources, by name
    limit: int  # What the quota may use
    used: int  # What its pods with a node use
    needs: int  # What the pod needs
    # What the limit is: "runtime" (its share now), "max", or "min" (for pods that must not be preempted).
    kind: str
    # Other quotas of the same parent that use more than their min -> the amount above it. At most three, the largest
    # ones; empty unless the limit is a runtime below the max.
    above_min: dict[str, int] = {}


class GangProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How far a gang is that is not complete."""

    gang: str  # "namespace/name"
    needs: int  # Number of members that must be placed together
    exist: int  # Number of members that exist
    held_back: int = 0  # Number of these that cannot be scheduled now, and do not count for `needs`
    placed: int = 0  # Number of members that have a node


class PreemptionDiagnosis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Result of the preemption that a failed attempt tried."""

    plugin: str = ""  # Plugin that tried it
    node: str = ""  # Nominated node; "" if none
    victims: list[Victim] = []  # Pods to evict from that node
    examined: int = 0  # Number of nodes on which preemption was tried
    failed_message: str = ""  # Reason why preemption did not help; "" if it did


class Suggestion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An action that may help a pod that found no node."""

    type: str  # "EvictWorkloadSelf", "WaitingVictimReleased" or "DeleteConflictPVC"
    message: str  # One sentence for people


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Reasons why an attempt found no node for a pod or a gang, grouped by plugin and reason."""

    questioned_key: str  # "namespace/name" of the pod; for a member of a gang, the id of its gang group
    # Reason why the pod was refused before any node was examined; "" if nodes were examined.
    pre_filter_message: str = ""
    # Sentences that name the causes of this refusal, for example the claims that are not bound.
    pre_filter_details: list[str] = []
    is_root_cause: bool = True  # False if the pod failed only because its gang group had already failed
    # For a member of a gang, number of pods of its gang group that wait at Permit; otherwise 0.
    already_waiting: int = 0
    waiting_on: dict[str, int] = {}  # Node -> number of these waiting pods
    # Refused nodes by plugin and reason. Reasons that preemption may resolve come first.
    failures: list[NodeFailure] = []
    preemption: PreemptionDiagnosis | None = None  # Result of preemption; None if it was not tried
    suggestion: Suggestion | None = None  # An action that may help; None for none
    quota: QuotaShortage | None = None  # Which quota has no room for the pod; None if no quota refused it


@CATALOGUE.register(kind="pod", stream="explanations", schema=2, upcasters={1: merge_turn})
class PodUnschedulable(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt to place the pod found no feasible node."""

    namespace: str
    name: str
    attempt: int  # Number of the attempt for this pod, from 1
    queued_at: str  # RFC 3339 time at which the pod was submitted
    message: str  # One sentence: "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) were unschedulable."
    retry_at: str = ""  # RFC 3339 time of the next attempt at the latest; "" if the pod waits for an event
    explanation: PlacementExplanation  # Number of examined nodes, and the refusals by plugin
    # Reasons with names of nodes, and the result of preemption; None if no node was examined and the message says all.
    diagnosis: Diagnosis | None = None
    # Positions and decisions that the attempt was based on; None if the attempt of another pod gave the reason.
    basis: DecisionBasis | None = None
    # Reason of the condition PodScheduled=False: "" stands for "Unschedulable" (another node may help). Else
    # "SchedulerError", "QuotaExceeded" or "WaitingForGang": no other node helps.
    reason: str = ""


@CATALOGUE.register(kind="pod", stream="explanations")
class DecisionAbandoned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The scheduler gave up a decision after repeated conflicts or an internal error, and queued the pod again."""

    namespace: str
    name: str
    attempt: int  # Number of the attempt for this pod, from 1
    reason: str  # Why the decision was given up, one sentence; for an internal error with the id of the bug


@CATALOGUE.register(kind="pod", stream="explanations")
class PodGated(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A PreEnqueue plugin keeps the pod out of the scheduling queue, or the pod waits at Permit for its gang."""

    namespace: str
    name: str
    message: str  # Reason, for people
    # Reason of the condition PodScheduled=False: "SchedulingGated" or "WaitingForGang". "" in logs of earlier versions.
    reason: str = ""
    # The gang of the pod that is not complete; None if it waits for something else, and in logs of earlier versions.
    gang: GangProgress | None = None
