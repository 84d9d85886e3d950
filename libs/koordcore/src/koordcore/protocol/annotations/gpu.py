"""GPU partition annotations and labels: the request of a pod, and the partition table and policy of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations.text import parse_present
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import Quantity, quantity_from_json

ALLOCATE_BEST_EFFORT: Final = "BestEffort"
ALLOCATE_RESTRICTED: Final = "Restricted"
PARTITION_HONOR: Final = "Honor"
PARTITION_PREFER: Final = "Prefer"
_MOST_DIGITS: Final = 9
"""Most digits of a number of GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPartitionSpec:
    """Request of a pod for a GPU partition: a set of GPUs with a fast connection.

    Attributes:
        allocate_policy: `Restricted` (only a partition of the table) or `BestEffort` (a partition if one is free).
        ring_bus_bandwidth: Bandwidth that the connection must have; None: no rule.
    """

    allocate_policy: str
    ring_bus_bandwidth: Quantity | None


class _Written(msgspec.Struct, rename="camel"):
    allocate_policy: str = ""
    ring_bus_bandwidth: str | int | float | None = None


def parse_gpu_partition_spec(annotations: Mapping[str, str]) -> GpuPartitionSpec | None:
    """Return the GPU partition request in a pod's annotation `gpu-partition-spec`; None without the annotation.

    The default of the allocate policy is BestEffort.

    Raises:
        InvalidInput: The annotation is not valid JSON, or the bandwidth is not a quantity.

    Source:
        protocol spec, 4.2
    """
    return parse_present(annotations, keys.GPU_PARTITION_SPEC, _parse_spec)


def _parse_spec(text: str) -> GpuPartitionSpec:
    written = lenient_json.decode(text, _Written)
    bandwidth = written.ring_bus_bandwidth
    try:
        parsed = None if bandwidth is None else quantity_from_json(bandwidth)
    except InvalidInput as error:
        raise error.at("ringBusBandwidth") from error
    return GpuPartitionSpec(allocate_policy=written.allocate_policy or ALLOCATE_BEST_EFFORT, ring_bus_bandwidth=parsed)


def gpu_partition_policy(labels: Mapping[str, str]) -> str:
    """Return whether pods on a node must get GPU partitions (`Honor`) or get them if possible (`Prefer`).

    `Honor` if the node's label `node.koordinator.sh/gpu-partition-policy` is exactly `Honor`, else `Prefer`.

    Source:
        protocol spec, 4.3
    """
    return PARTITION_HONOR if labels.get(keys.GPU_PARTITION_POLICY) == PARTITION_HONOR else PARTITION_PREFER


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPartition:
    """A GPU partition of a node: a set of GPUs that can be given to one pod together.

    Attributes:
        minors: Minor numbers of the GPUs, in the order of the table.
        bandwidth: Bandwidth of their connection in whole units; None: not stated.
        score: Allocation score; higher is better.
    """

    minors: tuple[int, ...]
    bandwidth: Quantity | None = None
    score: int = 0


GpuPartitionTable = Mapping[int, tuple[GpuPartition, ...]]
"""Number of GPUs -> partitions with this number of GPUs, in the order of the table."""


class _Partition(msgspec.Struct, rename="camel"):
    minors: list[int] = []
    ring_bus_bandwidth: str | int | float | None = None
    allocation_score: int = 0


def parse_gpu_partitions(annotations: Mapping[str, str]) -> GpuPartitionTable | None:
    """Return the GPU partition table of a Device object: number of GPUs -> partitions with as many GPUs.

    None without the annotation `gpu-partitions`.

    Raises:
        InvalidInput: Malformed JSON, a key that is not a number of GPUs, or an invalid bandwidth.

    Source:
        scheduler-fine-grained spec, 2.7
    """
    return parse_present(annotations, keys.GPU_PARTITIONS, _parse_partitions)


_Table = dict[str, list[_Partition] | None]


def _parse_partitions(text: str) -> GpuPartitionTable:
    written = lenient_json.decode(text, _Table)
    table: dict[int, tuple[GpuPartition, ...]] = {}
    for key, partitions in written.items():
        if not (key.isascii() and key.isdecimal()) or len(key) > _MOST_DIGITS:
            raise InvalidInput("a number of GPUs", key)
        table[int(key)] = tuple(_partition(key, index, each) for index, each in enumerate(partitions or ()))
    return table


def _partition(key: str, index: int, written: _Partition) -> GpuPartition:
    path = f"{key}[{index}]"
    if any(minor < 0 for minor in written.minors):
        raise InvalidInput("minors of 0 or more", written.minors, f"{path}.minors")
    bandwidth = written.ring_bus_bandwidth
    try:
        parsed = None if bandwidth is None else quantity_from_json(bandwidth)
    except InvalidInput as error:
        raise error.at(f"{path}.ringBusBandwidth") from error
    return GpuPartition(minors=tuple(written.minors), bandwidth=parsed, score=written.allocation_score)
