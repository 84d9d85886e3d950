"""RDMA functions of network cards, as sysfs describes them.

Source: runtime spec, 9.3.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.protocol.hardware.devices import PciLocation
from koordcore.protocol.resource_names import RDMA
from koordcore.values.quantity import of_value

from koord_agent.domain.devices.device import Device, topology_at

NETWORK_CLASS: Final = 0x02
"""Base class of network controllers in PCI."""
_NAME: Final = re.compile(r"mlx[0-9]+_([0-9]+)")
_ACTIVE: Final = "ACTIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFunction:
    """A PCI function that may be an RDMA device.

    Attributes:
        bus_id: PCI address.
        base_class: Base class of the function.
        is_virtual: Whether it is a virtual function of another one.
        rdma_names: Names in its folder `infiniband`.
        port_states: Content of the files `state` of all ports of the first name.
        virtual_functions: PCI addresses of its virtual functions; empty if virtual functions are off.
    """

    bus_id: str
    base_class: int
    is_virtual: bool = False
    rdma_names: Sequence[str] = ()
    port_states: Sequence[str] = ()
    virtual_functions: Sequence[str] = ()


def rdma_device(function: NetworkFunction, location: PciLocation | None) -> Device | None:
    """Return a PCI function as an RDMA device of the node.

    Args:
        function: The function.
        location: Its location in sysfs; None if it cannot be read.

    Returns:
        The device. None if the function is virtual, is no network controller, has no RDMA name, has a name other than
        `mlx<k>_<n>` (a bond, for example), or has no location. The device is healthy if it has ports and all are
        active.
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
