"""The devices of a node as the agent reports them: content of its Device object.

Source: runtime spec, 9.2 to 9.4, 9.5 (a node whose devices vanished).
"""

from collections.abc import Sequence

from koordcore.events.agents.nodestate import DeviceInventoryChanged, ReportedDevice
from koordcore.protocol import keys
from koordcore.values import codec

from koord_agent.domain.kernel.devices import Device, DeviceReport

KEPT_MS = 600_000
"""Time during which devices that vanished are reported as not healthy, before they are left out."""
VANISHED = "DeviceVanished"


def device_inventory(found: DeviceReport) -> DeviceInventoryChanged:
    """Return the report of the devices that were found."""
    annotations = {keys.GPU_PARTITIONS: codec.encode(found.partitions).decode()} if found.partitions else {}
    return DeviceInventoryChanged(
        devices=[_reported(device) for device in found.devices], labels=dict(found.labels), annotations=annotations
    )


def without_health(last: DeviceInventoryChanged) -> DeviceInventoryChanged:
    """Return the last report with every device not healthy, because the devices of the node vanished."""
    devices: Sequence[ReportedDevice] = last.devices
    return DeviceInventoryChanged(
        devices=[_vanished(device) for device in devices], labels=last.labels, annotations=last.annotations
    )


def _vanished(device: ReportedDevice) -> ReportedDevice:
    return ReportedDevice(
        type=device.type,
        minor=device.minor,
        id=device.id,
        amounts=device.amounts,
        healthy=False,
        code=VANISHED,
        message="the device is not found any more",
        has_topology=device.has_topology,
        numa_node=device.numa_node,
        pcie_id=device.pcie_id,
        bus_id=device.bus_id,
    )


def _reported(device: Device) -> ReportedDevice:
    place, condition = device.topology, device.condition
    return ReportedDevice(
        type=device.type,
        minor=device.minor,
        id=device.uuid,
        amounts={name: amount.value() for name, amount in device.resources.items()},
        healthy=None if condition is None else device.health,
        code="" if condition is None else condition.reason,
        message="" if condition is None else condition.message,
        has_topology=place is not None,
        numa_node=-1 if place is None else place.node_id,
        pcie_id="" if place is None else place.pcie_id,
        bus_id="" if place is None else place.bus_id,
    )
