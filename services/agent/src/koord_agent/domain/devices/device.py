"""A device of the node, however it was found, and the report of all of them: the content of the Device object.

Source: runtime spec, 9.2 to 9.5.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from koordcore.events.nodestate import DeviceInventoryChanged, ReportedDevice
from koordcore.protocol import keys
from koordcore.protocol.hardware.devices import PciLocation
from koordcore.values import codec
from koordcore.values.quantity import Quantity

HEALTHY: Final = "Healthy"
UNKNOWN_ID: Final = -1
"""Number of a socket or NUMA node that is not known."""
KEPT_MS: Final = 600_000
"""Time during which a device that vanished is reported as not healthy, before it is left out."""
VANISHED: Final = "DeviceVanished"
INACTIVE: Final = "PortInactive"
_UNHEALTHY: Final = {"rdma": (INACTIVE, "the device has no port, or not all of its ports are active")}
"""Code and sentence for a type whose health is read without a reason."""


class DeviceTopology(msgspec.Struct, frozen=True):
    """Location of a device in the Device object; a number is -1 if it is unknown."""

    socket_id: int = msgspec.field(name="socketID")
    node_id: int = msgspec.field(name="nodeID")
    pcie_id: str = msgspec.field(name="pcieID")
    bus_id: str = msgspec.field(name="busID")


class Condition(msgspec.Struct, frozen=True):
    """The condition `Healthy` of a device: status "True" or "False", with reason and message."""

    type: str
    status: str
    reason: str
    message: str


class Partition(msgspec.Struct, frozen=True, rename="camel"):
    """A group of devices that can be given to one pod together."""

    minors: tuple[int, ...]  # Minors of the devices
    gpu_link_type: str  # Kind of the links between them
    allocation_score: int = 1  # Preference among partitions of the same size


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    uuid: str  # Identifier; the PCI address of an RDMA function
    minor: int  # Index among the devices of its type
    type: str  # `gpu`, `rdma` or `fpga`
    resources: dict[str, Quantity]  # Capacity of the device by resource name
    health: bool  # Whether the device may take new pods
    topology: DeviceTopology | None  # Location; None if it is not known
    # Health status that was read from the device; None if it was not read, or if devices of this type have none.
    condition: Condition | None
    virtual_functions: tuple[str, ...] = ()  # PCI addresses of the virtual functions of an RDMA function, ascending


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    devices: tuple[Device, ...] = ()  # Devices, sorted by type and minor
    labels: dict[str, str] = field(default_factory=dict[str, str])
    # Number of devices (as text) -> partitions of that size.
    partitions: dict[str, tuple[Partition, ...]] = field(default_factory=dict[str, tuple[Partition, ...]])

    @classmethod
    def of(
        cls,
        devices: Iterable[Device],
        *,
        labels: Mapping[str, str],
        partitions: Mapping[str, tuple[Partition, ...]] | None = None,
    ) -> "DeviceReport":
        """Sorted by type and minor."""
        return cls(
            devices=tuple(sorted(devices, key=lambda device: (device.type, device.minor))),
            labels=dict(labels),
            partitions=dict(partitions or {}),
        )


def healthy_condition() -> Condition:
    """For a device whose status was read and is good."""
    return Condition(type=HEALTHY, status="True", reason="DeviceHealthy", message="device is healthy")


def fault_condition(code: str, message: str) -> Condition:
    """For a device that must take no new pod. An unknown `code` is "", and so is a missing sentence for people."""
    return Condition(type=HEALTHY, status="False", reason=code or "Unknown", message=message or "device is unhealthy")


def topology_at(location: PciLocation, bus_id: str) -> DeviceTopology:
    return DeviceTopology(socket_id=UNKNOWN_ID, node_id=location.numa_node, pcie_id=location.root, bus_id=bus_id)


def device_inventory(found: DeviceReport) -> DeviceInventoryChanged:
    annotations = {keys.GPU_PARTITIONS: codec.encode(found.partitions).decode()} if found.partitions else {}
    return DeviceInventoryChanged(
        devices=[_reported(device) for device in found.devices], labels=dict(found.labels), annotations=annotations
    )


def with_vanished(report: DeviceInventoryChanged, vanished: Mapping[str, ReportedDevice]) -> DeviceInventoryChanged:
    """Add the devices that are not found any more, as not healthy. `vanished` has their last reports by key."""
    if not vanished:
        return report
    lost = (
        msgspec.structs.replace(device, healthy=False, code=VANISHED, message="the device is not found any more")
        for device in vanished.values()
    )
    devices = sorted((*report.devices, *lost), key=lambda device: (device.type, device.minor, device.id))
    return msgspec.structs.replace(report, devices=devices)


def _reported(device: Device) -> ReportedDevice:
    place, condition = device.topology, device.condition
    code, message = ("", "") if condition is None else (condition.reason, condition.message)
    if condition is None and not device.health:
        code, message = _UNHEALTHY.get(device.type, ("Unknown", "device is unhealthy"))
    return ReportedDevice(
        type=device.type,
        minor=device.minor,
        id=device.uuid,
        amounts={name: amount.value() for name, amount in device.resources.items()},
        healthy=None if condition is None and device.health else device.health,
        code=code,
        message=message,
        has_topology=place is not None,
        numa_node=-1 if place is None else place.node_id,
        pcie_id="" if place is None else place.pcie_id,
        bus_id="" if place is None else place.bus_id,
        virtual_functions=list(device.virtual_functions),
    )
