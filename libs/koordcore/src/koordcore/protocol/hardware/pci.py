"""Location of a PCI function (NUMA node and PCIe root), read from its files in sysfs.

Source: runtime spec, 9.3.
"""

import re
from dataclasses import dataclass
from typing import Final

_ROOT: Final = re.compile(r"pci[0-9]{4}:[0-9a-fA-F]{2}")


@dataclass(frozen=True, slots=True)
class PciLocation:
    """Location of a PCI function.

    Attributes:
        numa_node: NUMA node of the function, from 0.
        root: PCIe root, such as `pci0000:80`; "" if the path of the function names none.
    """

    numa_node: int
    root: str


def pci_location(numa_node: str, resolved_path: str) -> PciLocation | None:
    """Return the location of a PCI function from its files in sysfs.

    Args:
        numa_node: Content of the file `numa_node`. -1 means that the machine has one node, which is node 0.
        resolved_path: Path to which the link of the function leads.

    Returns:
        The location, or None if `numa_node` is not an integer.
    """
    try:
        node = int(numa_node.strip())
    except ValueError:
        return None
    root = _ROOT.search(resolved_path)
    return PciLocation(0 if node == -1 else node, root.group() if root else "")
