"""Entries of the device file, which the agent reads.

Source: runtime spec, 8.3.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from koordcore.protocol.resource_names import GPU_CORE, GPU_MEMORY

UNKNOWN: Final = "-1"
"""Text of an unknown socket or NUMA node."""


class XpuTopology(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Location of a device on the node.

    Attributes:
        socket_id: CPU socket. No vendor's tool tells it, so it is always "-1".
        node_id: NUMA node; "-1" if it is unknown.
        pcie_id: PCIe root, such as `pci0000:80`; "" if it is unknown.
        bus_id: PCI address, such as `0000:81:00.0`.
    """

    # The default is never used: `socketID` and `nodeID` are written also when they are unknown.
    socket_id: str = msgspec.field(default="", name="socketID")
    node_id: str = msgspec.field(default="", name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class XpuStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Health of a device. `err_code` and `err_message` are left out of the file if they are empty."""

    healthy: bool
    err_code: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="errCode")
    err_message: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="errMessage")


class Xpu(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator of the node.

    Attributes:
        vendor: Name of the vendor, such as `huawei`.
        model: Name of the model, such as `Ascend-910B4`.
        uuid: Identifier that is unique on the node.
        minor: Number of the device below /dev, in decimal digits.
        resources: Kubernetes quantity of each resource of the device.
        topology: Location of the device.
        status: Health of the device.
    """

    vendor: str
    model: str
    uuid: str
    minor: str
    resources: dict[str, str]
    topology: XpuTopology
    status: XpuStatus


HEALTHY: Final = XpuStatus(healthy=True)


def unhealthy(code: str = "", message: str = "") -> XpuStatus:
    """Return the status of a device that must take no new pod.

    Args:
        code: Short error code; "" if the tool gives none.
        message: Sentence for the person who reads it; "" if there is none.
    """
    return XpuStatus(healthy=False, err_code=code or msgspec.UNSET, err_message=message or msgspec.UNSET)


def gpu_resources(memory: str) -> dict[str, str]:
    """Return the resources of a whole card: its memory as a Kubernetes quantity, and 100 percent of its cores."""
    return {GPU_MEMORY: memory, GPU_CORE: "100"}


def file_content(devices: Sequence[Xpu]) -> bytes:
    """Return the content of the device file: a JSON array with an indentation of two spaces."""
    return msgspec.json.format(msgspec.json.encode(devices), indent=2) + b"\n"
