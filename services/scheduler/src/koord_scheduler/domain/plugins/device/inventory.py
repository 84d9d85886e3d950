"""Inventory of a node: its devices as the Device object states them, resolved once for each version of the object.
Inventories are independent of the Node objects: a Device object may arrive before its node, and outlive it. Equal
layouts have equal numbers, so that nodes share answers.

Source: scheduler-fine-grained spec, 2.1
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, cast

from koordcore.protocol import keys
from koordcore.protocol.annotations.devices import (
    PARTITION_HONOR,
    GpuPartition,
    GpuPartitionTable,
    gpu_partition_policy,
    read_gpu_partitions,
)
from koordcore.protocol.hardware.device_requests import GPU_TYPE
from koordcore.protocol.hardware.devices import UNKNOWN_NUMA_NODE, DeviceDetails, device_amounts, read_devices
from koordcore.protocol.objects import ObjectMeta, object_from_json
from koordcore.values.allocation import AllocatedDevice, VirtualFunction
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import MAX_AMOUNT

from koord_scheduler.domain.cluster.forgetting import Forgetting


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
    # Whether the Device object has the label secondary-device-well-planned: secondary devices are said to fit.
    is_well_planned: bool = False
    # Equal for nodes whose devices differ in nothing but their ids, so that the same devices are chosen.
    layout: object = None


def inventory_of(cards: Sequence[Card], meta: ObjectMeta | None = None) -> tuple[Inventory, list[str]]:
    """Return the inventory of a node with these devices, and a sentence for each annotation that is ignored. `cards`:
    the devices; of two with the same type and minor number the first one counts. `meta`: labels and annotations of the
    Device object; None: it has none.
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
        if meta is not None:
            partitions, ignored = read_gpu_partitions(meta.annotations)
            problems += [f"a GPU partition is ignored: {error}" for error in ignored]
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
    """Return (node name, devices, sentences about ignored entries) of a Device object. Raises codec.DecodeError: a
    field of `metadata` has a wrong type. Raises InvalidInput: the document is not a JSON object, or has no name.
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
    """Return the GPU partition table of a node, and whether its GPUs must be allocated by a table. The table of the
    Device object comes first, then a built-in table for the GPU model in the node's labels. Result: (table, must
    allocate by a table). The table is None if there is none.
    Source: scheduler-fine-grained spec, 2.7.
    """
    if inventory.partitions is not None:
        return inventory.partitions, inventory.honors_partitions
    vendor, model = node_labels.get(keys.GPU_VENDOR, ""), node_labels.get(keys.GPU_MODEL, "")
    if vendor in _BUILT_IN_VENDORS and model in _BUILT_IN_MODELS:
        return _BUILT_IN_TABLE, gpu_partition_policy(node_labels) == PARTITION_HONOR
    return None, gpu_partition_policy(node_labels) == PARTITION_HONOR


class Inventories:
    """The devices of every node, as the Device objects state them. `has_node`: returns whether a node with this name
    exists.
    """

    def __init__(self, has_node: Callable[[str], bool] = lambda _: True) -> None:
        self.by_node: dict[str, Inventory] = {}  # Name of the node -> its devices
        self._has_node = has_node
        self._dropped: set[str] = set()
        self._forgetting = Forgetting()
        # Names of nodes where a device is, or was, unhealthy or missing. An event may have to report the unhealthy
        # devices of their pods. The reader of the attribute clears it.
        self.to_tell: dict[str, None] = {}
        # Names of nodes whose secondary devices are well planned according to the label, and did not fit a pod whose
        # primary devices did. A name is removed when the Device object changes. Only metrics read it.
        self.not_well_planned: set[str] = set()
        # Functions that are called with the name of each node whose devices have changed.
        self.followers: list[Callable[[str], None]] = []

    def put(self, document: object) -> list[str]:
        """Add or replace the devices of a node by a Device object, and call the followers.

        Args:
            document: The Device object as decoded JSON.

        Returns:
            A sentence for each entry of the object that is ignored.

        Raises:
            codec.DecodeError: A field of `metadata` has a wrong type.
            InvalidInput: The document is not a JSON object, or has no name.
        """
        node, inventory, problems = read_device(document)
        self.tell(node)
        before = self.by_node.get(node)
        self.by_node[node] = inventory
        self._dropped.discard(node)
        self._forget()
        if before is None or _devices(before) != _devices(inventory):
            self.to_tell[node] = None  # a device that is not in the object has failed for the pods that hold it
        self._changed(node)
        return [f"Device {node}: {problem}" for problem in problems]

    def drop(self, node: str) -> None:
        """Mark all devices of the node as unhealthy, because its Device object was deleted."""
        known = self.by_node.get(node)
        if known is not None:
            cards = [_unhealthy(card) for of_type in known.cards.values() for card in of_type]
            self.by_node[node] = inventory_of(cards)[0]
            self._dropped.add(node)
            self._changed(node)

    def dropped(self) -> dict[str, list[Card]]:
        """Return name of a node -> its devices, for the nodes whose Device object was deleted, for a snapshot."""
        return {
            node: [card for of_type in self.by_node[node].cards.values() for card in of_type]
            for node in sorted(self._dropped)
        }

    def restore(self, dropped: Mapping[str, Sequence[Card]]) -> None:
        """Restore the result of `dropped` from a snapshot. The Device objects must have been restored before."""
        for node, cards in dropped.items():
            self.by_node[node] = inventory_of(cards)[0]
            self._dropped.add(node)
            self._changed(node)

    def _forget(self) -> None:
        """Forget nodes that do not exist and have no Device object. No-op until `Forgetting` requires a search."""
        if self._forgetting.is_due(len(self.by_node)):
            for node in [name for name in self._dropped if not self._has_node(name)]:
                del self.by_node[node]
                self._dropped.remove(node)
                self.to_tell.pop(node, None)
            self._forgetting.searched(len(self.by_node))

    def tell(self, node: str) -> None:
        """Add the node to `to_tell` if one of its devices is unhealthy, so that its pods are examined."""
        known = self.by_node.get(node)
        if known is not None and any(not card.is_healthy for cards in known.cards.values() for card in cards):
            self.to_tell[node] = None

    def tell_holders(self, node: str, devices: Iterable[AllocatedDevice]) -> None:
        """Add the node to `to_tell` if one of the devices that its pods hold is unhealthy or missing. `devices`:
        devices that pods on the node hold.
        """
        known = self.by_node.get(node)
        if known is None:
            return  # the Device object has not arrived yet
        for device in devices:
            card = known.by_minor.get(device.type, {}).get(device.minor)
            if card is None or not card.is_healthy:
                self.to_tell[node] = None

    def _changed(self, node: str) -> None:
        self.not_well_planned.discard(node)
        self.tell(node)
        for follower in self.followers:
            follower(node)


def _unhealthy(card: Card) -> Card:
    return replace(card, is_healthy=False, total={})


def _devices(inventory: Inventory) -> set[tuple[str, int]]:
    return {(type_, minor) for type_, of_type in inventory.by_minor.items() for minor in of_type}


class Layouts:
    """A number for each layout: nodes have equal numbers if their devices differ at most in their ids. A number is not
    used again. Layouts that no node has any more, such as those of devices that were unhealthy for a while, are
    forgotten when there are many.
    """

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._of_row: dict[int, int] = {}
        self._next = 0
        self._forgetting = Forgetting()

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, row: int) -> int:
        """Return the number of the layout of the node at position `row`. Raises KeyError: the node has no devices."""
        return self._of_row[row]

    def put(self, row: int, layout: object) -> None:
        """Set the layout of the node at position `row`."""
        number = self._numbers.get(layout)
        if number is None:
            number = self._numbers[layout] = self._next
            self._next += 1
        self._of_row[row] = number
        if self._forgetting.is_due(len(self._numbers)):
            used = set(self._of_row.values())
            self._numbers = {each: number for each, number in self._numbers.items() if number in used}
            self._forgetting.searched(len(self._numbers))

    def drop(self, row: int) -> None:
        """Forget the layout of a node that has no devices any more. No-op if it had none."""
        self._of_row.pop(row, None)
