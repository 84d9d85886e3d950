"""Shared parts of LowNodeUtilization and HighNodeUtilization: the usage of nodes, and the eviction from a node.

Source:
    descheduler spec, 10.8, 10.9
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.events.descheduling import Number
from koordcore.protocol.component_config import Number as Percentage
from koordcore.protocol.component_config import Text, WireModel
from koordcore.protocol.objects import Taint
from koordcore.protocol.placement import is_tolerated
from koordcore.protocol.resource_names import CPU, MEMORY, PODS
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import Amounts
from pydantic import StrictBool

from koord_descheduler.domain.config.arguments import Namespaces
from koord_descheduler.domain.framework.plugin import PluginRun
from koord_descheduler.domain.view.cluster import ClusterView, total_of
from koord_descheduler.domain.view.nodes import NodeMetric, NodeView
from koord_descheduler.domain.view.orders import upstream_order
from koord_descheduler.domain.view.pods import PodView

Percentages = Mapping[Text, Percentage]
"""Resource -> percentage of allocatable."""

ALWAYS_COUNTED: Final = (CPU, MEMORY, PODS)
KUBERNETES_METRICS: Final = "KubernetesMetrics"
_EXPIRATION_SECONDS: Final = 180.0
"""Age from which on a usage report does not count, as in LowNodeLoad by default."""


class MetricsUtilization(WireModel):
    """Source of measured usage in the arguments. `metrics_server` is the deprecated form of KubernetesMetrics."""

    metrics_server: StrictBool = False
    source: Text = ""


def check_metrics(metrics: MetricsUtilization | None, thresholded: Iterable[str]) -> Iterator[InvalidInput]:
    """Yield an error if the source is not KubernetesMetrics, and for each thresholded resource that it does not have.

    Without `metrics`, usage is computed from requests.
    """
    if metrics is None:
        return
    if metrics.source != KUBERNETES_METRICS and (metrics.source or not metrics.metrics_server):
        rule = f"{KUBERNETES_METRICS} (the reports of the agents), or no metricsUtilization (requests)"
        yield InvalidInput(rule, metrics.source, "metricsUtilization.source")
        return
    for name in sorted({*thresholded} - {*ALWAYS_COUNTED}):
        yield InvalidInput(f"one of {', '.join(ALWAYS_COUNTED)}: no other usage is measured", name, "thresholds")


def check_percentages(percentages: Mapping[str, float], path: str) -> Iterator[InvalidInput]:
    if not percentages:
        yield InvalidInput("at least one resource with a percentage", {}, path)
    for name, percent in percentages.items():
        if not 0 <= percent <= 100:
            yield InvalidInput("a percentage within 0..100", percent, f"{path}[{name}]")


def check_evictable(namespaces: Namespaces | None, path: str) -> Iterator[InvalidInput]:
    """Yield an error if namespaces are included: only exclusion is possible."""
    if namespaces is not None and namespaces.include:
        yield InvalidInput("empty; only exclude is possible", list(namespaces.include), f"{path}.include")


@dataclass(slots=True)
class NodeUsage:
    node: NodeView
    used: dict[str, int]  # Resource -> used amount; `pods` is the number of its unfinished pods
    # The report that has the usage; None: it is the sum of the requests of the unfinished pods.
    metric: NodeMetric | None = None

    def of_pod(self, pod: PodView) -> Amounts | None:
        """The usage of one pod of the node: measured, or its requests if the node is not measured.

        None if the node is measured and the pod is not.
        """
        return pod.requests if self.metric is None else self.metric.pods.get(pod.key)

    def base(self, name: str) -> int:
        """The amount that is 100 %: allocatable, or capacity if allocatable is empty."""
        return (self.node.allocatable or self.node.capacity).get(name, 0)

    def percent(self, name: str) -> float:
        """The percentage of a resource that is used; 0 if the node has none of it.

        Divided first, as upstream: 7 of 100 are a little more than 7 %.
        """
        base = self.base(name)
        return self.used[name] / base * 100 if base else 0.0

    def has(self, name: str) -> bool:
        """Whether the node names a resource, even with an amount of 0."""
        return name in (self.node.allocatable or self.node.capacity)

    def total(self) -> int:
        """The sum of all used amounts, regardless of units, as a sort key of nodes."""
        return sum(self.used.values())


def measured_usages(nodes: Iterable[NodeView], cluster: ClusterView) -> list[NodeUsage]:
    """The measured usage of cpu and memory, and the number of pods, of each node with a fresh report."""
    found: list[NodeUsage] = []
    for node in nodes:
        metric = cluster.metrics.get(node.name)
        if metric is not None and metric.is_fresh(cluster.now, _EXPIRATION_SECONDS):
            used = total_of((metric.system, *metric.pods.values()))
            counted = {CPU: used.get(CPU, 0), MEMORY: used.get(MEMORY, 0), PODS: len(cluster.unfinished_on(node.name))}
            found.append(NodeUsage(node, counted, metric))
    return found


def usages(nodes: Iterable[NodeView], cluster: ClusterView, thresholded: Iterable[str]) -> list[NodeUsage]:
    """The usage by requests of each node over the thresholded resources, cpu, memory and pods."""
    names = dict.fromkeys((*thresholded, *ALWAYS_COUNTED))
    found: list[NodeUsage] = []
    for node in nodes:
        occupancy = cluster.occupancy(node.name)
        used = {name: occupancy.requested.get(name, 0) for name in names}
        used[PODS] = occupancy.pods
        found.append(NodeUsage(node, used))
    return found


def is_within(usage: NodeUsage, thresholds: Mapping[str, float]) -> bool:
    """Whether the usage of every resource with a threshold is at or below the threshold."""
    return all(usage.percent(name) <= percent for name, percent in thresholds.items())


@dataclass(slots=True, kw_only=True)
class Drain:
    """Evicts pods of source nodes while the target nodes have room."""

    run: PluginRun
    available: dict[str, int]  # Resource -> amount that the targets can still take. It falls with every eviction.
    target_taints: Sequence[Sequence[Taint]]
    excluded: tuple[str, ...]
    admits: Callable[[PodView], bool]  # Whether a pod may be considered, besides the filter plugins
    most_per_node: int | None  # Largest number of evictions per node; None: no limit
    reason: str
    thresholds: Mapping[str, float]  # Resource -> percentage with which the requests of a source are compared

    def from_node(self, source: NodeUsage, goes_on: Callable[[NodeUsage], bool]) -> None:
        """Evict pods of a node, from low to high priority. Its usage falls with every eviction.

        It stops if `goes_on` returns False, the limit per node is reached, or the targets can take no more of a
        resource. Pods that the filters refuse, whose namespace is excluded, or that tolerate no target stay.
        """
        count = 0
        pods = self.run.cluster.unfinished_on(source.node.name)
        for pod in upstream_order(pod for pod in pods if self.admits(pod) and self.run.filter(pod)):
            if self.most_per_node is not None and count >= self.most_per_node:
                return
            if not goes_on(source) or any(amount <= 0 for amount in self.available.values()):
                return
            if pod.namespace in self.excluded or not self._has_tolerable_target(pod):
                continue
            used = source.of_pod(pod)
            inputs = {
                f"node {name}": Number(value=round(source.percent(name), 2), limit=percent)
                for name, percent in self.thresholds.items()
            }
            if used is not None and self.run.pre_eviction_filter(pod) and self.run.evict(pod, self.reason, inputs):
                count += 1
                self._account(used, source)

    def _account(self, of_pod: Amounts, source: NodeUsage) -> None:
        for name in source.used:
            amount = 1 if name == PODS else of_pod.get(name, 0)
            source.used[name] -= amount
            self.available[name] -= amount

    def _has_tolerable_target(self, pod: PodView) -> bool:
        """Whether the pod tolerates all taints of a target, and has at least as many tolerations as taints."""
        tolerations = pod.object.spec.tolerations
        return any(
            len(tolerations) >= len(taints) and all(is_tolerated(taint, tolerations) for taint in taints)
            for taints in self.target_taints
        )
