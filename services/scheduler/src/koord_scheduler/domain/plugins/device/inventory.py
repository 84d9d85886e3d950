"""Inventory of a node: its devices as the Device object states them, resolved once for each version of the object.

Source: scheduler-fine-grained spec, 2.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, cast

from koordcore.protocol import keys
from koordcore.protocol.annotations.devices import (
    PARTITION_HONOR,
    GpuPartition,
    GpuPartitionTable,
    gpu_partition_policy,
    parse_gpu_partitions,
)
from koordcore.protocol.hardware.device_requests import GPU_TYPE
from koordcore.protocol.hardware.devices import UNKNOWN_NUMA_NODE, DeviceDetails, device_amounts, read_devices
from koordcore.protocol.objects import ObjectMeta, object_from_json
from koordcore.values.allocation import VirtualFunction
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import MAX_AMOUNT


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionGroup:
    """Virtual functions of a device with equal labels, ascending by bus id."""

    labels: Mapping[str, str]
    functions: tuple[VirtualFunction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One device of a node, such as a GPU, as the Device object states it."""

    type: str  # Device type: gpu, rdma, fpga ..
    minor: int  # Its minor number; with the type it is the key on the node
    id: str = ""  # The vendor's id, such as a UUID
    labels: Mapping[str, str] = field(default_factory=dict[str, str])  # Labels of the device in the Device object
    is_healthy: bool = True  # Whether it may be allocated
    # Capacity by resource name; empty if the device is unhealthy. Devices of a node with equal capacities share one
    # object.
    total: Mapping[str, int] = field(default_factory=dict[str, int])
    has_topology: bool = False  # Whether the object states NUMA node and PCIe switch
    numa: int = UNKNOWN_NUMA_NODE  # NUMA node; `UNKNOWN_NUMA_NODE` matches every NUMA affinity
    pcie: str = ""  # Id of its PCIe switch. Ids are compared as texts.
    groups: tuple[FunctionGroup, ...] = ()  # Its virtual functions by their labels


class Switch(NamedTuple):
    """A PCIe switch and the minor numbers of its GPUs, ascending."""

    pcie: str
    minors: tuple[int, ...]


