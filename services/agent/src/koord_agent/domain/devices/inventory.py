"""The devices of a node as the agent reports them: content of its Device object.

Source: runtime spec, 9.2 to 9.5.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from koordcore.events.nodestate import DeviceInventoryChanged, ReportedDevice
from koordcore.protocol import keys
from koordcore.values import codec

from koord_agent.domain.devices.device import Device, DeviceReport

KEPT_MS: Final = 600_000
"""Time during which a device that vanished is reported as not healthy, before it is left out."""
VANISHED: Final = "DeviceVanished"
INACTIVE: Final = "PortInactive"
_UNHEALTHY: Final = {"rdma": (INACTIVE, "the device has no port, or not all of its ports are active")}
"""Code and sentence for a type whose health is read without a reason."""


def device_inventory(found: DeviceReport) -> DeviceInventoryChanged:
    """Return the fact `DeviceInventoryChanged` about the devices that were found."""
    annotations = {keys.GPU_PARTITIONS: codec.encode(found.partitions).decode()} if found.partitions else {}
    return DeviceInventoryChanged(
        devices=[_reported(device) for device in found.devices], labels=dict(found.labels), annotations=annotations
    )


def with_vanished(report: DeviceInventoryChanged, vanished: Mapping[str, ReportedDevice]) -> DeviceInventoryChanged:
    """Return the fact with the devices added that are not found any more; they are not healthy.

    Args:
        report: The fact about the devices that were found.
        vanished: Key -> last report of each device that is not found any more.
    """
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
