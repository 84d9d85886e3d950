"""Read a machine: sysfs, /dev, and the vendors' tools, which belong to the host and not to our image.

Source: runtime spec, 8.4.
"""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordcore.protocol.hardware.pci import PciLocation, pci_location

from koord_devicediscovery.domain.machine import PciFunction, ToolError

TOOL_SECONDS: Final = 60.0
"""Real seconds after which a tool is killed."""
_NOT_FOUND: Final = 127
_KILLED: Final = -9


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFolders:
    """Folders from which the machine is read.

    Attributes:
        root: Root file system of the host, in which the tools run; they run without `chroot` if it does not exist.
        sys: The file system sysfs.
        dev: Folder of device files.
    """

    root: Path = Path("/hostfs")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")


class HostMachine:
    """The machine on which this process runs, with the commands of one vendor.

    Args:
        folders: Folders from which the machine is read.
        commands: Query -> command line of the vendor's tool, as in `Vendor.commands`.
    """

    def __init__(self, folders: HostFolders, commands: Mapping[str, Sequence[str]]) -> None:
        self._folders = folders
        self._commands = commands

    def pci_functions(self) -> list[PciFunction]:
        """Return all PCI functions of sysfs. A function that vanishes while it is read is left out."""
        found: list[PciFunction] = []
        for folder in sorted(self._pci.glob("*")):
            vendor, product = _text(folder / "vendor"), _text(folder / "device")
            if vendor is not None and product is not None:
                found.append(PciFunction.of(vendor, product))
        return found

    def locate(self, bus_id: str) -> PciLocation | None:
        """Return the location of the PCI function with this address; None if sysfs does not tell it."""
        folder = self._pci / bus_id
        numa_node = _text(folder / "numa_node")
        return None if numa_node is None else pci_location(numa_node, str(folder.resolve()))

    def device_files(self) -> list[str]:
        """Return the paths of the files directly below /dev, sorted."""
        try:
            return sorted(f"/dev/{path.name}" for path in self._folders.dev.iterdir())
        except OSError:
            return []

    def ask(self, query: str, card: int | None = None) -> str:
        """Run the vendor's tool on the host and return what it prints, its error output included.

        See `Machine.ask`.

        Raises:
            ToolError: The tool is missing, ended with another status than 0, or took longer than 60 s.
        """
        command = [word.replace("{card}", str(card)) for word in self._commands[query]]
        shown = " ".join(command)
        inside = ["chroot", str(self._folders.root)] if self._folders.root.is_dir() else []
        try:
            done = subprocess.run(
                [*inside, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=TOOL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ToolError(shown, _KILLED, f"killed after {TOOL_SECONDS:g} s") from None
        except OSError as error:
            raise ToolError(shown, _NOT_FOUND, str(error)) from None
        if done.returncode != 0:
            raise ToolError(shown, done.returncode, done.stdout)
        return done.stdout

    @property
    def _pci(self) -> Path:
        return self._folders.sys / "bus/pci/devices"


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return None
