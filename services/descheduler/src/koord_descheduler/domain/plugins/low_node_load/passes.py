"""One pass of LowNodeLoad: choose pods on hot nodes, as long as other nodes have capacity for them.

Source:
    descheduler spec, 8.5
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from koordcore.events.descheduling import Inputs, Number
from koordcore.protocol.priority import PriorityBand

from koord_descheduler.domain.framework.plugin import PluginRun
from koord_descheduler.domain.plugins.low_node_load.arguments import NodePoolArgs
from koord_descheduler.domain.plugins.low_node_load.load import PODS, Flags, PoolLoad, Table
from koord_descheduler.domain.view.fit import FitIndex
from koord_descheduler.domain.view.nodes import NodeMetric
from koord_descheduler.domain.view.orders import give_up_order
from koord_descheduler.domain.view.pods import PodView

_UNMEASURED: Final = float("inf")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pass:
    """The inputs of one pass over the hot nodes of a pool."""

    run: PluginRun  # The round
    pool: NodePoolArgs  # Arguments of the pool
    load: PoolLoad  # Usage of the pool; the pass changes it
    targets: Sequence[int]  # Rows of the nodes that take pods, in the order in which they are tried
    prod: bool  # Whether only prod pods, their usage and their thresholds count
    admits: Callable[[PodView], bool]  # Whether the arguments admit a pod
    needs_fit: bool  # Whether a pod must fit one of the targets
    is_dry_run: bool  # Whether the plugin decides without evicting
    cooled: Callable[[str], None]  # Called with the name of a hot node that is no longer over its thresholds

    def relieve(self, sources: Sequence[int], available: Table) -> None:
        """Evict pods from hot nodes until these are no longer hot, or until the targets have no capacity left.

        `sources`: rows, the hottest first. `available`: int64 (K,) capacity of the targets that is left; it is reduced.
        """
        if not self.targets:
            return
        load = self.load
        room = _Room(self)
        for row in sources:
            if self.run.is_exhausted or (available <= 0).any():
                return  # neither a budget nor the targets take another pod, of whichever source
            node = load.nodes[row]
            metric = self.run.cluster.metrics[node.name]
            pods = [
                pod
                for pod in self.run.cluster.unfinished_on(node.name)
                if (not self.prod or pod.band is PriorityBand.PROD) and self._is_candidate(pod, metric, room)
            ]
            if pods:
                self._evict(row, self._ordered(row, pods, metric), metric, available)

    def _is_candidate(self, pod: PodView, metric: NodeMetric, room: "_Room") -> bool:
        """Whether a pod may leave. If it must fit a target, the first one that it fits is charged with it."""
        if not (self.admits(pod) and self.run.filter(pod)):
            return False
        if not self.needs_fit:
            return True
        usage = metric.pods.get(pod.key)
        return usage is not None and room.take(pod, self.load.amounts(usage))

    def _ordered(self, row: int, pods: Sequence[PodView], metric: NodeMetric) -> list[PodView]:
        """Pods in give-up order. Of otherwise equal ones, the pod that just covers the excess leaves first."""
        load = self.load
        over = load.over_on(row, prod=self.prod)
        excess = load.usage_of(prod=self.prod)[row, : load.compared] - load.limits_of(prod=self.prod).high[row]
        weights = self.pool.resource_weights or {}
        hot = [
            (name, int(excess[column]), weights.get(name, 0))
            for column, name in enumerate(load.resources[: load.compared])
            if over[column]
        ]

        def rank(pod: PodView) -> float:
            usage = metric.pods.get(pod.key)
            if usage is None:
                return _UNMEASURED
            terms = [(usage[name] / above, weight) for name, above, weight in hot if name in usage]
            total = sum(weight for _, weight in terms)
            if total == 0:
                return 0.0
            return -sum(weight * (share if share < 1 else 1 + 1 / share) for share, weight in terms) / total

        return give_up_order(pods, rank)

    def _evict(self, row: int, pods: Sequence[PodView], metric: NodeMetric, available: Table) -> None:
        load, run = self.load, self.run
        for pod in pods:
            if not load.over_on(row, prod=self.prod).any():
                self.cooled(load.nodes[row].name)
                return
            if (available <= 0).any():
                return
            if not run.filter(pod):
                continue
            over = self._over(row)
            if self.is_dry_run:
                run.try_evict(pod, _reason(over), over)
            elif not run.evict(pod, _reason(over), over):
                continue
            usage = metric.pods.get(pod.key)
            if usage is None:
                continue
            amounts = load.amounts(usage)
            amounts[load.resources.index(PODS)] = 1
            available -= amounts[: load.compared]
            load.usage[row] -= amounts
            if self.prod:
                load.prod_usage[row] -= amounts

    def _over(self, row: int) -> Inputs:
        """By "node" or "prod", and the name of a resource: its usage and its threshold in percent."""
        load, prod = self.load, self.prod
        high = (self.pool.prod_high_thresholds if prod else self.pool.high_thresholds) or {}
        over = load.over_on(row, prod=prod)
        found: Inputs = {}
        for column, name in enumerate(load.resources[: load.compared]):
            if over[column]:
                capacity = int(load.capacity[row, column])
                percent = 100 * int(load.usage_of(prod=prod)[row, column]) / capacity if capacity else 0.0
                whose = "prod" if prod else "node"
                found[f"{whose} {name} usage"] = Number(value=round(percent, 2), limit=high.get(name, 100.0))
        return found


def _reason(over: Inputs) -> str:
    parts = [f"{name}({each.value:.2f}%)>threshold({each.limit:.2f}%)" for name, each in over.items()]
    return f"node is overutilized, {', '.join(parts)}"


class _Room:
    """The room that the targets of a pass still have, below their high thresholds and by the native fit check."""

    def __init__(self, given: Pass) -> None:
        load, rows = given.load, np.asarray(given.targets)
        limits, usage = load.limits_of(prod=given.prod), load.usage_of(prod=given.prod)
        self._index = FitIndex([load.nodes[row] for row in given.targets], given.run.cluster)
        self._rows = rows
        self._usage = usage
        self._left: list[Table] = [limits.high[rows, column] - usage[rows, column] for column in range(load.compared)]

    def take(self, pod: PodView, amounts: Table) -> bool:
        """Charge the first target that a pod fits with its usage, int64 (R,). Return False if there is none."""
        has_room: Flags = np.ones(len(self._rows), dtype=np.bool_)
        for column, left in enumerate(self._left):
            has_room &= left >= amounts[column]
        for position in self._index.fitting(pod, has_room):
            self._usage[self._rows[position]] += amounts
            for column, left in enumerate(self._left):
                left[position] -= amounts[column]
            return True
        return False
