"""Choice of a GPU partition from a node's table.

Source: scheduler-fine-grained spec, 2.7.
"""

from collections.abc import Collection, Sequence
from typing import Final

from koordcore.protocol.annotations.devices import (
    ALLOCATE_RESTRICTED,
    GpuPartition,
    GpuPartitionSpec,
    GpuPartitionTable,
)

from koord_scheduler.domain.plugins.device.refusal import Refusal

MISSING_TABLE: Final = "node(s) missing GPU Partition Table"
UNSUPPORTED_COUNT: Final = "node(s) Unsupported number of GPU requests"
INSUFFICIENT: Final = "Insufficient Partitioned GPU Devices"
_WEIGHTS: Final = ((8, 10_000), (4, 100), (2, 1))
"""Number of GPUs, and what an intact partition of that size is worth."""


def choose_partition(
    table: GpuPartitionTable | None,
    count: int,
    used: Collection[int],
    candidates: Collection[int],
    spec: GpuPartitionSpec | None,
) -> tuple[int, ...] | Refusal:
    """Return the minor numbers of the best feasible GPU partition, ascending, or why there is none. A partition is a
    set of GPUs that may be allocated together. It is feasible if the pod may use all of them and none is in use, and if
    its ring bandwidth is at least that of `spec`. The highest score wins. Among equals, it is the partition that leaves
    most large partitions intact. If `spec` has the policy Restricted, only partitions of `count` GPUs with the highest
    score are considered, whether or not they are feasible.

    Args:
        table: Partition table of the node; None if it has none.
        count: Number of GPUs that the pod requests.
        used: Minor numbers of GPUs that are in use or that the pod may not use.
        candidates: Minor numbers that the pod may use.
        spec: Partition request of the pod; None without one.
    """
    if table is None:
        return Refusal(MISSING_TABLE, is_resolvable=False)
    partitions = table.get(count)
    if partitions is None:
        return Refusal(UNSUPPORTED_COUNT, is_resolvable=False)
    is_restricted = spec is not None and spec.allocate_policy == ALLOCATE_RESTRICTED
    bandwidth = spec.ring_bus_bandwidth if spec is not None else None
    taken, possible = set(used), set(candidates)
    for score in sorted({each.score for each in partitions}, reverse=True):
        feasible = [
            each
            for each in partitions
            if each.score == score
            and taken.isdisjoint(each.minors)
            and possible.issuperset(each.minors)
            and (bandwidth is None or (each.bandwidth is not None and bandwidth <= each.bandwidth))
        ]
        if feasible:
            return tuple(sorted(_best(table, count, taken, feasible).minors))
        if is_restricted:
            break
    return Refusal(INSUFFICIENT, is_resolvable=True)


def _best(table: GpuPartitionTable, count: int, used: set[int], feasible: Sequence[GpuPartition]) -> GpuPartition:
    """Return the partition that leaves the most intact large partitions; the first one among equals."""
    if len(feasible) == 1:
        return feasible[0]
    return max(feasible, key=lambda each: _intact(table, count, used.union(each.minors)))


def _intact(table: GpuPartitionTable, count: int, occupied: set[int]) -> int:
    worth = 0
    for size, weight in _WEIGHTS:
        partitions = table.get(size, ())
        if size < count or not partitions:
            continue
        highest = max(each.score for each in partitions)
        worth += sum(
            weight * each.score for each in partitions if each.score == highest and occupied.isdisjoint(each.minors)
        )
    return worth
