"""Measured usage of the nodes of a pool, their thresholds, and the class of each node.

Amounts are arrays with one row per measured node and one column per resource, in milli-cores or whole units.

Source:
    descheduler spec, 8.2, 8.3
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from koordcore.protocol.amplification import parse_raw_allocatable
from koordcore.protocol.annotations.node import trim_allocatable
from koordcore.protocol.priority import PriorityBand
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import Amounts, amount_of, clamped
from numpy.typing import NDArray

from koord_descheduler.domain.plugins.low_node_load.arguments import NodePoolArgs
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeView

PODS: Final = "pods"
_MEMORY: Final = "memory"
Table = NDArray[np.int64]
Flags = NDArray[np.bool_]


class NodeClass(IntEnum):
    """Class of a node by its usage: below low thresholds (LOW) or above high ones (HIGH).

    PROD_LOW and PROD_HIGH are the same for the usage of prod pods alone. BOTH_LOW: LOW and PROD_LOW. NONE: no class.
    """

    NONE = 0
    LOW = 1
    BOTH_LOW = 2
    PROD_LOW = 3
    HIGH = 4
    PROD_HIGH = 5


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Limits:
    """Low and high amounts of one kind of usage: int64 (N, K), node x compared resource."""

    low: Table
    high: Table


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PoolLoad:
    """The measured nodes of a pool. The passes change `usage` and `prod_usage`."""

    nodes: Sequence[NodeView]  # The N nodes with a fresh metric, in input order
    # Names of the columns: the K compared resources, and `pods` at the end if it is not compared.
    resources: tuple[str, ...]
    compared: int  # K, the number of compared resources: those with thresholds, and always memory
    capacity: Table  # int64 (N, R) capacity of each node
    usage: Table  # int64 (N, R) usage of the system and of all pods
    prod_usage: Table  # int64 (N, R) usage of the prod pods
    limits: Limits  # Thresholds for `usage`
    prod_limits: Limits  # Thresholds for `prod_usage`

    def usage_of(self, *, prod: bool) -> Table:
        """Usage of each node by all pods, or by prod pods alone."""
        return self.prod_usage if prod else self.usage

    def limits_of(self, *, prod: bool) -> Limits:
        """Thresholds for the usage of all pods, or for that of the prod pods."""
        return self.prod_limits if prod else self.limits

    def over_on(self, row: int, *, prod: bool) -> Flags:
        """Which compared resources of one node exceed the high threshold: bool (K,)."""
        return self.usage_of(prod=prod)[row, : self.compared] > self.limits_of(prod=prod).high[row]

    def over(self, *, prod: bool) -> Flags:
        """Which compared resources of each node exceed the high threshold: bool (N, K)."""
        return self.usage_of(prod=prod)[:, : self.compared] > self.limits_of(prod=prod).high

    def amounts(self, usage: Amounts) -> Table:
        """The usage of a pod as a row: int64 (R,); its count of pods is 0."""
        return np.array([0 if name == PODS else _amount(usage, name) for name in self.resources], dtype=np.int64)


def measured(pool: NodePoolArgs, nodes: Sequence[NodeView], cluster: ClusterView, expiration: float) -> PoolLoad:
    """The nodes of a pool that have a metric younger than `expiration` seconds (descheduler spec, 8.2)."""
    fresh = [
        node
        for node in nodes
        if (metric := cluster.metrics.get(node.name)) is not None and metric.is_fresh(cluster.now, expiration)
    ]
    compared = _compared(pool)
    resources = compared if PODS in compared else (*compared, PODS)
    shape = (len(fresh), len(resources))
    capacity, usage, prod = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    for row, node in enumerate(fresh):
        amounts = node_capacity(node)
        totals, prod_totals = _usage(node, cluster)
        for column, name in enumerate(resources):
            capacity[row, column] = _amount(amounts, name)
            usage[row, column] = _amount(totals, name)
            prod[row, column] = _amount(prod_totals, name)
    width = len(compared)
    deviation = pool.use_deviation_thresholds
    return PoolLoad(
        nodes=fresh,
        resources=resources,
        compared=width,
        capacity=capacity,
        usage=usage,
        prod_usage=prod,
        limits=_limits(
            pool.low_thresholds or {}, pool.high_thresholds or {}, compared, capacity, usage, deviation=deviation
        ),
        prod_limits=_limits(
            pool.prod_low_thresholds or {},
            pool.prod_high_thresholds or {},
            compared,
            capacity,
            prod,
            deviation=deviation,
        ),
    )


def _amount(amounts: Amounts, name: str) -> int:
    return clamped(amounts.get(name, 0))


def _compared(pool: NodePoolArgs) -> tuple[str, ...]:
    maps = (pool.low_thresholds, pool.high_thresholds, pool.prod_low_thresholds, pool.prod_high_thresholds)
    return tuple(sorted({_MEMORY, *(name for thresholds in maps for name in thresholds or ())}))


def node_capacity(node: NodeView) -> Amounts:
    """The capacity against which usage is measured, without the reservation of the node (descheduler spec, 8.2).

    The resources that the annotation raw-allocatable names are taken from there: their allocatable is amplified.
    """
    try:
        raw = parse_raw_allocatable(node.annotations)
    except InvalidInput:
        raw = None
    if raw is None:
        return node.allocatable
    trimmed = trim_allocatable(raw, node.reservation)
    return {**node.allocatable, **{name: amount_of(name, quantity) for name, quantity in trimmed.items()}}


def _usage(node: NodeView, cluster: ClusterView) -> tuple[Amounts, Amounts]:
    """Usage of a node, and that of its prod pods."""
    metric = cluster.metrics[node.name]
    total, prod = dict(metric.system), Amounts()
    pods = cluster.unfinished_on(node.name)
    prod_keys = {pod.key for pod in pods if pod.band is PriorityBand.PROD}
    for key, usage in metric.pods.items():
        for name, amount in usage.items():
            total[name] = total.get(name, 0) + amount
            if key in prod_keys:
                prod[name] = prod.get(name, 0) + amount
    total[PODS], prod[PODS] = len(pods), len(prod_keys)
    return total, prod


def _limits(
    low: Mapping[str, float],
    high: Mapping[str, float],
    compared: tuple[str, ...],
    capacity: Table,
    usage: Table,
    *,
    deviation: bool,
) -> Limits:
    """Thresholds as amounts. A threshold that is not given is the whole capacity."""
    width = len(compared)
    whole = capacity[:, :width]
    lows, highs = whole.copy(), whole.copy()
    # 100 * usage / capacity. A node without the resource adds 0 to the average, and no node adds more than 100.
    percent = np.divide(100.0 * np.minimum(usage, capacity), capacity, out=np.zeros(usage.shape), where=capacity > 0)
    average = percent.mean(axis=0) if len(percent) else np.zeros(percent.shape[1])
    for column, name in enumerate(compared):
        if deviation and low.get(name) == 0:
            continue
        if name in low:
            value = float(np.clip(average[column] - low[name], 0, 100)) if deviation else low[name]
            lows[:, column] = _fraction(value, whole[:, column])
        if name in high:
            value = float(np.clip(average[column] + high[name], 0, 100)) if deviation else high[name]
            highs[:, column] = _fraction(value, whole[:, column])
    return Limits(low=lows, high=highs)


def _fraction(percent: float, capacity: Table) -> Table:
    # The order of the factors is the reference's: another one rounds differently.
    return np.trunc(percent * 0.01 * capacity.astype(np.float64)).astype(np.int64)


def classes_of(load: PoolLoad) -> list[NodeClass]:
    """The class of each node of a pool, in the order of `load.nodes` (descheduler spec, 8.3).

    A node that is closed for new pods never gets a low class. Of the rules in the specification, the first one that
    applies decides.
    """
    width = load.compared
    is_open = np.array([not node.is_unschedulable for node in load.nodes], dtype=np.bool_)
    under = (load.usage[:, :width] <= load.limits.low).all(axis=1) & is_open
    prod_under = (load.prod_usage[:, :width] <= load.prod_limits.low).all(axis=1)
    over = load.over(prod=False).any(axis=1)
    prod_over = load.over(prod=True).any(axis=1)
    found = np.select(
        [under & prod_over, under & prod_under, under, over, prod_over, is_open & prod_under],
        [
            NodeClass.PROD_HIGH,
            NodeClass.BOTH_LOW,
            NodeClass.LOW,
            NodeClass.HIGH,
            NodeClass.PROD_HIGH,
            NodeClass.PROD_LOW,
        ],
        NodeClass.NONE,
    )
    return [NodeClass(each) for each in found.tolist()]


def hottest_first(load: PoolLoad, rows: Sequence[int], weights: Mapping[str, int], *, prod: bool) -> list[int]:
    """Rows of nodes by their weighted usage, the highest first; equal ones keep their order (descheduler spec, 8.4
    (6)).
    """
    weight = np.array([weights.get(name, 0) for name in load.resources], dtype=np.int64)
    total = int(weight.sum())
    if total == 0:
        return list(rows)
    capacity = load.capacity
    used = np.minimum(load.usage_of(prod=prod), capacity)
    share = np.floor_divide(1000 * used, capacity, out=np.zeros_like(used), where=capacity > 0)
    score = (share * weight).sum(axis=1) // total
    return sorted(rows, key=lambda row: -int(score[row]))
