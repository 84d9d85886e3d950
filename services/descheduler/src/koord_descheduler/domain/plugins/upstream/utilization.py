"""Shared parts of LowNodeUtilization and HighNodeUtilization: usage by requests, and the eviction from a node.

Source:
    descheduler spec, 10.8, 10.9
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.protocol.component_config.wire import Text, WireModel
from koordcore.protocol.objects import Taint
from koordcore.protocol.placement.taints import is_tolerated
from koordcore.protocol.resource_names import CPU, MEMORY, PODS
from koordcore.values.invalid import InvalidInput
from pydantic import StrictBool, StrictFloat, StrictInt

from koord_descheduler.domain.arguments.common import Namespaces
from koord_descheduler.domain.framework.plugin import PluginRun
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.orders import upstream_order
from koord_descheduler.domain.view.pods import PodView

Percentages = Mapping[Text, StrictInt | StrictFloat]
"""Resource -> percentage of allocatable."""

ALWAYS_COUNTED: Final = (CPU, MEMORY, PODS)


class MetricsUtilization(WireModel):
    """Source of measured usage in the arguments. Every source is refused, because only requests are supported."""

    metrics_server: StrictBool = False
    source: Text = ""


def check_percentages(percentages: Mapping[str, float], path: str) -> Iterator[InvalidInput]:
    """Yield an error for each percentage outside of 0..100, and if there is none at all."""
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
    """The usage of one node by requests.

    Attributes:
        node: The node.
        used: Resource -> sum of the requests of its unfinished pods; `pods` is their number.
    """

    node: NodeView
    used: dict[str, int]

    def base(self, name: str) -> int:
        """Return the amount of a resource that is 100 %: allocatable, or capacity if allocatable is empty."""
        return (self.node.allocatable or self.node.capacity).get(name, 0)

    def percent(self, name: str) -> float:
        """Return the percentage of a resource that is used; 0 if the node has none of it."""
        base = self.base(name)
        return 100.0 * self.used[name] / base if base else 0.0

    def total(self) -> int:
        """Return the sum of all used amounts, whatever their units. Nodes are ordered by it."""
        return sum(self.used.values())


def usages(nodes: Iterable[NodeView], cluster: ClusterView, thresholded: Iterable[str]) -> list[NodeUsage]:
    """Return the usage of each node over the thresholded resources, cpu, memory and pods."""
    names = dict.fromkeys((*thresholded, *ALWAYS_COUNTED))
    found: list[NodeUsage] = []
    for node in nodes:
        occupancy = cluster.occupancy(node.name)
        used = {name: occupancy.requested.get(name, 0) for name in names}
        used[PODS] = occupancy.pods
        found.append(NodeUsage(node, used))
    return found


def is_within(usage: NodeUsage, thresholds: Mapping[str, float]) -> bool:
    """Return whether no thresholded resource of a node is above its threshold."""
    return all(usage.percent(name) <= percent for name, percent in thresholds.items())


@dataclass(slots=True, kw_only=True)
class Drain:
    """Evicts pods of source nodes while the target nodes have room.

    Attributes:
        run: The run of the plugin.
        available: Resource -> amount that the targets can still take. It falls with every eviction.
        target_taints: Taints of each target node.
        excluded: Namespaces whose pods stay.
        admits: Whether a pod may be considered, besides the filter plugins.
        most_per_node: Largest number of evictions per node; None: no limit.
        reason: Reason of the evictions.
    """

    run: PluginRun
    available: dict[str, int]
    target_taints: Sequence[Sequence[Taint]]
    excluded: tuple[str, ...]
    admits: Callable[[PodView], bool]
    most_per_node: int | None
    reason: str

    def from_node(self, source: NodeUsage, goes_on: Callable[[NodeUsage], bool]) -> None:
        """Evict pods of a node, from low to high priority.

        Args:
            source: The node with its usage, which falls with every eviction.
            goes_on: Whether the node should still lose pods.
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
            if self.run.pre_eviction_filter(pod) and self.run.evict(pod, self.reason):
                count += 1
                self._account(pod, source)

    def _account(self, pod: PodView, source: NodeUsage) -> None:
        for name in source.used:
            amount = 1 if name == PODS else pod.requests.get(name, 0)
            source.used[name] -= amount
            self.available[name] -= amount

    def _has_tolerable_target(self, pod: PodView) -> bool:
        """Return whether the pod tolerates all taints of a target, and has at least as many tolerations as taints."""
        tolerations = pod.object.spec.tolerations
        return any(
            len(tolerations) >= len(taints) and all(is_tolerated(taint, tolerations) for taint in taints)
            for taints in self.target_taints
        )
