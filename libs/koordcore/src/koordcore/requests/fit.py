"""The capacity question to the scheduler: where would a set of pods land now, optionally after other pods have left?

The scheduler answers with its real engine on a copy of its state. A question changes nothing and writes nothing.
"""

from typing import Any

import msgspec

from koordcore.protocol.objects import Pod, Workload
from koordcore.values.allocation import Allocation


class PodSet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A number of equal pods in a capacity question.

    Attributes:
        pod: The pod after admission, without a node. A single pod keeps its name and uid; with several replicas, each
            name and uid gets the number of the replica as a suffix.
        replicas: Number of pods.
    """

    pod: Pod
    replicas: int = 1


class FitRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A capacity question: where would these pods land now?

    Attributes:
        pods: Pods to place, in the order of their submission.
        workloads: Controllers of the pods. Default topology spreading reads their selectors.
        objects: Custom resources to add or change first, such as a PodGroup, as they are stored. A Reservation with a
            uid is placed, too.
        leaving: Uids of pods that leave their nodes first.
        finds_most: Whether to search the greatest number of replicas of the only set. `replicas` is then ignored.
    """

    pods: list[PodSet] = []
    workloads: list[Workload] = []
    objects: list[dict[str, Any]] = []
    leaving: list[str] = []
    finds_most: bool = False


class NodeFit(msgspec.Struct, frozen=True, kw_only=True):
    """A node that would get pods, in the answer to a capacity question.

    Attributes:
        node: Name of the node.
        pods: The pods that it would get, as "namespace/name".
    """

    node: str
    pods: list[str]


class PreemptingPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that would land only after other pods were evicted.

    Attributes:
        pod: The pod as "namespace/name".
        node: The nominated node.
        victims: Pods that have to leave this node, as "namespace/name".
    """

    pod: str
    node: str
    victims: list[str]


class Headroom(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The amount of one resource that remains after all pods of a capacity question have landed.

    Attributes:
        resource: Name of the resource.
        quota: Name of the quota that limits the resource. "" if nodes limit it: the nodes on which a replica was
            feasible.
        needed: Amount that one replica needs; milli-cores for cpu, whole units otherwise.
        free: Free amount of all these nodes together, or of the quota.
        largest: Free amount of the node with the most; equal to `free` for a quota.
        replicas: Number of further replicas for which this resource alone suffices, an upper limit.
    """

    resource: str
    quota: str = ""
    needed: int
    free: int
    largest: int
    replicas: int


class Shortage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reason why the first pod without a node gets none, and the amount that is missing.

    Attributes:
        plugin: Plugin that refuses the first pod without a node; PreEnqueue if the pod may not be attempted, and Permit
            if it waits for the other members of its gang.
        reason: Reason of the plugin.
        message: The whole message of the scheduler for this pod.
        nodes: Number of nodes that the plugin refuses for this reason; 0 if it refuses the pod before any node.
        resource: Resource that runs out; "" if the reason is not an amount.
        quota: Name of the quota that runs out; "" if the nodes do.
        needed: Amount that one replica needs.
        available: Free amount of the node with the most, or of the quota.
        short_by: Missing amount for one replica.
        short_in_total: Missing amount for all replicas without a node, beyond what is free.
    """

    plugin: str
    reason: str
    message: str
    nodes: int = 0
    resource: str = ""
    quota: str = ""
    needed: int = 0
    available: int = 0
    short_by: int = 0
    short_in_total: int = 0


class SetFit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a capacity question for one set of equal pods.

    Attributes:
        namespace: Namespace of the pods.
        name: Name of the pod in the request.
        asked: Number of replicas.
        placed: Number of replicas that would get a node now.
        preempting: Number of replicas that would get a node after a preemption.
        nodes_feasible: Number of nodes on which a replica was feasible before the first one was placed.
        headroom: What remains of each resource; the resource that runs out first comes first.
        shortage: Why a replica gets no node; None if all get one.
    """

    namespace: str
    name: str
    asked: int
    placed: int
    preempting: int = 0
    nodes_feasible: int = 0
    headroom: list[Headroom] = []
    shortage: Shortage | None = None


class FitAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a capacity question.

    Attributes:
        sets: One answer per set of the request, in order. Then one per object that is placed like a pod: a Reservation.
        nodes: The nodes that get pods, by name.
        preempting: Pods that land after a preemption.
        allocations: "namespace/name" -> CPUs, NUMA zones, devices and other parts that the pod gets.
        ahead: Number of waiting pods of others that the scheduler decided before these pods.
        passed_over: Number of waiting pods of others that were not decided first, because there were too many. They may
            take room that the answer counts as free.
        most: Greatest number of replicas, if the request searches it; None otherwise.
        is_limited: Whether more than `most` replicas may fit, because the search ended at its limit.
        position: Position of the log on which the answer is based.
        observed: Position of the stream of usage reports on which it is based.
        answered_by: Instance of the scheduler.
        by_standby: Whether an instance answered that does not lead.
        seconds: Time that the computation took, in real seconds.
    """

    sets: list[SetFit]
    nodes: list[NodeFit] = []
    preempting: list[PreemptingPod] = []
    allocations: dict[str, Allocation] = {}
    ahead: int = 0
    passed_over: int = 0
    most: int | None = None
    is_limited: bool = False
    position: int
    observed: int
    answered_by: str = ""
    by_standby: bool = False
    seconds: float = 0.0

    @property
    def fits(self) -> bool:
        """Return whether every pod gets a node now."""
        return all(each.placed == each.asked for each in self.sets)
