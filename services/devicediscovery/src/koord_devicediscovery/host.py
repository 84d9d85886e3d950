"""The host: sysfs, /dev, the vendors' tools, which belong to it and not to our image, and the device file.

The file is written whole or not at all, and removed when discovery ends.

Source: runtime spec, 8.2, 8.4.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordcore.protocol.hardware.devices import PciLocation, pci_location

from koord_devicediscovery.vendors.vendor import PciFunction, ToolError, Xpu, file_content

TOOL_SECONDS: Final = 60.0
"""Real seconds after which a tool is killed."""
_NOT_FOUND: Final = 127
_KILLED: Final = -9


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFolders:
    # Root file system of the host, in which the tools run; they run without `chroot` if it does not exist.
    root: Path = Path("/hostfs")
    sys: Path = Path("/sys")  # The file system sysfs
    dev: Path = Path("/dev")  # Folder of device files


class ToolRunner:
    """Runs one tool at a time in a thread, and kills it with its children when this process is to end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: subprocess.Popen[str] | None = None
        self._is_over = False

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        """Return the status of a command, and what it prints. It runs for at most 60 s.

        Raises:
            OSError: The command cannot be run, or `kill` was called before.
            TimeoutExpired: It took too long.
        """
        with self._lock:
            if self._is_over:
                raise InterruptedError("the process ends")
            process = self._running = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        with process:
            try:
                output, _ = process.communicate(timeout=TOOL_SECONDS)
            except BaseException:
                self._kill(process)
                raise
            finally:
                with self._lock:
                    self._running = None
        return process.returncode, output

    def kill(self) -> None:
        """Kill the tool that runs, and run no other one."""
        with self._lock:
            self._is_over = True
            if self._running is not None:
                self._kill(self._running)

    @staticmethod
    def _kill(process: "subprocess.Popen[str]") -> None:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


class HostMachine:
    """The machine of this process, with the commands of one vendor (`Vendor.commands`). Implements `Machine`."""

    def __init__(self, folders: HostFolders, commands: Mapping[str, Sequence[str]], tools: ToolRunner) -> None:
        self._folders = folders
        self._commands = commands
        self._tools = tools

    def pci_functions(self) -> list[PciFunction]:
        """A function that vanishes while it is read is left out."""
        found: list[PciFunction] = []
        for folder in sorted(self._pci.glob("*")):
            vendor, product = _text(folder / "vendor"), _text(folder / "device")
            if vendor is not None and product is not None:
                found.append(PciFunction.of(vendor, product))
        return found

    def locate(self, bus_id: str) -> PciLocation | None:
        folder = self._pci / bus_id
        numa_node = _text(folder / "numa_node")
        return None if numa_node is None else pci_location(numa_node, str(folder.resolve()))

    def device_files(self) -> list[str]:
        try:
            return sorted(f"/dev/{path.name}" for path in self._folders.dev.iterdir())
        except OSError:
            return []

    def ask(self, query: str, card: int | None = None) -> str:
        """The tool belongs to the host. It may take 60 s."""
        command = [word.replace("{card}", str(card)) for word in self._commands[query]]
        shown = " ".join(command)
        inside = ["chroot", str(self._folders.root)] if self._folders.root.is_dir() else []
        try:
            status, output = self._tools.run([*inside, *command])
        except subprocess.TimeoutExpired:
            raise ToolError(shown, _KILLED, f"killed after {TOOL_SECONDS:g} s") from None
        except OSError as error:
            raise ToolError(shown, _NOT_FOUND, str(error)) from None
        if status != 0:
            raise ToolError(shown, status, output)
        return output

    @property
    def _pci(self) -> Path:
        return self._folders.sys / "bus/pci/devices"


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return None


_MODE: Final = 0o644
_SIBLING: Final = "ic-device-tmp"
"""Folder that earlier versions of the reference left beside the file."""


def write_devices(path: Path | None, devices: Sequence[Xpu]) -> None:
    """Write the list of devices. `path` None: standard output.

    The file is replaced by a rename in its folder. The temporary file begins with a dot, so the agent ignores it.

    Raises:
        OSError: The file cannot be written. The old one is unchanged.
    """
    content = file_content(devices)
    if path is None:
        sys.stdout.write(content.decode())
        sys.stdout.flush()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), _MODE)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_devices(path: Path | None) -> None:
    """Remove the file and the folder `ic-device-tmp` beside it. No-op for standard output.

    Raises:
        OSError: The file exists and cannot be removed.
    """
    if path is None:
        return
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    remove_leftovers(path)


def remove_leftovers(path: Path) -> None:
    """As far as possible."""
    shutil.rmtree(path.parent / _SIBLING, ignore_errors=True)
