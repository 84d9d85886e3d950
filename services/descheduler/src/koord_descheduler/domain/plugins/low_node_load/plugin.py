"""LowNodeLoad: the node pools of one round, in order.

Source:
    descheduler spec, 8.1, 8.4
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from koordcore.events.descheduling import ClassifiedNodes

from koord_descheduler.domain.config.arguments import PodScope
from koord_descheduler.domain.framework.plugin import PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind, SharedState
from koord_descheduler.domain.plugins.low_node_load.anomaly import AnomalyCondition, Detectors, UsageKind
from koord_descheduler.domain.plugins.low_node_load.arguments import (
    AnomalyConditionArgs,
    LowNodeLoadArgs,
    NodePoolArgs,
    check,
    decode,
)
from koord_descheduler.domain.plugins.low_node_load.load import (
    NodeClass,
    PoolLoad,
    Table,
    classes_of,
    hottest_first,
    measured,
)
from koord_descheduler.domain.plugins.low_node_load.passes import Pass
from koord_descheduler.domain.view.nodes import NodeView

NAME: Final = "LowNodeLoad"
_HOT: Final = {UsageKind.NODE: NodeClass.HIGH, UsageKind.PROD: NodeClass.PROD_HIGH}


class LowNodeLoad:
    """Evicts pods from nodes with high measured usage while nodes with low usage have capacity for them."""

    name = NAME

    def __init__(self, args: LowNodeLoadArgs, detectors: Detectors) -> None:
        self._args = args
        self._detectors = detectors
        self._scope = PodScope(args.evictable_namespaces, any_of=args.pod_selectors)
        self._pools = [
            (pool, None if pool.node_selector is None else pool.node_selector.compiled()) for pool in args.node_pools
        ]

    def balance(self, run: PluginRun) -> None:
        """Evict pods from hot nodes, pool by pool. No-op if the plugin is paused.

        A pool without selector has all nodes. Others lack the nodes that an earlier pool handled as overloaded. No pod
        leaves a pool in which no node was hot for enough rounds, at most `number_of_nodes` nodes can take pods, or all
        of its nodes can.
        """
        if self._args.paused:
            return
        self._detectors.forget_older(run.cluster.now, self._args.detector_cache_timeout)
        observations = _Observations(self._detectors, run.cluster.now)
        handled: set[str] = set()
        for pool, selector in self._pools:
            nodes = [
                node
                for node in run.nodes
                if selector is None or (node.name not in handled and selector.matches(node.labels))
            ]
            handled |= self._balance_pool(run, pool, nodes, observations)
        observations.reset_calm_nodes()

    def _balance_pool(
        self, run: PluginRun, pool: NodePoolArgs, nodes: Sequence[NodeView], observations: "_Observations"
    ) -> set[str]:
        """Return the names of the nodes that the pool handled as overloaded."""
        load = measured(pool, nodes, run.cluster, self._args.node_metric_expiration_seconds)
        by_class: dict[NodeClass, list[int]] = {each: [] for each in NodeClass}
        for row, each in enumerate(classes_of(load)):
            by_class[each].append(row)
        condition = (pool.anomaly_condition or AnomalyConditionArgs()).condition()
        hot = {
            kind: observations.anomalous(kind, load, by_class[hot_class], condition) for kind, hot_class in _HOT.items()
        }
        run.classified.append(_classified(pool, load, by_class, hot))
        low, both, prod_low = by_class[NodeClass.LOW], by_class[NodeClass.BOTH_LOW], by_class[NodeClass.PROD_LOW]
        count = len(low) + len(both) + len(prod_low)
        if not any(hot.values()) or count == 0:
            return set()
        for row in (*low, *both):
            self._detectors.reset(UsageKind.NODE, load.nodes[row].name)
        for row in prod_low:
            self._detectors.reset(UsageKind.PROD, load.nodes[row].name)
        if count <= self._args.number_of_nodes or count == len(nodes):
            return set()
        self._relieve(run, pool, load, hot, low=low, both=both, prod_low=prod_low)
        for kind, rows in hot.items():
            for row in rows:
                self._detectors.mark_normal(kind, load.nodes[row].name, run.cluster.now, condition)
        return {load.nodes[row].name for row in by_class[NodeClass.HIGH]}

    def _relieve(
        self,
        run: PluginRun,
        pool: NodePoolArgs,
        load: PoolLoad,
        hot: dict[UsageKind, list[int]],
        *,
        low: list[int],
        both: list[int],
        prod_low: list[int],
    ) -> None:
        """Run the pass over hot nodes, then the pass over nodes whose prod pods use too much."""
        available = _headroom(load, [*low, *both], prod=False)
        both_available = _headroom(load, both, prod=False)
        prod_available, both_prod = _headroom(load, prod_low, prod=True), _headroom(load, both, prod=True)
        weights = pool.resource_weights or {}
        for kind, targets in ((UsageKind.NODE, [*low, *both]), (UsageKind.PROD, [*prod_low, *both])):
            prod = kind is UsageKind.PROD
            if prod:
                available = prod_available + np.minimum(both_prod, np.minimum(both_available, available))
            Pass(
                run=run,
                pool=pool,
                load=load,
                targets=targets,
                prod=prod,
                admits=self._scope.admits,
                needs_fit=self._args.node_fit,
                is_dry_run=self._args.dry_run,
                cooled=lambda node, kind=kind: self._detectors.reset(kind, node),
            ).relieve(hottest_first(load, hot[kind], weights, prod=prod), available)


def _classified(
    pool: NodePoolArgs, load: PoolLoad, by_class: Mapping[NodeClass, list[int]], hot: Mapping[UsageKind, list[int]]
) -> ClassifiedNodes:
    def names(rows: Iterable[int]) -> list[str]:
        return [load.nodes[row].name for row in sorted(rows)]

    return ClassifiedNodes(
        plugin=NAME,
        pool=pool.name,
        nodes=len(load.nodes),
        low=dict(pool.low_thresholds or {}),
        high=dict(pool.high_thresholds or {}),
        is_deviation=pool.use_deviation_thresholds,
        under=names(by_class[NodeClass.LOW] + by_class[NodeClass.BOTH_LOW] + by_class[NodeClass.PROD_LOW]),
        over=names(by_class[NodeClass.HIGH] + by_class[NodeClass.PROD_HIGH]),
        acted_on=names({row for rows in hot.values() for row in rows}),
    )


def _headroom(load: PoolLoad, rows: list[int], *, prod: bool) -> Table:
    """Sum of the amounts that nodes can take before they exceed their high thresholds: int64 (K,)."""
    usage = load.usage_of(prod=prod)[rows, : load.compared]
    return (load.limits_of(prod=prod).high[rows] - usage).sum(axis=0)


class _Observations:
    """The observations of one round. Each node is observed at most once per kind of usage, even in several pools."""

    def __init__(self, detectors: Detectors, now: float) -> None:
        self._detectors = detectors
        self._now = now
        self._hot: dict[UsageKind, set[str]] = {kind: set() for kind in UsageKind}
        self._measured: dict[UsageKind, set[str]] = {kind: set() for kind in UsageKind}

    def anomalous(self, kind: UsageKind, load: PoolLoad, rows: list[int], condition: AnomalyCondition) -> list[int]:
        """Record which nodes of a pool are hot (`rows`). Return the rows of those to act on."""
        self._measured[kind].update(node.name for node in load.nodes)
        found: list[int] = []
        for row in rows:
            name = load.nodes[row].name
            if not condition.is_off:
                if name not in self._hot[kind]:
                    self._detectors.mark_abnormal(kind, name, self._now, condition)
                if self._detectors.is_anomalous(kind, name, self._now, condition):
                    found.append(row)
            else:
                found.append(row)
            self._hot[kind].add(name)
        return found

    def reset_calm_nodes(self) -> None:
        """Clear the counters of the nodes that were measured and hot in no pool."""
        for kind in UsageKind:
            for name in self._measured[kind] - self._hot[kind]:
                self._detectors.reset_if_ok(kind, name)


def _make(args: LowNodeLoadArgs, shared: SharedState) -> LowNodeLoad:
    # a detector must not expire before the next round, whatever the file says
    if args.detector_cache_timeout < shared.interval:
        args = args.model_copy(update={"detector_cache_timeout": 2 * shared.interval})
    return LowNodeLoad(args, shared.of(Detectors))


KIND: Final = PluginKind(
    name=NAME, points=frozenset({Point.BALANCE}), is_native=True, decode=decode, check=check, make=_make
)
