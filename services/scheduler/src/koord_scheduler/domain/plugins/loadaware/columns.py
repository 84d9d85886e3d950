"""The load of all nodes as columns, so that a pod's filter and score over all nodes are a few array operations.

For each node, resource and kind of pod, two numbers are computed in advance: the smallest estimated usage that would
be refused (`room`), and the free amount for scores (`left`). A report, a pod that comes or goes, or an expiry marks one
row, which is computed again before the next question.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from koord_scheduler.domain.cluster.forgetting import Forgetting
from koord_scheduler.domain.columns.journal import Journal
from koord_scheduler.domain.columns.node_columns import IntArray, Rows, row_list
from koord_scheduler.domain.config.koordinator_args import LoadAwareSchedulingArgs
from koord_scheduler.domain.plugins.loadaware.assigned import (
    AssignedPod,
    NodeSums,
    Vector,
    sums_of,
    used_by_all,
    vector_of,
)
from koord_scheduler.domain.plugins.loadaware.metric import NodeMetric
from koord_scheduler.domain.plugins.loadaware.rules import (
    AGGREGATED,
    EXPIRED,
    EXPIRED_REASON,
    MAX_SCORE,
    PASSES,
    Limits,
    NodeFacts,
    NodeThresholds,
    PodLoad,
    Reported,
    Room,
    divisors_of,
    exceeded_reason,
    expiry,
    left_of,
    node_thresholds,
    room_of,
    score_aggregation,
)

CodeArray: TypeAlias = NDArray[np.uint8]
"""Filter codes of rows: 0 passes, see `LoadColumns.reason` for others."""
_EXPIRED_CODE: Final = 1
_FIRST_CODE: Final = 2
_LAST_RESOURCE: Final = 126
"""A code is one byte. Resources beyond this one share its code."""
_PROD, _OTHER = range(2)


@dataclass(slots=True, eq=False)
class _Node:
    """The data about one node, from which its row of the columns is computed."""

    facts: NodeFacts | None = None
    thresholds: NodeThresholds | None = None
    capacity: Vector = ()
    is_resized: bool = True
    metric: NodeMetric | None = None
    sums: NodeSums | None = None
    pods: dict[str, AssignedPod] = field(default_factory=dict[str, AssignedPod])
    expires_at: float = math.inf
    queued_at: float = math.inf


class NodeLoad(NamedTuple):
    """LoadAwareScheduling's data of one node, for the debug page."""

    metric: NodeMetric | None  # Its last report, or None without a report
    sums: NodeSums | None  # Sums over its pods; None without a report. The object changes with later events.
    pods: tuple[AssignedPod, ...]  # The pods in the order in which they came
    expired: bool  # Whether the report was expired at the last `advance`


