"""The devices of a node with their holders: Device object and ledger in, cards out. Pure.

A share is a percentage of one card: the largest percentage that an allocation takes of the card's resources.

Source: scheduler-fine-grained spec, 2.1, 2.9.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from koordcore.events.scheduling.node_ledger import PodOnNode
from koordcore.protocol.hardware.devices import UNKNOWN_NUMA_NODE, DeviceDetails, device_amounts, read_devices
from koordcore.protocol.resource_names import GPU_MEMORY
from koordcore.state.allocation_rules import PERCENTAGES, WHOLE_DEVICE
from koordcore.values.allocation import AllocatedDevice
from koordcore.values.invalid import InvalidInput

GPU_TYPE: Final = "gpu"
UNKNOWN_SWITCH: Final = ""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod holds of a card.

    Attributes:
        uid: The pod.
        percent: Its share of the card.
        amounts: The allocated amounts by resource name.
    """

    uid: str
    percent: int
    amounts: dict[str, int]


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A virtual function of a card with the pods that hold it; more than one is a conflict."""

    bus_id: str
    minor: int
    owners: tuple[str, ...]


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One device of a node.

    Attributes:
        type: `gpu`, `rdma`, `fpga` or a vendor's type.
        minor: Index of the device; with the type it is the key on the node.
        id: UUID or bus id; may be empty.
        state: `unhealthy`: it takes no new pod; `gone`: pods hold it and the Device object does not state it.
        socket: Id of its socket; -1 if unknown.
        zone: NUMA node; -1 if unknown.
        switch: PCIe id; empty if unknown.
        total: Capacity by resource name.
        percent_used: Sum of the shares; above 100 if it is given too often.
        shares: One for each pod that holds a part, by uid.
        functions: All virtual functions, by bus id.
    """

    type: str
    minor: int
    id: str = ""
    state: Literal["healthy", "unhealthy", "gone"] = "healthy"
    socket: int = -1
    zone: int = UNKNOWN_NUMA_NODE
    switch: str = UNKNOWN_SWITCH
    total: dict[str, int] = {}
    percent_used: int = 0
    shares: tuple[Share, ...] = ()
    functions: tuple[Function, ...] = ()

    @property
    def percent_free(self) -> int:
        """The share that a new pod could get; 0 if the card is not healthy."""
        return max(0, WHOLE_DEVICE - self.percent_used) if self.state == "healthy" else 0


class ShareTotals(NamedTuple):
    """Shares of all GPUs of a node, in percent of one card.

    Attributes:
        cards: Number of healthy GPUs.
        used: Sum of the shares that pods hold.
        stranded: Sum of what is free on healthy GPUs that are partly used. No pod that needs whole cards can use it.
    """

    cards: int = 0
    used: int = 0
    stranded: int = 0


def cards_of(device: Mapping[str, Any] | None, pods: Mapping[str, PodOnNode]) -> tuple[list[Card], list[InvalidInput]]:
    """Return the devices of a node by type and minor, and why entries of the Device object are ignored.

    Args:
        device: The Device object as stored; None if there is none.
        pods: Pods of the node's ledger by uid.
    """
    stated, ignored = read_devices(device) if device is not None else ([], [])
    return cards_with_holders(stated, pods), ignored


def cards_with_holders(stated: Iterable[DeviceDetails], pods: Mapping[str, PodOnNode]) -> list[Card]:
    """Return devices that were read before, by type and minor, with the pods that hold them.

    Args:
        stated: Valid devices, each type and minor once.
        pods: Pods of the node's ledger by uid.
    """
    details = {(each.type, each.minor): each for each in stated}
    held: defaultdict[tuple[str, int], list[tuple[str, AllocatedDevice]]] = defaultdict(list)
    for uid in sorted(uid for uid, pod in pods.items() if pod.allocation.devices):
        for part in pods[uid].allocation.devices:
            held[part.type, part.minor].append((uid, part))
    return [_card(key, details.get(key), held.get(key, ())) for key in sorted({*details, *held})]


def gpu_totals(cards: Iterable[Card]) -> ShareTotals:
    """Return the shares of the GPUs among these cards."""
    gpus = [card for card in cards if card.type == GPU_TYPE]
    healthy = [card for card in gpus if card.state == "healthy"]
    return ShareTotals(
        cards=len(healthy),
        used=sum(card.percent_used for card in gpus),
        stranded=sum(card.percent_free for card in healthy if card.shares),
    )


def _card(key: tuple[str, int], device: DeviceDetails | None, held: Iterable[tuple[str, AllocatedDevice]]) -> Card:
    type_, minor = key
    total = device_amounts(device) if device is not None else {}
    shares: list[Share] = []
    owners: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    id_ = device.id if device is not None else ""
    for uid, part in held:
        shares.append(Share(uid=uid, percent=_percent(part.amounts, total), amounts=part.amounts))
        id_ = id_ or part.id
        for function in part.virtual_functions:
            owners[function.bus_id, function.minor].append(uid)
    functions = {(each.bus_id, each.minor) for group in (device.vf_groups if device else ()) for each in group.vfs}
    place = device.topology if device is not None else None
    state: Literal["healthy", "unhealthy", "gone"] = "gone"
    if device is not None:
        state = "healthy" if device.health else "unhealthy"
    return Card(
        type=type_,
        minor=minor,
        id=id_,
        state=state,
        socket=place.socket_id if place is not None else -1,
        zone=place.node_id if place is not None else UNKNOWN_NUMA_NODE,
        switch=place.pcie_id if place is not None else UNKNOWN_SWITCH,
        total=total,
        percent_used=sum(share.percent for share in shares),
        shares=tuple(shares),
        functions=tuple(
            Function(bus_id=bus_id, minor=number, owners=tuple(owners.get((bus_id, number), ())))
            for bus_id, number in sorted({*functions, *owners})
        ),
    )


def _percent(amounts: Mapping[str, int], total: Mapping[str, int]) -> int:
    """Return the largest percentage that the amounts take; by bytes of memory if they state no percentage."""
    stated = [amounts[name] for name in PERCENTAGES if amounts.get(name, 0) > 0]
    if stated:
        return max(stated)
    memory = total.get(GPU_MEMORY, 0)
    return -(-amounts.get(GPU_MEMORY, 0) * WHOLE_DEVICE // memory) if memory > 0 else 0
