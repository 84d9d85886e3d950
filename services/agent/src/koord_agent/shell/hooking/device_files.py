"""Device nodes of a real machine; implements `domain.hooks.allocated_devices.DeviceFiles`."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path


class LinuxDeviceFiles:
    """The device nodes of a machine.

    Args:
        sys: Folder of sysfs.
    """

    def __init__(self, sys: Path) -> None:
        self._functions = sys / "bus" / "pci" / "devices"

    def character_device(self, path: str) -> tuple[int, int] | None:
        """Return major and minor number of a character device; None if there is none.

        See `DeviceFiles.character_device`.
        """
        try:
            found = Path(path).stat()
        except (OSError, ValueError):
            return None
        return (os.major(found.st_rdev), os.minor(found.st_rdev)) if stat.S_ISCHR(found.st_mode) else None

    def rdma_names(self, pci_address: str) -> Sequence[str]:
        """Return the names of the RDMA devices of a PCI function, such as `uverbs0`; empty if there is none.

        See `DeviceFiles.rdma_names`.
        """
        if not pci_address or "/" in pci_address:
            return ()
        try:
            return [path.name for path in (self._functions / pci_address / "infiniband_verbs").iterdir()]
        except (OSError, ValueError):
            return ()