class LoadColumns:
    """LoadAwareScheduling's data of all nodes: usage, estimates, thresholds. Rows are those of `NodeColumns`.
    `touched`: journal in which the plugin records the nodes whose filter or score results may have changed.
    """

    def __init__(self, args: LoadAwareSchedulingArgs, *, touched: Journal | None = None, capacity: int = 64) -> None:
        self.args = args
        self.resources = args.resources
        self.touched = Journal() if touched is None else touched
        self._now = -math.inf
        self._nodes: dict[int, _Node] = {}
        self._row_of: dict[str, int] = {}
        self._dirty: set[int] = set()
        self._expiries: list[tuple[float, int]] = []
        self._forgetting = Forgetting()
        count = len(self.resources)
        self._room = np.full((2, count, capacity), PASSES, np.int64)
        self._basis = np.zeros((2, capacity), np.uint8)
        self._left = np.full((2, count, capacity), -1, np.int64)
        self._capacity = np.ones((count, capacity), np.int64)
        self._look_at_single()
        self._limited: tuple[set[int], set[int]] = (set(), set())
        self._score_aggregation = score_aggregation(args)
        self._weights = np.array([args.resource_weights.get(name, 0) for name in self.resources], np.int64)
        self._weight = sum(args.resource_weights.values()) + args.dominant_resource_weight

    def __contains__(self, row: int) -> bool:
        return row in self._nodes

    # --- what happens --------------------------------------------------------------------------------------------

    def on_node(self, row: int, facts: NodeFacts) -> None:
        """Add the node at position `row`, or update its size and thresholds. Its report and pods stay."""
        node = self._nodes.get(row)
        if node is None:
            node = self._nodes[row] = _Node()
        elif node.facts == facts:
            return
        node.facts = facts
        node.thresholds = node_thresholds(facts.usage_thresholds, self.args, self.resources)
        node.capacity = vector_of(facts.allocatable, self.resources)
        node.is_resized = True
        self._change(row)

    def off_node(self, row: int) -> None:
        """Remove the node at position `row` with its report and pods."""
        node = self._nodes.pop(row, None)
        if node is None:
            return
        for uid in node.pods:
            del self._row_of[uid]
        self._change(row)

    def on_metric(self, row: int, metric: NodeMetric) -> None:
        """Replace the usage report of the node at position `row`, which must be known."""
        node = self._nodes[row]
        node.metric = metric
        node.sums = sums_of(metric, node.pods.values(), self.args, self.resources)
        node.expires_at = expiry(metric, self.args)
        if self._now < node.expires_at < node.queued_at:
            self._queue(row, node)
        self._change(row)

    def on_pod(self, row: int, pod: AssignedPod) -> None:
        """Count a pod on the node at position `row`, or update it there. It is removed from any other node."""
        before = self._row_of.get(pod.uid)
        if before is not None:
            self._take_out(before, pod.uid)
        node = self._nodes[row]
        node.pods[pod.uid] = pod
        self._row_of[pod.uid] = row
        if node.sums is not None:
            node.sums.add(pod)
            self._change(row)

    def off_pod(self, uid: str) -> None:
        """Remove a pod from its node. No-op if the pod is unknown."""
        row = self._row_of.get(uid)
        if row is not None:
            self._take_out(row, uid)

    def advance(self, now: float) -> list[int]:
        """Mark the reports that are too old at `now` (Unix seconds) as expired. Return the positions of their nodes."""
        self._now = max(self._now, now)
        expired: list[int] = []
        while self._expiries and self._expiries[0][0] <= self._now:
            at, row = heappop(self._expiries)
            node = self._nodes.get(row)
            if node is None or node.queued_at != at:
                continue  # of a node that was deleted, or queued again for an earlier time
            node.queued_at = math.inf
            if node.expires_at <= self._now:
                expired.append(row)
                self._change(row)
            elif node.expires_at < math.inf:
                self._queue(row, node)
        return expired

    def next_expiry(self) -> float:
        """Return Unix seconds before which no usage report expires; infinity if no report can expire."""
        return self._expiries[0][0] if self._expiries else math.inf

    # --- what is asked -------------------------------------------------------------------------------------------

    def filter_codes(self, load: PodLoad, rows: Rows | None = None) -> CodeArray | None:
        """Return a code for each node, shape (K,): 0 passes, others see `reason`. None: every node passes. Call
        `advance` first. `rows`: positions of the nodes, shape (K,); None for all N rows.
        Source: scheduler-core spec, 7.4
        """
        self._work_out()
        group = _PROD if load.is_prod else _OTHER
        if load.of_daemon_set or not self._limited[group]:
            return None
        room, basis = self._room[group], self._basis[group]
        if rows is not None:
            room, basis = room.take(rows, 1), basis.take(rows)
        refused = np.array(load.estimate, np.int64)[:, None] >= room
        any_refused = refused.any(axis=0)
        if not any_refused.any():
            return None
        first = np.minimum(refused.argmax(axis=0), _LAST_RESOURCE)
        exceeded = _FIRST_CODE + 2 * first + (basis == AGGREGATED)
        codes = np.where(basis == EXPIRED, _EXPIRED_CODE, exceeded)
        return np.where(any_refused, codes, 0).astype(np.uint8)

    @property
    def has_limits(self) -> bool:
        """Return whether any node with a usage report has a load threshold."""
        self._work_out()
        return any(self._limited)

    def is_limiting(self, load: PodLoad) -> bool:
        """Return whether any node may refuse a pod with this estimated usage; never for pods of DaemonSets."""
        self._work_out()
        return not load.of_daemon_set and bool(self._limited[_PROD if load.is_prod else _OTHER])

    def row_filter(self, load: PodLoad) -> Callable[[int], int] | None:
        """Return a function from a node's position to its filter code, or None if no node ever refuses such a pod."""
        if load.of_daemon_set:
            return None
        group = _PROD if load.is_prod else _OTHER
        limited, estimates = self._limited[group], tuple(enumerate(load.estimate))

        def code(row: int) -> int:
            if self._dirty:
                self._work_out()
            if row not in limited:
                return 0
            for index, estimate in estimates:
                if estimate >= self._room_at[group, index, row]:
                    basis = self._basis.item(group, row)
                    if basis == EXPIRED:
                        return _EXPIRED_CODE
                    return _FIRST_CODE + 2 * min(index, _LAST_RESOURCE) + (basis == AGGREGATED)
            return 0

        return code

    def reason(self, code: int) -> str:
        """Return the phrase for users of a filter code other than 0. Evicting pods may help, because load falls."""
        if code == _EXPIRED_CODE:
            return EXPIRED_REASON
        index, aggregated = divmod(code - _FIRST_CODE, 2)
        return exceeded_reason(self.resources[index], aggregated=bool(aggregated))

    def scores(self, load: PodLoad, rows: Rows | None = None) -> IntArray:
        """Return a score within 0..100 for each node, shape (K,). Call `advance` first. `rows`: positions of the nodes
        to score, shape (K,); None for all N rows.
        Source: scheduler-core spec, 7.5
        """
        self._work_out()
        left: IntArray = self._left[self._score_group(load)]
        capacity = self._capacity
        if rows is not None:
            left, capacity = left.take(rows, 1), capacity.take(rows, 1)
        if not self._weight:
            return np.zeros(capacity.shape[1], np.int64)
        remaining = np.maximum(left - np.array(load.estimate, np.int64)[:, None], 0)
        scores = remaining * MAX_SCORE // capacity
        total: IntArray = (self._weights[:, None] * scores).sum(axis=0)
        if self.args.dominant_resource_weight:
            total += scores.min(axis=0) * self.args.dominant_resource_weight
        return total // self._weight

    def row_score(self, load: PodLoad) -> Callable[[int], int] | None:
        """Return a function from a node's position to its score. None: every score is 0."""
        total_weight, dominant_weight = self._weight, self.args.dominant_resource_weight
        group = self._score_group(load)
        items = tuple(zip(range(len(load.estimate)), load.estimate, row_list(self._weights), strict=True))

        def score(row: int) -> int:
            if self._dirty:
                self._work_out()
            left, capacity = self._left_at, self._capacity_at
            total, least = 0, MAX_SCORE
            for index, estimate, weight in items:
                remaining = left[group, index, row] - estimate
                part = remaining * MAX_SCORE // capacity[index, row] if remaining > 0 else 0
                total += part * weight
                if part < least:
                    least = part
            return (total + least * dominant_weight) // total_weight

        return score if total_weight else None

    def node_load(self, row: int) -> NodeLoad | None:
        """Return the report, sums and pods of the node at position `row`, or None if there is no node."""
        node = self._nodes.get(row)
        if node is None:
            return None
        return NodeLoad(node.metric, node.sums, tuple(node.pods.values()), self._is_expired(node))

    # --- inside --------------------------------------------------------------------------------------------------

    def _change(self, row: int) -> None:
        self._dirty.add(row)
        self.touched.record(row)

    def _queue(self, row: int, node: _Node) -> None:
        node.queued_at = node.expires_at
        heappush(self._expiries, (node.expires_at, row))
        if self._forgetting.is_due(len(self._expiries)):
            self._expiries = [(each.queued_at, at) for at, each in self._nodes.items() if each.queued_at < math.inf]
            heapify(self._expiries)
            self._forgetting.searched(len(self._expiries))

    def _take_out(self, row: int, uid: str) -> None:
        node = self._nodes[row]
        pod = node.pods.pop(uid)
        del self._row_of[uid]
        if node.sums is not None:
            node.sums.remove(pod)
            self._change(row)

    def _is_expired(self, node: _Node) -> bool:
        return node.metric is not None and self._now >= node.expires_at

    def _score_group(self, load: PodLoad) -> int:
        return _PROD if load.is_prod and self.args.score_according_prod_usage else _OTHER

    def _work_out(self) -> None:
        for row in self._dirty:
            if row >= self._basis.shape[1]:
                self._grow(max(2 * self._basis.shape[1], row + 1))
            node = self._nodes.get(row)
            if node is not None and node.is_resized:
                self._capacity[:, row] = divisors_of(node.capacity)
                node.is_resized = False
            reported = self._reported(node)
            self._write_rooms(row, node, reported)
            self._write_left(row, reported)
        self._dirty.clear()

    def _write_rooms(self, row: int, node: _Node | None, reported: Reported | None) -> None:
        known: tuple[Limits, Room] | None = None
        for group, limited in enumerate(self._limited):
            limits = None if node is None or node.thresholds is None else node.thresholds[group]
            if reported is None or limits is None or not limits.is_set:
                if row in limited:
                    limited.discard(row)
                    self._room[group, :, row] = PASSES
                continue
            if known is None or known[0] is not limits:
                known = limits, room_of(reported, limits, self.args, self.resources)
            room = known[1]
            for index, amount in enumerate(room.least):
                self._room[group, index, row] = amount
            self._basis[group, row] = room.basis
            limited.add(row)

    def _write_left(self, row: int, reported: Reported | None) -> None:
        if reported is None or reported.expired or reported.metric.node_usage is None:
            self._left[:, :, row] = -1
            return
        used = used_by_all(reported.metric, reported.sums, self.resources, self._score_aggregation)
        for index, amount in enumerate(left_of(reported, used)):
            self._left[_OTHER, index, row] = amount
        if self.args.score_according_prod_usage:
            for index, amount in enumerate(left_of(reported, reported.sums.prod)):
                self._left[_PROD, index, row] = amount

    def _reported(self, node: _Node | None) -> Reported | None:
        if node is None or node.metric is None or node.sums is None:
            return None
        return Reported(node.metric, node.sums, node.capacity, self._is_expired(node))

    def _grow(self, capacity: int) -> None:
        more = capacity - self._basis.shape[1]
        self._room = np.pad(self._room, ((0, 0), (0, 0), (0, more)), constant_values=PASSES)
        self._basis = np.pad(self._basis, ((0, 0), (0, more)))
        self._left = np.pad(self._left, ((0, 0), (0, 0), (0, more)), constant_values=-1)
        self._capacity = np.pad(self._capacity, ((0, 0), (0, more)), constant_values=1)
        self._look_at_single()

    def _look_at_single(self) -> None:
        """Refresh the memory views that read and write single elements."""
        self._room_at = self._room.data
        self._left_at = self._left.data
        self._capacity_at = self._capacity.data
