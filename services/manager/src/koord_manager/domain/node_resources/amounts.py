"""Amounts of cpu and memory, and what each high-priority pod of a node adds to them.

Batch resources (node and zone) and mid resources count the same pods; they differ in what they sum.

source    manager spec, 1.1, 1.2, 5.3
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from koordcore.events.agents.observation import NodeUsageReported, PodUsage, Usage
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.priority import PriorityBand, priority_class
from koordcore.protocol.qos import QosClass, qos
from koordcore.values.quantity import parse_milli, parse_value

LOW_PRIORITY = (PriorityBand.BATCH, PriorityBand.FREE)
_ALIVE = ("", "Running", "Pending")


class Amount(NamedTuple):
    """cpu in milli-cores, memory in bytes."""

    cpu: int = 0
    memory: int = 0

    def plus(self, other: "Amount") -> "Amount":
        """Sum, per resource."""
        return Amount(self.cpu + other.cpu, self.memory + other.memory)

    def larger(self, other: "Amount") -> "Amount":
        """Maximum, per resource."""
        return Amount(max(self.cpu, other.cpu), max(self.memory, other.memory))


class PodFacts(NamedTuple):
    """What the pod's spec alone says: the same for every report, so it is worked out once.

    counts    whether it is alive and neither batch nor free
    is_lse    its cpu counts as requested, whatever it uses
    """

    counts: bool
    band: PriorityBand
    request: Amount
    is_lse: bool


class PodUse(NamedTuple):
    """What one pod that batch work must not disturb asks for and uses.

    pod       None: it is measured, but gone or finished
    request   nothing for a pod that is gone
    usage     None: not measured yet
    """

    pod: Pod | None
    band: PriorityBand | None
    request: Amount
    usage: Amount | None
    is_lse: bool


def pod_facts(pod: Pod) -> PodFacts:
    """What counts of a pod; nothing of its request when it is low-priority or finished.

    source    manager spec, 1.2, 5.3
    """
    band = priority_class(pod)
    if pod.status.phase not in _ALIVE or band in LOW_PRIORITY:
        return PodFacts(counts=False, band=band, request=Amount(), is_lse=False)
    asked = pod_requests(pod)
    request = Amount(asked.get("cpu", 0), asked.get("memory", 0))
    return PodFacts(counts=True, band=band, request=request, is_lse=qos(pod) is QosClass.LSE)


def scaled(amount: int, percent: int) -> int:
    """amount * percent / 100, truncated, the factor an IEEE double computed as percent / 100.

    source    manager spec, 1.1
    """
    return int(float(amount) * (float(percent) / 100.0))


def amount_of_usage(usage: Usage | None) -> Amount:
    """A sample as an amount; nothing when there is none."""
    return Amount(usage.cpu_milli, usage.memory_bytes) if usage else Amount()


def node_capacity(node: Node) -> Amount | None:
    """Capacity of the node, nothing for what it does not name; None when it has not reported any."""
    capacity = node.status.capacity
    if not capacity:
        return None
    return Amount(parse_milli(capacity.get("cpu", 0)), parse_value(capacity.get("memory", 0)))


def system_usage(report: NodeUsageReported, applications: tuple[PriorityBand, ...]) -> Amount:
    """What runs outside of pods, with the host applications of these classes."""
    total = amount_of_usage(report.system_usage)
    for application in report.host_applications:
        if application.priority_class in applications:
            total = total.plus(amount_of_usage(application.usage))
    return total


def high_priority_pods(pods: Iterable[tuple[Pod, PodFacts]], report: NodeUsageReported) -> Iterator[PodUse]:
    """Every pod that is neither batch nor free, measured or not, and every measured one whose pod is gone.

    pods      on the node, each with its `pod_facts`; those in another phase than Running or Pending count as gone
    report    usage by namespace and name

    source    manager spec, 5.3
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
