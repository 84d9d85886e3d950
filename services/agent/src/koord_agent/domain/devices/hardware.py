"""Devices that the machine itself describes: NVIDIA GPUs by NVML, RDMA functions of network cards by sysfs.

Source: runtime spec, 9.3, 9.4.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.hardware.devices import PciLocation
from koordcore.protocol.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA
from koordcore.values.quantity import of_value

from koord_agent.domain.devices.device import Device, fault_condition, topology_at

_BRAND: Final = "NVIDIA "
APPLICATION_XIDS: Final = frozenset((13, 31, 43, 45, 68, 109))
"""Xid errors that an application causes. They say nothing about the GPU."""
NETWORK_CLASS: Final = 0x02
"""Base class of network controllers in PCI."""
_NAME: Final = re.compile(r"mlx[0-9]+_([0-9]+)")
_ACTIVE: Final = "ACTIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    uuid: str
    minor: int  # Number in /dev/nvidia<n>
    bus_id: str  # PCI address as sysfs writes it, such as `0000:3b:00.0`
    memory_bytes: int  # Total memory
    name: str = ""  # Product name; "" if it cannot be read


@dataclass(frozen=True, slots=True)
class GpuFault:
    """Fault of a GPU that must take no new pod: an error code such as `Xid79`, and a sentence for people."""

    code: str
    message: str


def xid_fault(xid: int) -> GpuFault | None:
    """None if an application caused the error."""
    if xid in APPLICATION_XIDS:
        return None
    return GpuFault(f"Xid{xid}", f"Xid error detected on device, error code: {xid}")


def gpu_device(gpu: Gpu, location: PciLocation | None, fault: GpuFault | None) -> Device:
    """A healthy GPU (`fault` is None) has no condition. Without a location or a PCIe root, it has no topology."""
    return Device(
        uuid=gpu.uuid,
        minor=gpu.minor,
        type="gpu",
        resources={
            GPU_CORE: of_value(100),
            GPU_MEMORY: of_value(gpu.memory_bytes),
            GPU_MEMORY_RATIO: of_value(100),
        },
        health=fault is None,
        topology=topology_at(location, gpu.bus_id) if location and location.root and gpu.bus_id else None,
        condition=None if fault is None else fault_condition(fault.code, fault.message),
    )


def gpu_labels(names: Sequence[str], driver: str | None) -> dict[str, str]:
    """The vendor; model and driver as well if all GPUs have the same name and both can be read. Empty without GPUs.

    Args:
        names: Product name of every GPU; "" if it cannot be read.
        driver: None if it cannot be read.
    """
    if not names:
        return {}
    labels = {keys.GPU_VENDOR: keys.NVIDIA}
    if len(set(names)) == 1 and names[0] and driver is not None:
        labels[keys.GPU_MODEL] = names[0].removeprefix(_BRAND).replace(" ", "-")
        labels[keys.GPU_DRIVER_VERSION] = driver
    return labels


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFunction:
    """A PCI function that may be an RDMA device."""

    bus_id: str  # PCI address
    base_class: int
    is_virtual: bool = False  # Whether it is a virtual function of another one
    rdma_names: Sequence[str] = ()  # Names in its folder `infiniband`
    port_states: Sequence[str] = ()  # Content of the files `state` of all ports of the first name
    virtual_functions: Sequence[str] = ()  # PCI addresses of its virtual functions; empty if virtual functions are off


def rdma_device(function: NetworkFunction, location: PciLocation | None) -> Device | None:
    """Return a PCI function as an RDMA device of the node. It is healthy if it has ports and all are active.

    None if the function is virtual, is no network controller, has no RDMA name, has a name other than `mlx<k>_<n>` (a
    bond, for example), or has no location in sysfs.
    """
    if function.base_class != NETWORK_CLASS or function.is_virtual or not function.rdma_names or location is None:
        return None
    name = _NAME.fullmatch(min(function.rdma_names))
    if name is None:
        return None
    states = function.port_states
    return Device(
        uuid=function.bus_id,
        minor=int(name[1]),
        type="rdma",
        resources={RDMA: of_value(100)},
        health=bool(states) and all(_ACTIVE in state for state in states),
        topology=topology_at(location, function.bus_id),
        condition=None,
        virtual_functions=tuple(sorted(function.virtual_functions)),
    )
