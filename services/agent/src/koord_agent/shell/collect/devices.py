"""Read the devices of a machine, and report them when they have changed.

Source: runtime spec, 9.2; agent spec, 4.8.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from koordcore.events.nodestate import DeviceInventoryChanged, ReportedDevice
from koordcore.protocol import keys
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339

from koord_agent.domain.devices.device import Device, DeviceReport
from koord_agent.domain.devices.inventory import KEPT_MS, device_inventory, with_vanished
from koord_agent.domain.devices.xpu import Xpu, report_devices, xpu_of
from koord_agent.domain.failure import failure
from koord_agent.domain.reporting.topology_report import report_digest

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
        """Return the devices that all files describe, in the order of the files' names. A missing folder has none."""
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
        folder: Description files of vendors' tools.
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
        """Return the devices that the machine has now."""
        xpus = self._folder.read()
        report = report_devices(xpus) if xpus or self._gpus is None else self._gpus()
        if self._rdma is None:
            return report
        return DeviceReport.of((*report.devices, *self._rdma()), labels=report.labels, partitions=report.partitions)


class DeviceReporter:
    """Reads the devices of one node, and reports them when they change. Only the node's agent uses it.

    Args:
        read: Returns the devices that the machine has now.
        said: Digest of the last report before the start; "" for none.
        sync_ms: Milliseconds between two readings.

    Attributes:
        problem: Why the last reading failed; "" if it succeeded.
    """

    def __init__(self, read: ReadDevices, *, said: str = "", sync_ms: int = SYNC_EVERY_MS) -> None:
        self.problem = ""
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

        Args:
            now_ms: Time in milliseconds.
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
