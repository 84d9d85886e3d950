"""Scores by the share of its resources that a node would have allocated: the arithmetic of NodeResourcesFit. Every
function takes arrays item x node: `requested` (the pod included) and `capacity`, both int64 (I, K), and returns int64
(K,). A resource that a node lacks (capacity 0) does not count for it.

Source: scheduler-core spec, 5.3; vectors scheduler/fit_score
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray
from koord_scheduler.domain.config.kubernetes_args import UtilizationPoint

MAX_SCORE: Final = 100


class RawScores:
    """Base of plugins whose raw scores are within 0..100 already, whatever the other nodes are."""

    normalizes = False

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        return raw


def least_allocated(requested: IntArray, capacity: IntArray, weights: IntArray) -> IntArray:
    """Return the LeastAllocated score of each node, 0..100: the truncated weighted mean over the resources. A resource
    scores (capacity - requested) * 100 // capacity, or 0 if more than its capacity is requested. `requested`: requests
    on each node, the pod included, shape (I, K). `capacity`: allocatable of the nodes, shape (I, K). `weights`: weight
    of each resource, shape (I,).
    """
    divisor = np.maximum(capacity, 1)
    scores = np.maximum(capacity - requested, 0) * MAX_SCORE // divisor
    return _weighted_mean(scores, capacity > 0, weights)


def most_allocated(requested: IntArray, capacity: IntArray, weights: IntArray) -> IntArray:
    """Return the MostAllocated score of each node, 0..100: the truncated weighted mean over the resources. A resource
    scores min(requested, capacity) * 100 // capacity. `requested`: requests on each node, the pod included, shape (I,
    K). `capacity`: allocatable of the nodes, shape (I, K). `weights`: weight of each resource, shape (I,).
    """
    divisor = np.maximum(capacity, 1)
    scores = np.minimum(requested, capacity) * MAX_SCORE // divisor
    return _weighted_mean(scores, capacity > 0, weights)


def _weighted_mean(scores: IntArray, counted: BoolArray, weights: IntArray) -> IntArray:
    column = weights[:, None]
    if counted.all():
        total = int(weights.sum())
        return (scores * column).sum(axis=0) // max(total, 1)
    weight = (counted * column).sum(axis=0)
    return (scores * counted * column).sum(axis=0) // np.maximum(weight, 1)


def requested_to_capacity_ratio(
    requested: IntArray, capacity: IntArray, weights: IntArray, shape: Sequence[UtilizationPoint]
) -> IntArray:
    """Return the weighted mean of a piecewise linear function of the utilization, rounded half away from 0. Resources
    that score 0 do not count, neither in the sum nor in the weights.

    Args:
        requested: Requests on each node, the pod included, shape (I, K).
        capacity: Allocatable of the nodes, shape (I, K).
        weights: Weight of each resource, shape (I,).
        shape: Points (utilization in percent, score 0..10) by ascending utilization. Scores are multiplied by 10.
    """
    used = np.where(requested > capacity, 100, requested * 100 // np.maximum(capacity, 1))
    scores = np.full_like(used, shape[-1].score * 10)
    for right in range(len(shape) - 1, 0, -1):
        u0, s0 = shape[right - 1].utilization, shape[right - 1].score
        u1, s1 = shape[right].utilization, shape[right].score
        # Go's integer division truncates toward zero, which matters on falling segments.
        rise = (s1 - s0) * 10 * (used - u0)
        between = s0 * 10 + np.sign(rise) * (np.abs(rise) // (u1 - u0))
        scores = np.where(used < u1, between, scores)
    scores = np.where(used <= shape[0].utilization, shape[0].score * 10, scores)
    counted = (capacity > 0) & (scores > 0)
    column = weights[:, None]
    weight = (counted * column).sum(axis=0)
    total = (scores * counted * column).sum(axis=0)
    safe = np.maximum(weight, 1)
    return (2 * total + safe) // (2 * safe)


def balanced_allocation(requested: IntArray, capacity: IntArray) -> IntArray:
    """Return the score of balanced use for each node: 100 * (1 - difference between the used fractions), rounded down.
    A fraction is min(1, requested / capacity). For two resources the difference is half of the distance between their
    fractions, for more the population standard deviation of the fractions, for fewer 0.

    Args:
        requested: int64 (R, N)  real requests of R resources on N nodes, without defaults.
        capacity: int64 (R, N)  allocatable. A resource with 0 is not counted on this node.

    Returns:
        int64 (N,)  0 to 100.

    Source: scheduler-core spec, 5.3 (the formula of Kubernetes 1.35)
    """
    counted = capacity > 0
    fractions = np.minimum(1.0, requested / np.maximum(capacity, 1))
    count = counted.sum(axis=0)
    mean = np.where(counted, fractions, 0.0).sum(axis=0) / np.maximum(count, 1)
    deviation = np.sqrt(np.where(counted, (fractions - mean) ** 2, 0.0).sum(axis=0) / np.maximum(count, 1))
    low = np.where(counted, fractions, np.inf).min(axis=0)
    high = np.where(counted, fractions, -np.inf).max(axis=0)
    spread = np.where(count == 2, (high - low) / 2, np.where(count > 2, deviation, 0.0))
    return np.trunc((1.0 - spread) * MAX_SCORE).astype(np.int64)
