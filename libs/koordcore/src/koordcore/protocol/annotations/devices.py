"""Annotations and labels about devices: how a pod's devices are chosen, and GPU partitions of pods and nodes.

Source: scheduler-fine-grained spec, 2.4; protocol spec, 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations.text import parse_present
from koordcore.protocol.objects import LabelSelector
from koordcore.protocol.selectors import Selector, compile_selector
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import Quantity, quantity_from_json

APPLY_FOR_ALL: Final = "ApplyForAll"
REQUESTS_AS_COUNT: Final = "RequestsAsCount"
DEVICE_LEVEL: Final = "DeviceLevel"
PCIE_LEVEL: Final = "PCIeLevel"
SAME_PCIE: Final = "SamePCIe"
# Topology scope -> strictness; a larger number is stricter.
SCOPE_LEVELS: Final[Mapping[str, int]] = {"Device": 4, "PCIe": 3, "NUMANode": 2, "Node": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHint:
    """Rules of a pod for choosing the devices of one type."""

    selector: Selector | None = None  # Only devices whose labels match are chosen; None: no restriction
    # Selects the group from which each chosen device gives one virtual function; None: no virtual function.
    vf_selector: Selector | None = None
    # `ApplyForAll` (all devices of the node), `RequestsAsCount` (the request is a number of devices), or empty.
    allocate_strategy: str = ""
    # All devices must be in one `Device`, below one `PCIe` switch, or in one `NUMANode` or `Node`; empty: no rule.
    required_scope: str = ""
    # Unit that no other pod may share: the device (`DeviceLevel`) or its PCIe switch (`PCIeLevel`); empty: no rule.
    exclusive_policy: str = ""

    @property
    def scope_level(self) -> int:
        """Strictness of `required_scope` as a number: a smaller scope has a higher number; 0 without a scope."""
        return SCOPE_LEVELS.get(self.required_scope, 0)


class JointAllocation(NamedTuple):
    """Rule of a pod that devices of several types are chosen together."""

    types: tuple[str, ...]  # Device types; the first one is chosen first
    required_scope: str = ""  # `SamePCIe` (all devices below one PCIe switch), or empty: no rule


class _Hint(msgspec.Struct, rename="camel"):
    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = None
    allocate_strategy: str = ""
    required_topology_scope: str = ""
    exclusive_policy: str = ""


class _Joint(msgspec.Struct, rename="camel"):
    device_types: list[str] = []
    required_scope: str = ""


def parse_device_hints(annotations: Mapping[str, str]) -> dict[str, DeviceHint]:
    """Return device type -> rules for choosing devices, from a pod's annotation `device-allocate-hint`. Empty without
    the annotation.

    Raises:
        InvalidInput: The JSON or a label selector is invalid.
    """
    return parse_present(annotations, keys.DEVICE_ALLOCATE_HINT, _hints) or {}


def parse_joint_allocation(annotations: Mapping[str, str]) -> JointAllocation | None:
    """Return the rule of a pod for choosing devices of several types together, from `device-joint-allocate`. None
    without the annotation, or if it names no device type.

    Raises:
        InvalidInput: The JSON is invalid.
    """
    return parse_present(annotations, keys.DEVICE_JOINT_ALLOCATE, _joint)


_Hints = dict[str, _Hint | None]


def _hints(text: str) -> dict[str, DeviceHint]:
    found: dict[str, DeviceHint] = {}
    for type_, written in lenient_json.decode(text, _Hints).items():
        if written is not None:
            found[type_] = DeviceHint(
                selector=_compiled(written.selector, f"{type_}.selector"),
                vf_selector=_compiled(written.vf_selector, f"{type_}.vfSelector"),
                allocate_strategy=written.allocate_strategy,
                required_scope=written.required_topology_scope,
                exclusive_policy=written.exclusive_policy,
            )
    return found


def _compiled(selector: LabelSelector | None, path: str) -> Selector | None:
    if selector is None:
        return None
    try:
        return compile_selector(selector)
    except InvalidInput as error:
        raise error.at(path) from error


def _joint(text: str) -> JointAllocation | None:
    written = lenient_json.decode(text, _Joint)
    return JointAllocation(tuple(written.device_types), written.required_scope) if written.device_types else None


ALLOCATE_BEST_EFFORT: Final = "BestEffort"
ALLOCATE_RESTRICTED: Final = "Restricted"
PARTITION_HONOR: Final = "Honor"
PARTITION_PREFER: Final = "Prefer"
_MOST_DIGITS: Final = 9  # Most digits of a number of GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPartitionSpec:
    """Request of a pod for a GPU partition: a set of GPUs with a fast connection."""

    allocate_policy: str  # `Restricted` (only a partition of the table) or `BestEffort` (a partition if one is free)
    ring_bus_bandwidth: Quantity | None  # Bandwidth that the connection must have; None: no rule


class _Written(msgspec.Struct, rename="camel"):
    allocate_policy: str = ""
    ring_bus_bandwidth: str | int | float | None = None


def parse_gpu_partition_spec(annotations: Mapping[str, str]) -> GpuPartitionSpec | None:
    """Return the GPU partition request in a pod's annotation `gpu-partition-spec`; None without the annotation. The
    default of the allocate policy is BestEffort.

    Raises:
        InvalidInput: The annotation is not valid JSON, or the bandwidth is not a quantity.

    Source: protocol spec, 4.2.
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
    """Return whether pods on a node must get GPU partitions (`Honor`) or get them if possible (`Prefer`). `Honor` if
    the node's label `node.koordinator.sh/gpu-partition-policy` is exactly `Honor`, else `Prefer`.

    Source: protocol spec, 4.3.
    """
    return PARTITION_HONOR if labels.get(keys.GPU_PARTITION_POLICY) == PARTITION_HONOR else PARTITION_PREFER


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPartition:
    """A GPU partition of a node: a set of GPUs that can be given to one pod together."""

    minors: tuple[int, ...]  # Minor numbers of the GPUs, in the order of the table
    bandwidth: Quantity | None = None  # Bandwidth of their connection in whole units; None: not stated
    score: int = 0  # Allocation score; higher is better


