"""Amounts of cpu and memory, and the contribution of each high-priority pod of a node.

High-priority pods are all pods whose priority class is neither batch nor free. Batch resources of nodes and zones,
and mid resources, count the same pods with different sums.

Source:
    manager spec, 1.1, 1.2, 5.3
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.priority import PriorityBand, priority_class
from koordcore.protocol.qos import QosClass, qos
from koordcore.protocol.resource_names import LENT
from koordcore.values.quantity import parse_milli, parse_value
from koordcore.values.resources import Amounts, clamped

LOW_PRIORITY = (PriorityBand.BATCH, PriorityBand.FREE)
_ALIVE = ("", "Running", "Pending")
FINISHED: Final = ("Succeeded", "Failed")


class Amount(NamedTuple):
    """An amount of cpu in milli-cores and of memory in bytes."""

    cpu: int = 0
    memory: int = 0

    def plus(self, other: "Amount") -> "Amount":
        """Return the sum of two amounts."""
        return Amount(self.cpu + other.cpu, self.memory + other.memory)

    def larger(self, other: "Amount") -> "Amount":
        """Return, for cpu and for memory, the larger of both amounts."""
        return Amount(max(self.cpu, other.cpu), max(self.memory, other.memory))


class PodFacts(NamedTuple):
    """Values of a pod's spec that overcommit needs; they are computed once for each version of the pod."""

    # Whether the pod counts as high-priority: it is alive, and its priority class is neither batch nor free.
    counts: bool
    band: PriorityBand  # Priority class of the pod
    request: Amount  # Requested cpu and memory, or zero if the pod does not count
    is_lse: bool  # Whether the pod's QoS class is LSE, whose cpu counts with its request and not with its usage
    lent: Amounts  # Resource of `LENT` -> amount that the pod requests; empty for a finished pod


class PodUse(NamedTuple):
    """Request and usage of one high-priority pod."""

    pod: Pod | None  # The pod, or None if the report has a sample of it and it is deleted or finished
    band: PriorityBand | None  # Priority class of the pod, or None if `pod` is None
    request: Amount  # Requested amount, or zero if `pod` is None
    usage: Amount | None  # Used amount, or None if the report has no sample of the pod
    is_lse: bool  # Whether its cpu counts with the request and not with the usage


def pod_facts(pod: Pod) -> PodFacts:
    """Return the values of a pod's spec that overcommit needs (manager spec, 1.2, 5.3)."""
    band = priority_class(pod)
    asked = pod_requests(pod) if pod.status.phase not in FINISHED else {}
    lent = {name: asked[name] for name in LENT if name in asked}
    if pod.status.phase not in _ALIVE or band in LOW_PRIORITY:
        return PodFacts(counts=False, band=band, request=Amount(), is_lse=False, lent=lent)
    request = Amount(asked.get("cpu", 0), asked.get("memory", 0))
    return PodFacts(counts=True, band=band, request=request, is_lse=qos(pod) is QosClass.LSE, lent=lent)


def promised(pods: Iterable[tuple[Pod, PodFacts]]) -> Amounts:
    """Return the sum of the batch and mid resources that unfinished pods of a node request.

    The kubelet refuses a pod whose requests exceed the allocatable of the node, and after its restart it admits every
    pod anew. So the node has to show at least these amounts. The keys are those of `LENT`, without zeros.
    """
    total: Amounts = {}
    for _, facts in pods:
        for name, amount in facts.lent.items():
            if amount > 0:
                total[name] = total.get(name, 0) + amount
    return total


def scaled(amount: int, percent: int) -> int:
    """Return `percent` of an amount, truncated to an integer; the factor is the IEEE double of percent / 100.

    Source: manager spec, 1.1.
    """
    return int(float(amount) * (float(percent) / 100.0))


def amount_of_usage(usage: Usage | None) -> Amount:
    """Return a usage sample as an amount in milli-cores and bytes, each within 0..`MAX_AMOUNT`; zeros if there is no
    sample.
    """
    return Amount(clamped(usage.cpu_milli), clamped(usage.memory_bytes)) if usage else Amount()


def node_capacity(node: Node) -> Amount | None:
    """Return the cpu and memory of a node's status.capacity, or None if the node has not reported any."""
    capacity = node.status.capacity
    if not capacity:
        return None
    return Amount(parse_milli(capacity.get("cpu", 0)), parse_value(capacity.get("memory", 0)))


def system_usage(report: NodeUsageReported, applications: tuple[PriorityBand, ...]) -> Amount:
    """Return the system usage of a node: that of processes outside of pods, plus that of some host applications.

    Args:
        applications: Host applications of these priority classes count.
    """
    total = amount_of_usage(report.system_usage)
    for application in report.host_applications:
        if application.priority_class in applications:
            total = total.plus(amount_of_usage(application.usage))
    return total


def high_priority_pods(pods: Iterable[tuple[Pod, PodFacts]], report: NodeUsageReported) -> Iterator[PodUse]:
    """Yield request and usage of every high-priority pod of a node: every pod that is neither batch nor free.

    A pod that has a sample in the report and is not among the running and pending pods is included with its usage
    only.

    Args:
        pods: Pods on the node with their `pod_facts`; a phase other than Running or Pending counts as gone.
        report: The usage report, which has samples by namespace and name of the pod.

    Source: manager spec, 5.3.
    """
    dangling: dict[tuple[str, str], PodUsage] = {(sample.namespace, sample.name): sample for sample in report.pods}
    for pod, facts in pods:
        meta = pod.metadata
        if not facts.counts:
            if pod.status.phase in _ALIVE:
                dangling.pop((meta.namespace, meta.name), None)
            continue
        sample = dangling.pop((meta.namespace, meta.name), None)
        usage = amount_of_usage(sample.usage) if sample else None
        yield PodUse(pod, facts.band, facts.request, usage, facts.is_lse)
    for sample in dangling.values():
        if sample.priority_class not in LOW_PRIORITY:
            yield PodUse(None, None, Amount(), amount_of_usage(sample.usage), is_lse=False)
