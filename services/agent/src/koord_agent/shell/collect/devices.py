"""Devices of a machine: read from the description files of vendors' tools, reported when they changed.

Source: runtime spec, 9.2; agent spec, 4.8.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from koordcore.events.agents.nodestate import DeviceInventoryChanged
from koordcore.values import codec

from koord_agent.domain.kernel.devices import DeviceReport, Xpu, report_devices, xpu_of
from koord_agent.domain.reporting.device_report import KEPT_MS, device_inventory, without_health
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

    def read(self) -> DeviceReport:
        """Return the devices of all files, in the order of their names. A missing folder has no devices."""
        try:
            files = sorted(path for path in self._folder.iterdir() if path.is_file() and path.name[0] != ".")
        except OSError:
            files = []
        self._good = {path.name: found for path in files if (found := self._content(path)) is not None}
        return report_devices([xpu for xpus, _ in self._good.values() for xpu in xpus])

    def _content(self, path: Path) -> tuple[list[Xpu], int] | None:
        try:
            entries = codec.decode(path.read_bytes(), list[Any])
            return [xpu_of(entry) for entry in entries], 0
        except (OSError, codec.DecodeError):
            known, failures = self._good.get(path.name, ([], CYCLES_KEPT))
            return (known, failures + 1) if failures < CYCLES_KEPT else None


class DeviceReporter:
    """Says which devices a node has. Owned by its agent, not shared."""

    def __init__(self, read: ReadDevices, *, said: str = "", sync_ms: int = SYNC_EVERY_MS) -> None:
        """Begin to report.

        Args:
            read: Reads the devices.
            said: Digest of the last report, of an earlier process. "" means none.
            sync_ms: Milliseconds between two readings.
        """
        self._read = read
        self._said = said
        self._sync_ms = sync_ms
        self._due_ms: int | None = None
        self._found: DeviceReport | None = None
        self._last: DeviceInventoryChanged | None = None
        self._seen_ms = 0

    def report(self, now_ms: int) -> DeviceInventoryChanged | None:
        """Read the devices if it is due, and return the report if it differs from the last one.

        If all devices vanish, the last ones are reported as not healthy for ten minutes before the report is empty.

        Args:
            now_ms: Time in milliseconds.
        """
        if self._due_ms is not None and self._due_ms - self._sync_ms <= now_ms < self._due_ms:
            return None
        self._due_ms = now_ms + self._sync_ms
        if self._last is None and not self._seen_ms:
            self._seen_ms = now_ms
        found = self._read()
        if found is self._found and found.devices:
            self._seen_ms = now_ms
            return None
        self._found = found
        report = device_inventory(found)
        if report.devices:
            self._last, self._seen_ms = report, now_ms
        elif not self._said:
            return None  # a node without devices says nothing
        elif now_ms - self._seen_ms < KEPT_MS:
            if self._last is None:
                return None  # the last report is of an earlier process
            report = without_health(self._last)
        digest = report_digest(report)
        if digest == self._said:
            return None
        self._said = digest
        return report
