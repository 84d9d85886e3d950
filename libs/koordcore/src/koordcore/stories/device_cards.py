"""The devices (cards) of a node with the pods that hold them, computed from the Device object and the node's ledger.

A share is a percentage of one card: the largest percentage that an allocation takes of the card's resources.

Source: scheduler-fine-grained spec, 2.1, 2.9.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from koordcore.events.node_ledger import PodOnNode
from koordcore.protocol.hardware.devices import UNKNOWN_NUMA_NODE, DeviceDetails, device_amounts, read_devices
from koordcore.protocol.resource_names import GPU_MEMORY
from koordcore.state.allocation_rules import PERCENTAGES, WHOLE_DEVICE
from koordcore.values.allocation import AllocatedDevice
from koordcore.values.invalid import InvalidInput

GPU_TYPE: Final = "gpu"
UNKNOWN_SWITCH: Final = ""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a device that one pod holds."""

    uid: str
    percent: int  # Share of the device: the largest percentage of any of its resources that the pod takes
    amounts: dict[str, int]  # Resource name -> allocated amount


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A virtual function of a device: bus id, minor, and the uids of the pods that hold it. More than one holder is a
    conflict.
    """

    bus_id: str
    minor: int
    owners: tuple[str, ...]


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One device (GPU, RDMA NIC, FPGA) of a node, and the pods that hold parts of it."""

    type: str  # `gpu`, `rdma`, `fpga` or a vendor's type
    minor: int  # Index of the device within its type. Type and minor identify it on the node.
    id: str = ""  # UUID or bus id; may be empty
    # `healthy`, `unhealthy` (it takes no new pod) or `gone` (pods hold it, but the Device object does not list it).
    state: Literal["healthy", "unhealthy", "gone"] = "healthy"
    socket: int = -1  # Id of its socket; -1 if unknown
    zone: int = UNKNOWN_NUMA_NODE  # NUMA node; -1 if unknown
    switch: str = UNKNOWN_SWITCH  # Id of its PCIe switch; empty if unknown
    total: dict[str, int] = {}  # Resource name -> capacity
    percent_used: int = 0  # Sum of the shares in percent. Above 100, it was allocated too often.
    shares: tuple[Share, ...] = ()  # One share for each pod that holds a part of the device, by uid of the pod
    functions: tuple[Function, ...] = ()  # All virtual functions of the device, by bus id

    @property
    def percent_free(self) -> int:
        """Percentage of the device that a new pod could get; 0 if the device is not healthy."""
        return max(0, WHOLE_DEVICE - self.percent_used) if self.state == "healthy" else 0


class ShareTotals(NamedTuple):
    """Use of all GPUs of a node. Percentages are of one GPU, so two full GPUs are 200."""

    cards: int = 0  # Number of healthy GPUs
    used: int = 0  # Sum of the percentages that pods hold
    # Sum of the free percentages on healthy GPUs that are partly used. A pod that needs whole GPUs cannot use them.
    stranded: int = 0


def cards_of(device: Mapping[str, Any] | None, pods: Mapping[str, PodOnNode]) -> tuple[list[Card], list[InvalidInput]]:
    """Return the devices of a node with their holders, from its Device object and its ledger. `device`: the node's
    Device object as JSON; None if there is none. `pods`: uid -> entry of the pods in the node's ledger.

    Returns:
        The devices by type and minor, and one error for each entry of the Device object that was ignored. Devices that
        pods hold and that the Device object does not list are added with state `gone`.
    """
    stated, ignored = read_devices(device) if device is not None else ([], [])
    return cards_with_holders(stated, pods), ignored


def cards_with_holders(stated: Iterable[DeviceDetails], pods: Mapping[str, PodOnNode]) -> list[Card]:
    """Return the given devices with the pods that hold them, by type and minor. A device that pods hold and that is not
    given is added with state `gone`. `stated`: Devices of the Device object; no two have equal type and minor. `pods`:
    uid -> entry of the pods in the node's ledger.
    """
    details = {(each.type, each.minor): each for each in stated}
    held: defaultdict[tuple[str, int], list[tuple[str, AllocatedDevice]]] = defaultdict(list)
    for uid in sorted(uid for uid, pod in pods.items() if pod.allocation.devices):
        for part in pods[uid].allocation.devices:
            held[part.type, part.minor].append((uid, part))
    return [_card(key, details.get(key), held.get(key, ())) for key in sorted({*details, *held})]


def gpu_totals(cards: Iterable[Card]) -> ShareTotals:
    """Return the use of the GPUs among these devices, summed over the GPUs. Other devices are ignored."""
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
