"""Read the devices of a machine and their users, and report the devices when they have changed.

PCI functions come from sysfs, the containers of processes from the names of their cgroups.

Source: runtime spec, 9.2, 9.3; agent spec, 4.8, 6.12.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from koordcore.events.nodestate import DeviceInventoryChanged, ReportedDevice
from koordcore.protocol import keys
from koordcore.protocol.hardware.devices import PciLocation, pci_location
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339

from koord_agent.domain.devices.device import KEPT_MS, Device, DeviceReport, device_inventory, with_vanished
from koord_agent.domain.devices.hardware import NETWORK_CLASS, NetworkFunction, rdma_device
from koord_agent.domain.devices.xpu import Xpu, report_devices, xpu_of
from koord_agent.domain.failure import failure
from koord_agent.domain.kernel.counters import whole_number
from koord_agent.domain.metrics.gpu_usage import GpuOwner
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.reporting.topology_report import report_digest
from koord_agent.shell.host.kernel_files import read_kernel_file

ReadDevices = Callable[[], DeviceReport]
"""Returns the devices that a machine has now; the same object if nothing changed for certain."""
SYNC_EVERY_MS: Final = 3_000
CYCLES_KEPT: Final = 3
"""Cycles during which the last good content of a file counts that cannot be read."""


class XpuFolder:
    """The folder into which vendors' tools write one JSON list of devices each.

    A file that cannot be read is skipped. Its last good content counts for three cycles, so that a half-written file
    does not remove its devices. Names that begin with a dot are temporary files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._good: dict[str, tuple[list[Xpu], int]] = {}

    def read(self) -> list[Xpu]:
        """In the order of the files' names. A missing folder has no devices."""
        try:
            files = sorted(path for path in self._folder.iterdir() if path.is_file() and path.name[0] != ".")
        except OSError:
            files = []
        self._good = {path.name: found for path in files if (found := self._content(path)) is not None}
        return [xpu for xpus, _ in self._good.values() for xpu in xpus]

    def _content(self, path: Path) -> tuple[list[Xpu], int] | None:
        try:
            entries = codec.decode(path.read_bytes(), list[Any])
            return [xpu_of(entry) for entry in entries], 0
        except (OSError, codec.DecodeError):
            known, failures = self._good.get(path.name, ([], CYCLES_KEPT))
            return (known, failures + 1) if failures < CYCLES_KEPT else None


class MachineDevices:
    """Finds the devices of a real machine: in description files, else NVIDIA GPUs through NVML; and RDMA functions.

    Args:
        gpus: Returns the NVIDIA GPUs, for a machine without description files; None: NVML is not asked.
        rdma: Returns the RDMA functions; None: they are not collected.
    """

    def __init__(
        self, folder: XpuFolder, *, gpus: ReadDevices | None = None, rdma: Callable[[], Sequence[Device]] | None = None
    ) -> None:
        self._folder = folder
        self._gpus = gpus
        self._rdma = rdma

    def read(self) -> DeviceReport:
        xpus = self._folder.read()
        report = report_devices(xpus) if xpus or self._gpus is None else self._gpus()
        if self._rdma is None:
            return report
        return DeviceReport.of((*report.devices, *self._rdma()), labels=report.labels, partitions=report.partitions)


