"""The capacity question to the scheduler: where would a set of pods land now, optionally after other pods have left?

The scheduler answers with its real engine on a copy of its state. A question changes nothing and writes nothing.
"""

from typing import Any

import msgspec

from koordcore.protocol.objects import Pod, Workload
from koordcore.values.allocation import Allocation


class PodSet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A number of equal pods in a capacity question."""

    # The pod after admission, without a node. A single pod keeps its name and uid; with several replicas, each name and
    # uid gets the number of the replica as a suffix.
    pod: Pod
    replicas: int = 1  # Number of pods


class FitRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A capacity question: where would these pods land now?"""

    pods: list[PodSet] = []  # Pods to place, in the order of their submission
    workloads: list[Workload] = []  # Controllers of the pods. Default topology spreading reads their selectors.
    # Custom resources to add or change first, such as a PodGroup, as they are stored. A Reservation with a uid is
    # placed, too.
    objects: list[dict[str, Any]] = []
    leaving: list[str] = []  # Uids of pods that leave their nodes first
    # Whether to search the greatest number of replicas of the only set. `replicas` is then ignored.
    finds_most: bool = False


class NodeFit(msgspec.Struct, frozen=True, kw_only=True):
    """A node that would get pods, in the answer to a capacity question."""

    node: str  # Name of the node
    pods: list[str]  # The pods that it would get, as "namespace/name"


class PreemptingPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that would land only after other pods were evicted."""

    pod: str  # The pod as "namespace/name"
    node: str  # The nominated node
    victims: list[str]  # Pods that have to leave this node, as "namespace/name"


class Headroom(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The amount of one resource that remains after all pods of a capacity question have landed."""

    resource: str  # Name of the resource
    # Name of the quota that limits the resource. "" if nodes limit it: the nodes on which a replica was feasible.
    quota: str = ""
    needed: int  # Amount that one replica needs; milli-cores for cpu, whole units otherwise
    free: int  # Free amount of all these nodes together, or of the quota
    largest: int  # Free amount of the node with the most; equal to `free` for a quota
    replicas: int  # Number of further replicas for which this resource alone suffices, an upper limit


class Shortage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reason why the first pod without a node gets none, and the amount that is missing."""

    # Plugin that refuses the first pod without a node; PreEnqueue if the pod may not be attempted, and Permit if it
    # waits for the other members of its gang.
    plugin: str
    reason: str  # Reason of the plugin
    message: str  # The whole message of the scheduler for this pod
    nodes: int = 0  # Number of nodes that the plugin refuses for this reason; 0 if it refuses the pod before any node
    resource: str = ""  # Resource that runs out; "" if the reason is not an amount
    quota: str = ""  # Name of the quota that runs out; "" if the nodes do
    needed: int = 0  # Amount that one replica needs
    available: int = 0  # Free amount of the node with the most, or of the quota
    short_by: int = 0  # Missing amount for one replica
    short_in_total: int = 0  # Missing amount for all replicas without a node, beyond what is free


class SetFit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a capacity question for one set of equal pods."""

    namespace: str  # Namespace of the pods
    name: str  # Name of the pod in the request
    asked: int  # Number of replicas
    placed: int  # Number of replicas that would get a node now
    preempting: int = 0  # Number of replicas that would get a node after a preemption
    nodes_feasible: int = 0  # Number of nodes on which a replica was feasible before the first one was placed
    headroom: list[Headroom] = []  # What remains of each resource; the resource that runs out first comes first
    shortage: Shortage | None = None  # Why a replica gets no node; None if all get one


class FitAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a capacity question."""

    # One answer per set of the request, in order. Then one per object that is placed like a pod: a Reservation.
    sets: list[SetFit]
    nodes: list[NodeFit] = []  # The nodes that get pods, by name
    preempting: list[PreemptingPod] = []  # Pods that land after a preemption
    # "namespace/name" -> CPUs, NUMA zones, devices and other parts that the pod gets.
    allocations: dict[str, Allocation] = {}
    ahead: int = 0  # Number of waiting pods of others that the scheduler decided before these pods
    # Number of waiting pods of others that were not decided first, because there were too many. They may take room that
    # the answer counts as free.
    passed_over: int = 0
    most: int | None = None  # Greatest number of replicas, if the request searches it; None otherwise
    is_limited: bool = False  # Whether more than `most` replicas may fit, because the search ended at its limit
    position: int  # Position of the log on which the answer is based
    observed: int  # Position of the stream of usage reports on which it is based
    answered_by: str = ""  # Instance of the scheduler
    by_standby: bool = False  # Whether an instance answered that does not lead
    seconds: float = 0.0  # Time that the computation took, in real seconds

    @property
    def fits(self) -> bool:
        """Return whether every pod gets a node now."""
        return all(each.placed == each.asked for each in self.sets)
