"""The Device object: GPUs, RDMA adapters and FPGAs of a node, as its agent reports them; and where a PCI function is.

Source: protocol spec, 9 (Device); manager spec, 5.10, 5.11; runtime spec, 9.3.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from koordcore.protocol.objects import KubeStruct, ObjectMeta, Quantities, object_from_json
from koordcore.protocol.resource_names import DEPRECATED_DEVICE, rename_resources
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import Amounts, parse_amounts

HIGHEST_MINOR: Final = 255
HIGHEST_NUMA_NODE: Final = 63
UNKNOWN_NUMA_NODE: Final = -1


class DeviceTopology(KubeStruct):
    """Location of a device: socket, NUMA node, PCIe switch and bus id (object `spec.devices[].topology`). Socket or
    NUMA node -1 means unknown.
    """

    socket_id: int = msgspec.field(default=-1, name="socketID")
    node_id: int = msgspec.field(default=-1, name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class DeviceFunction(KubeStruct):
    """A virtual function of a device: its minor and its bus id (object `spec.devices[].vfGroups[].vfs[]`)."""

    minor: int = 0
    bus_id: str = msgspec.field(default="", name="busID")


class DeviceFunctionGroup(KubeStruct):
    """A group of virtual functions of a device, with labels that select it (object `spec.devices[].vfGroups[]`)."""

    labels: dict[str, str] = {}
    vfs: list[DeviceFunction] = []


class DeviceInfo(KubeStruct):
    """Type, health and resources of one device (object `spec.devices[]`), for sums over the devices of a node."""

    type: str = ""
    health: bool = False
    resources: Quantities = {}


class DeviceDetails(DeviceInfo):
    """One device with id, minor, labels, location and virtual functions, for choosing devices for a pod."""

    id: str = ""
    minor: int = -1
    labels: dict[str, str] = {}
    topology: DeviceTopology | None = None
    vf_groups: list[DeviceFunctionGroup] = []


class DeviceSpec(KubeStruct):
    """Object `spec` of a Device: the devices of the node, reduced to type, health and resources."""

    devices: list[DeviceInfo] = []


class Device(KubeStruct):
    """A Device object (scheduling.koordinator.sh/v1alpha1): the devices of one node. It has the name of the node."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DeviceSpec = msgspec.field(default_factory=DeviceSpec)


def device_from(raw: Mapping[str, Any] | None) -> Device | None:
    """Convert a stored JSON object to a Device with the devices that `read_devices` finds, which are those that the
    scheduler gives to pods; None if there is no object or its metadata are invalid.
    """
    if raw is None:
        return None
    try:
        meta = object_from_json(raw.get("metadata") or {}, ObjectMeta)
    except codec.DecodeError:
        return None
    return Device(metadata=meta, spec=DeviceSpec(devices=list(read_devices(raw)[0])))


def read_devices(raw: Mapping[str, Any]) -> tuple[list[DeviceDetails], list[InvalidInput]]:
    """Return the valid devices of a Device object, and one error for each entry that is ignored. An entry is ignored if
    it is malformed, has no type, has an index or amount out of range, or repeats type and minor of an earlier entry.

    Source: scheduler-fine-grained spec, 2.1.
    """
    spec = raw.get("spec")
    entries: object = cast("Mapping[str, object]", spec).get("devices") if isinstance(spec, Mapping) else spec
    if entries is None:
        return [], []
    if not isinstance(entries, list):
        return [], [InvalidInput("a list", entries, "spec.devices")]
    found: dict[tuple[str, int], DeviceDetails] = {}
    ignored: list[InvalidInput] = []
    for index, entry in enumerate(cast("list[object]", entries)):
        try:
            device = object_from_json(entry, DeviceDetails)
            _require_valid(device)
            if (device.type, device.minor) in found:
                raise InvalidInput("stated once for each type", device.minor, "minor")
            found[device.type, device.minor] = device
        except codec.DecodeError as error:
            ignored.append(InvalidInput(f"a device ({error})", entry, f"spec.devices[{index}]"))
        except InvalidInput as error:
            ignored.append(error.at(f"spec.devices[{index}]"))
    return list(found.values()), ignored


def device_amounts(device: DeviceInfo) -> Amounts:
    """Return resource name -> capacity of a device. Deprecated resource names are replaced by the current ones.

    Raises:
        InvalidInput: An amount is not a quantity.
    """
    return parse_amounts(rename_resources(device.resources, DEPRECATED_DEVICE))


def _require_valid(device: DeviceDetails) -> None:
    if not device.type:
        raise InvalidInput("the type of a device, for example gpu", device.type, "type")
    if not 0 <= device.minor <= HIGHEST_MINOR:
        raise InvalidInput(f"an integer from 0 to {HIGHEST_MINOR}", device.minor, "minor")
    numa = device.topology.node_id if device.topology is not None else UNKNOWN_NUMA_NODE
    if not UNKNOWN_NUMA_NODE <= numa <= HIGHEST_NUMA_NODE:
        raise InvalidInput(f"an integer from {UNKNOWN_NUMA_NODE} to {HIGHEST_NUMA_NODE}", numa, "topology.nodeID")
    try:
        device_amounts(device)
    except InvalidInput as error:
        raise error.at("resources") from error


_ROOT: Final = re.compile(r"pci[0-9]{4}:[0-9a-fA-F]{2}")


@dataclass(frozen=True, slots=True)
class PciLocation:
    """Location of a PCI function."""

    numa_node: int  # NUMA node of the function, from 0
    root: str  # PCIe root, such as `pci0000:80`; "" if the path of the function names none


def pci_location(numa_node: str, resolved_path: str) -> PciLocation | None:
    """Return the location of a PCI function from its files in sysfs. `numa_node`: content of the file `numa_node`. -1
    means that the machine has one node, which is node 0. `resolved_path`: path to which the link of the function leads.

    Returns:
        The location, or None if `numa_node` is not an integer.
    """
    try:
        node = int(numa_node.strip())
    except ValueError:
        return None
    root = _ROOT.search(resolved_path)
    return PciLocation(0 if node == -1 else node, root.group() if root else "")
