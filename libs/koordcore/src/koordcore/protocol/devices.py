"""Device: the GPUs, RDMA adapters and FPGAs of a node, as its agent reports them.

Source:
    protocol spec, 9 (Device); manager spec, 5.10, 5.11
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from koordcore.protocol.objects import KubeStruct, ObjectMeta, Quantities, object_from_json
from koordcore.values import codec


class DeviceTopology(KubeStruct):
    """`spec.devices[].topology`. A NUMA node of -1 is unknown."""

    socket_id: int = msgspec.field(default=-1, name="socketID")
    node_id: int = msgspec.field(default=-1, name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class DeviceFunction(KubeStruct):
    """`spec.devices[].vfGroups[].vfs[]`: a virtual function."""

    minor: int = 0
    bus_id: str = msgspec.field(default="", name="busID")


class DeviceFunctionGroup(KubeStruct):
    """`spec.devices[].vfGroups[]`."""

    labels: dict[str, str] = {}
    vfs: list[DeviceFunction] = []


class DeviceInfo(KubeStruct):
    """`spec.devices[]`: what the sums over a node's devices need."""

    type: str = ""
    health: bool = False
    resources: Quantities = {}


class DeviceDetails(DeviceInfo):
    """`spec.devices[]` with all that choosing a device needs."""

    id: str = ""
    minor: int = -1
    labels: dict[str, str] = {}
    topology: DeviceTopology | None = None
    vf_groups: list[DeviceFunctionGroup] = []


class DeviceSpec(KubeStruct):
    """`spec` of a Device."""

    devices: list[DeviceInfo] = []


class Device(KubeStruct):
    """scheduling.koordinator.sh/v1alpha1, named as its node."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DeviceSpec = msgspec.field(default_factory=DeviceSpec)


def device_from(raw: Mapping[str, Any] | None) -> Device | None:
    """Return the devices of a stored object; None if there is no object or it cannot be read."""
    try:
        return None if raw is None else object_from_json(raw, Device)
    except codec.DecodeError:
        return None