# Number of GPUs -> partitions with this number of GPUs, in the order of the table.
GpuPartitionTable = Mapping[int, tuple[GpuPartition, ...]]


class _Partition(msgspec.Struct, rename="camel"):
    minors: list[int] = []
    ring_bus_bandwidth: str | int | float | None = None
    allocation_score: int = 0


def parse_gpu_partitions(annotations: Mapping[str, str]) -> GpuPartitionTable | None:
    """Return the GPU partition table of a Device object: number of GPUs -> partitions with as many GPUs. None without
    the annotation `gpu-partitions`. Raises InvalidInput as `read_gpu_partitions` does.
    """
    return read_gpu_partitions(annotations)[0]


def read_gpu_partitions(annotations: Mapping[str, str]) -> tuple[GpuPartitionTable | None, list[InvalidInput]]:
    """Return the GPU partition table of a Device object, and one error for each partition that is ignored, because its
    minors are not as many different ones as its key says: a pod would get another number of GPUs than it requests.

    Raises:
        InvalidInput: Malformed JSON, a key that is not a number of GPUs, or an invalid bandwidth.

    Source: scheduler-fine-grained spec, 2.7.
    """
    found = parse_present(annotations, keys.GPU_PARTITIONS, _parse_partitions)
    if found is None:
        return None, []
    table, ignored = found
    return table, [error.at(f"[{keys.GPU_PARTITIONS}]") for error in ignored]


_Table = dict[str, list[_Partition] | None]


def _parse_partitions(text: str) -> tuple[GpuPartitionTable, list[InvalidInput]]:
    written = lenient_json.decode(text, _Table)
    table: dict[int, tuple[GpuPartition, ...]] = {}
    ignored: list[InvalidInput] = []
    for key, partitions in written.items():
        if not (key.isascii() and key.isdecimal()) or len(key) > _MOST_DIGITS:
            raise InvalidInput("a number of GPUs", key)
        kept: list[GpuPartition] = []
        for index, each in enumerate(partitions or ()):
            partition = _partition(key, index, each)
            if len(partition.minors) == len(set(partition.minors)) == int(key):
                kept.append(partition)
            else:
                ignored.append(InvalidInput(f"{int(key)} different minors", each.minors, f"{key}[{index}].minors"))
        table[int(key)] = tuple(kept)
    return table, ignored


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