class Zone(NamedTuple):
    """A NUMA node with the minor numbers of its GPUs, ascending, and its PCIe switches, ascending by id."""

    numa: int
    minors: tuple[int, ...]
    switches: tuple[Switch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All devices of a node, indexed for allocation. It is built once for each version of the Device object."""

    cards: Mapping[str, tuple[Card, ...]]  # Device type -> devices, ascending by minor number
    by_minor: Mapping[str, Mapping[int, Card]]  # Device type -> minor number -> device
    zones: tuple[Zone, ...] = ()  # The GPUs as a tree, ascending by NUMA node; empty unless every GPU has a topology
    numa_nodes: tuple[int, ...] = ()  # NUMA nodes that devices state, ascending
    partitions: GpuPartitionTable | None = None  # GPU partition table of the Device object; None without one
    # Whether the label `node.koordinator.sh/gpu-partition-policy` of the Device object demands that GPUs are allocated
    # by its table.
    honors_partitions: bool = False
    # Whether the Device object has the label secondary-device-well-planned: secondary devices are assumed to fit until
    # Reserve.
    is_well_planned: bool = False
    # Equal for nodes whose devices differ in nothing but their ids, so that the same devices are chosen.
    layout: object = None


def inventory_of(cards: Sequence[Card], meta: ObjectMeta | None = None) -> tuple[Inventory, list[str]]:
    """Return the inventory of a node with these devices, and a sentence for each annotation that is ignored.

    Args:
        cards: The devices; of two with the same type and minor number the first one counts.
        meta: Labels and annotations of the Device object; None: it has none.
    """
    problems: list[str] = []
    by_minor: dict[str, dict[int, Card]] = {}
    totals: dict[tuple[tuple[str, int], ...], Mapping[str, int]] = {}
    for each in cards:
        card = replace(each, total=totals.setdefault(tuple(each.total.items()), each.total))
        by_minor.setdefault(card.type, {}).setdefault(card.minor, card)
    sorted_cards = {type_: tuple(of_type[minor] for minor in sorted(of_type)) for type_, of_type in by_minor.items()}
    labels = meta.labels if meta is not None else {}
    partitions: GpuPartitionTable | None = None
    try:
        partitions = parse_gpu_partitions(meta.annotations) if meta is not None else None
    except InvalidInput as error:
        problems.append(f"the GPU partition table is ignored: {error}")
    honors_partitions = partitions is not None and gpu_partition_policy(labels) == PARTITION_HONOR
    is_well_planned = labels.get(keys.SECONDARY_DEVICE_WELL_PLANNED) == "true"
    inventory = Inventory(
        cards=sorted_cards,
        by_minor=by_minor,
        zones=_zones(sorted_cards.get(GPU_TYPE, ())),
        numa_nodes=tuple(sorted({card.numa for card in cards if card.has_topology and card.numa != UNKNOWN_NUMA_NODE})),
        partitions=partitions,
        honors_partitions=honors_partitions,
        is_well_planned=is_well_planned,
        layout=(
            tuple([_layout(card) for type_ in sorted(sorted_cards) for card in sorted_cards[type_]]),
            tuple(sorted(partitions.items())) if partitions is not None else None,
            honors_partitions,
            is_well_planned,
        ),
    )
    return inventory, problems


def read_device(document: object) -> tuple[str, Inventory, list[str]]:
    """Return (node name, devices, sentences about ignored entries) of a Device object.

    Raises:
        codec.DecodeError: A field of `metadata` has a wrong type.
        InvalidInput: The document is not a JSON object, or has no name.
    """
    if not isinstance(document, dict):
        raise InvalidInput("an object", document)
    parts = cast("dict[str, object]", document)
    meta = object_from_json(parts.get("metadata") or {}, ObjectMeta)
    if not meta.name:
        raise InvalidInput("the name of a node", meta.name, "metadata.name")
    devices, ignored = read_devices(parts)
    inventory, problems = inventory_of([_card(device) for device in devices], meta)
    return meta.name, inventory, [f"ignored: {error}" for error in ignored] + problems


def _card(device: DeviceDetails) -> Card:
    total = device_amounts(device)
    topology = device.topology
    return Card(
        type=device.type,
        minor=device.minor,
        id=device.id,
        labels=device.labels,
        is_healthy=device.health,
        total={name: min(total[name], MAX_AMOUNT) for name in sorted(total) if total[name] > 0 and device.health},
        has_topology=topology is not None,
        numa=topology.node_id if topology is not None else UNKNOWN_NUMA_NODE,
        pcie=topology.pcie_id if topology is not None else "",
        groups=tuple(
            FunctionGroup(
                labels=group.labels,
                functions=tuple(
                    VirtualFunction(each.minor, each.bus_id)
                    for each in sorted(group.vfs, key=lambda each: (each.bus_id, each.minor))
                    if each.bus_id
                ),
            )
            for group in device.vf_groups
        ),
    )


def _layout(card: Card) -> tuple[object, ...]:
    groups = tuple([(tuple(sorted(group.labels.items())), group.functions) for group in card.groups])
    labels, total = tuple(sorted(card.labels.items())), tuple(card.total.items())
    return (card.type, card.minor, labels, total, card.has_topology, card.numa, card.pcie, groups)


def _zones(gpus: Sequence[Card]) -> tuple[Zone, ...]:
    if not gpus or not all(card.has_topology for card in gpus):
        return ()
    by_numa: dict[int, dict[str, list[int]]] = {}
    for card in gpus:
        by_numa.setdefault(card.numa, {}).setdefault(card.pcie, []).append(card.minor)
    return tuple(
        Zone(
            numa,
            tuple(sorted(minor for minors in switches.values() for minor in minors)),
            tuple(Switch(pcie, tuple(switches[pcie])) for pcie in sorted(switches)),
        )
        for numa, switches in sorted(by_numa.items())
    )


_BUILT_IN_MODELS: Final = frozenset({"H100", "H800", "H20"})
_BUILT_IN_VENDORS: Final = frozenset({"", keys.NVIDIA})
_BUILT_IN_TABLE: Final[GpuPartitionTable] = {
    size: tuple(GpuPartition(minors=tuple(range(first, first + size)), score=1) for first in range(0, 8, size))
    for size in (1, 2, 4, 8)
}


def partition_table(inventory: Inventory, node_labels: Mapping[str, str]) -> tuple[GpuPartitionTable | None, bool]:
    """Return the GPU partition table of a node, and whether its GPUs must be allocated by a table.

    The table of the Device object comes first, then a built-in table for the GPU model in the node's labels.

    Returns:
        (table, must allocate by a table). The table is None if there is none.

    Source: scheduler-fine-grained spec, 2.7.
    """
    if inventory.partitions is not None:
        return inventory.partitions, inventory.honors_partitions
    vendor, model = node_labels.get(keys.GPU_VENDOR, ""), node_labels.get(keys.GPU_MODEL, "")
    if vendor in _BUILT_IN_VENDORS and model in _BUILT_IN_MODELS:
        return _BUILT_IN_TABLE, gpu_partition_policy(node_labels) == PARTITION_HONOR
    return None, gpu_partition_policy(node_labels) == PARTITION_HONOR