class DeviceReporter:
    """Reads the devices of one node, and reports them when they change. Only the node's agent uses it.

    Args:
        said: Digest of the last report before the start; "" for none.
        sync_ms: Milliseconds between two readings.
    """

    def __init__(self, read: ReadDevices, *, said: str = "", sync_ms: int = SYNC_EVERY_MS) -> None:
        self.problem = ""  # Why the last reading failed; "" if it succeeded
        self._read = read
        self._said = said
        self._sync_ms = sync_ms
        self._due_ms: int | None = None
        self._began_ms: int | None = None
        self._found: DeviceReport | None = None
        self._last = DeviceInventoryChanged(devices=[])
        self._seen: dict[str, tuple[ReportedDevice, int]] = {}

    def report(self, now_ms: int) -> DeviceInventoryChanged | None:
        """Read the devices if it is due, and return the fact about them if it differs from the last one.

        Otherwise return None. A device that vanishes is reported as not healthy for ten minutes, and then left out. The
        annotations of the fact have the time at which the devices were found (runtime spec, 11). A node that never had
        devices reports nothing. If reading fails, nothing changes, and `problem` says so until a reading succeeds.
        """
        if self._due_ms is not None and self._due_ms - self._sync_ms <= now_ms < self._due_ms:
            return None
        self._due_ms = now_ms + self._sync_ms
        if self._began_ms is None:
            self._began_ms = now_ms
        try:
            found = self._read()
        except Exception as error:  # noqa: BLE001 - the answer of a driver or a tool never ends the cycle of a node
            self.problem = failure("", error)
            return None
        self.problem = ""
        if found is self._found and len(found.devices) == len(self._seen) > 0:
            self._seen = {key: (device, now_ms) for key, (device, _) in self._seen.items()}
            return None
        self._found = found
        report = self._with_vanished(device_inventory(found), now_ms)
        if not report.devices:
            if not self._said:
                return None  # a node without devices reports nothing
            if not self._last.devices and now_ms - self._began_ms < KEPT_MS:
                return None  # the devices of an earlier process may come back
        self._last = report
        digest = report_digest(report)
        if digest == self._said:
            return None
        self._said = digest
        found_at = rfc3339(datetime.fromtimestamp(now_ms / 1000, UTC))
        annotations = {**report.annotations, keys.DEVICE_DISCOVERY_TIMESTAMP: found_at}
        return msgspec.structs.replace(report, annotations=annotations)

    def _with_vanished(self, report: DeviceInventoryChanged, now_ms: int) -> DeviceInventoryChanged:
        """Note what was seen, and return the report with the devices that vanished less than ten minutes ago."""
        self._seen.update((device.key, (device, now_ms)) for device in report.devices)
        self._seen = {key: seen for key, seen in self._seen.items() if now_ms - seen[1] < KEPT_MS}
        vanished = {key: device for key, (device, seen_ms) in self._seen.items() if seen_ms != now_ms}
        if vanished and not report.devices:
            report = msgspec.structs.replace(report, labels=self._last.labels, annotations=self._last.annotations)
        return with_vanished(report, vanished)


class PciBus:
    def __init__(self, sys: Path) -> None:
        self._functions = sys / "bus" / "pci" / "devices"

    def locate(self, bus_id: str) -> PciLocation | None:
        """The PCI address is in lower case. None if sysfs does not tell the location."""
        folder = self._functions / bus_id
        numa_node = _text(folder / "numa_node")
        return None if numa_node is None else pci_location(numa_node, str(folder.resolve()))

    def rdma_devices(self) -> Sequence[Device]:
        """In the order of their addresses."""
        try:
            folders = sorted(self._functions.iterdir())
        except OSError:
            return ()
        functions = (_network_function(folder) for folder in folders)
        found = (rdma_device(each, self.locate(each.bus_id)) for each in functions if each is not None)
        return tuple(device for device in found if device is not None)


def _network_function(folder: Path) -> NetworkFunction | None:
    """None for anything but a network controller with RDMA names."""
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


def owners_of(pids: Iterable[int], pods: Iterable[AgentPod], proc: Path) -> dict[int, GpuOwner]:
    """Process -> its container. Processes outside of known containers are left out."""
    wanted = sorted(pids)
    if not wanted:
        return {}
    owners = {
        container.container_id.rpartition("/")[2]: GpuOwner(pod.uid, container.container_id)
        for pod in pods
        for container in pod.created
    }
    found: dict[int, GpuOwner] = {}
    for pid in wanted:
        text = read_kernel_file(str(proc / str(pid) / "cgroup")) or ""
        owner = next((owners[name] for name in _cgroup_names(text) if name in owners), None)
        if owner is not None:
            found[pid] = owner
    return found


def _cgroup_names(text: str) -> list[str]:
    """The names of all directories in /proc/<pid>/cgroup, without what systemd puts around the id."""
    parts = (part for line in text.splitlines() for part in line.rpartition(":")[2].split("/"))
    return [part.removesuffix(".scope").rpartition("-")[2] for part in parts if part]
