"""Accelerators of the node, from the description files of vendors' tools: the content of a Device object.

Source: agent spec, 4.8 (XPU).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.objects import without_nulls
from koordcore.protocol.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import Quantity, of_value, quantity_from_json

from koord_agent.domain.kernel.counters import whole_number

HEALTHY: Final = "Healthy"
_SHORT_NAMES: Final = {"gpu-core": GPU_CORE, "gpu-memory": GPU_MEMORY}
_UNKNOWN_ID: Final = -1


class Link(msgspec.Struct):
    """A direct connection to other devices. `peers` is a comma-separated list of minors."""

    peer_minor: str = msgspec.field(default="", name="peerMinor")
    type: str = ""


class XpuTopology(msgspec.Struct, rename={"p2p_links": "p2pLinks", "must_honor_partition": "mustHonorPartition"}):
    """Location of a device; ids are texts, "" if unknown."""

    p2p_links: list[Link] = []
    must_honor_partition: bool = False
    node_id: str | int = msgspec.field(default="", name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class XpuStatus(msgspec.Struct, rename="camel"):
    """Health of a device."""

    healthy: bool = True
    err_code: str = ""
    err_message: str = ""


class Xpu(msgspec.Struct):
    """One entry of a description file."""

    vendor: str = ""
    model: str = ""
    uuid: str = ""
    minor: str | int = ""
    resources: dict[str, str | int | float | None] = {}
    topology: XpuTopology | None = None
    status: XpuStatus | None = None


class DeviceTopology(msgspec.Struct, frozen=True):
    """Location of a device in the report; -1 if unknown."""

    socket_id: int = msgspec.field(name="socketID")
    node_id: int = msgspec.field(name="nodeID")
    pcie_id: str = msgspec.field(name="pcieID")
    bus_id: str = msgspec.field(name="busID")


class Condition(msgspec.Struct, frozen=True):
    """The condition `Healthy` of a device."""

    type: str
    status: str
    reason: str
    message: str


class Partition(msgspec.Struct, frozen=True, rename="camel"):
    """Devices that can be given to one pod together."""

    minors: tuple[int, ...]
    gpu_link_type: str
    allocation_score: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device of the node. A condition of None means that its status is unknown."""

    uuid: str
    minor: int
    type: str
    resources: dict[str, Quantity]
    health: bool
    topology: DeviceTopology | None
    condition: Condition | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """Devices sorted by type and minor, labels of the object, and partitions by number of devices."""

    devices: tuple[Device, ...] = ()
    labels: dict[str, str] = field(default_factory=dict[str, str])
    partitions: dict[str, tuple[Partition, ...]] = field(default_factory=dict[str, tuple[Partition, ...]])


def xpu_of(raw: Any) -> Xpu:
    """Return one entry of decoded JSON. Raise codec.DecodeError for a field of a wrong type."""
    return codec.convert(without_nulls(raw), Xpu)


def report_devices(xpus: Sequence[Xpu]) -> DeviceReport:
    """Return the report about these devices. An entry whose minor is not a number is left out.

    A link without peers or without a type does not create a partition; other links of the device do.

    Source:
        agent spec, 4.8.
    """
    numbered = [(minor, xpu) for xpu in xpus if (minor := whole_number(str(xpu.minor))) is not None]
    if not numbered:
        return DeviceReport()
    devices = (_device(minor, xpu) for minor, xpu in numbered)
    return DeviceReport(
        devices=tuple(sorted(devices, key=lambda device: (device.type, device.minor))),
        labels=_labels(numbered[0][1]),
        partitions=_partitions(numbered),
    )


def _device(minor: int, xpu: Xpu) -> Device:
    resources = {GPU_MEMORY_RATIO: of_value(100)}
    for name, text in xpu.resources.items():
        try:
            resources[_SHORT_NAMES.get(name, name)] = quantity_from_json(text)
        except InvalidInput:
            continue
    topology = None
    if xpu.topology is not None:
        node = whole_number(str(xpu.topology.node_id))
        topology = DeviceTopology(
            socket_id=_UNKNOWN_ID,
            node_id=_UNKNOWN_ID if node is None else node,
            pcie_id=xpu.topology.pcie_id,
            bus_id=xpu.topology.bus_id,
        )
    status = xpu.status
    return Device(
        uuid=xpu.uuid,
        minor=minor,
        type="gpu",
        resources=resources,
        health=status is None or status.healthy,
        topology=topology,
        condition=None if status is None else _condition(status),
    )


def _condition(status: XpuStatus) -> Condition:
    if status.healthy:
        return Condition(type=HEALTHY, status="True", reason="DeviceHealthy", message="device is healthy")
    return Condition(
        type=HEALTHY,
        status="False",
        reason=status.err_code or "Unknown",
        message=status.err_message or "device is unhealthy",
    )


def _labels(first: Xpu) -> dict[str, str]:
    labels = {keys.GPU_VENDOR: first.vendor, keys.GPU_MODEL: first.model}
    if first.topology is not None and first.topology.p2p_links:
        labels[keys.GPU_PARTITION_POLICY] = "Honor" if first.topology.must_honor_partition else "Prefer"
    return labels


def _partitions(numbered: Sequence[tuple[int, Xpu]]) -> dict[str, tuple[Partition, ...]]:
    table: dict[str, list[Partition]] = {}
    seen: set[tuple[int, ...]] = set()
    for minor, xpu in numbered:
        for link in xpu.topology.p2p_links if xpu.topology is not None else ():
            peers = {whole_number(peer.strip()) for peer in link.peer_minor.split(",")}
            if not link.type or None in peers:
                continue
            minors = tuple(sorted({minor, *(peer for peer in peers if peer is not None)}))
            if minors not in seen:
                seen.add(minors)
                table.setdefault(str(len(minors)), []).append(Partition(minors=minors, gpu_link_type=link.type))
    return {size: tuple(partitions) for size, partitions in table.items()}
