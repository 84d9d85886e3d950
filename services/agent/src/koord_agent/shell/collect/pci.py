"""Read PCI functions from sysfs.

Source: runtime spec, 9.3.
"""

from collections.abc import Sequence
from pathlib import Path

from koordcore.protocol.hardware.devices import PciLocation, pci_location

from koord_agent.domain.devices.device import Device
from koord_agent.domain.devices.rdma import NETWORK_CLASS, NetworkFunction, rdma_device
from koord_agent.domain.kernel.counters import whole_number


class PciBus:
    """The PCI functions of a machine.

    Args:
        sys: Folder of sysfs.
    """

    def __init__(self, sys: Path) -> None:
        self._functions = sys / "bus" / "pci" / "devices"

    def locate(self, bus_id: str) -> PciLocation | None:
        """Return the location of a PCI function; None if sysfs does not tell it.

        Args:
            bus_id: PCI address in lower case.
        """
        folder = self._functions / bus_id
        numa_node = _text(folder / "numa_node")
        return None if numa_node is None else pci_location(numa_node, str(folder.resolve()))

    def rdma_devices(self) -> Sequence[Device]:
        """Return the RDMA devices of the machine, in the order of their addresses."""
        try:
            folders = sorted(self._functions.iterdir())
        except OSError:
            return ()
        functions = (_network_function(folder) for folder in folders)
        found = (rdma_device(each, self.locate(each.bus_id)) for each in functions if each is not None)
        return tuple(device for device in found if device is not None)


def _network_function(folder: Path) -> NetworkFunction | None:
    """Return a function that is a network controller with RDMA names; None for any other function."""
    try:
        base_class = int(_text(folder / "class") or "", 16) >> 16
    except ValueError:
        return None
    names = _names(folder / "infiniband")
    if base_class != NETWORK_CLASS or not names:
        return None
    ports = folder / "infiniband" / names[0] / "ports"
    virtual = whole_number((_text(folder / "sriov_numvfs") or "0").strip())
    return NetworkFunction(
        bus_id=folder.name,
        base_class=base_class,
        is_virtual=(folder / "physfn").exists(),
        rdma_names=names,
        port_states=tuple(_text(ports / port / "state") or "" for port in _names(ports)),
        virtual_functions=tuple(link.resolve().name for link in folder.glob("virtfn*")) if virtual else (),
    )


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return None
