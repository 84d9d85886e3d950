"""The loop of device discovery: look at all vendors, write the file, sleep, again.

Source: runtime spec, 8.2.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from koordcore.service.health import WorkWatch
from koordcore.service.telemetry.logging import logger

from koord_devicediscovery.host import remove_devices, remove_leftovers, write_devices
from koord_devicediscovery.inventory import Inventory, take_inventory
from koord_devicediscovery.metrics import DiscoveryMetrics
from koord_devicediscovery.settings import DiscoverySettings
from koord_devicediscovery.vendors.vendor import DiscoveryError, Machine, Vendor, Xpu

_log: Final = logger("devicediscovery")
_VERBOSE: Final = 4
"""Verbosity from which every look is logged."""


class Discovery:
    """The loop of device discovery: describes the devices of all vendors, writes the file, and sleeps.

    Args:
        load: Reads the settings again, for `reload`.
        machine_of: Returns the machine with the tool of one vendor.
        looked: Called after each run whose device file was written.
        interrupt: Ends the tool that runs, and lets all later ones fail at once.
        watch: Liveness check of a run, which hangs if a vendor's tool does.
    """

    def __init__(
        self,
        settings: DiscoverySettings,
        load: Callable[[], DiscoverySettings],
        machine_of: Callable[[Vendor], Machine],
        *,
        metrics: DiscoveryMetrics,
        looked: Callable[[], None],
        interrupt: Callable[[], None],
        watch: WorkWatch,
    ) -> None:
        self._load = load
        self._settings = settings
        self._machine_of = machine_of
        self._metrics = metrics
        self._looked = looked
        self._interrupt = interrupt
        self._watch = watch
        self._inventory = Inventory()
        self._woken = asyncio.Event()
        self._stopping = False
        self._next: DiscoverySettings | None = None
        self._replaced: list[Path] = []
        self._file_lock = threading.Lock()
        self._is_over = False

    async def run(self) -> None:
        """Describe the devices and write the file again and again until `stop` is called; with `--oneshot`, once.

        Raises:
            DiscoveryError: With `--oneshot`, a vendor's tool failed. What was found is written.
            OSError: With `--oneshot`, the file cannot be written.
        """
        while not self._stopping:
            self._woken.clear()
            self._adopt()
            with self._watch:
                await self._look_safely()
            if self._settings.oneshot:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), self._settings.sleep_interval)

    async def stop(self) -> None:
        """The present run ends without its tool, which may take longer than the end of the process."""
        self._stopping = True
        self._woken.set()
        self._interrupt()

    async def close(self) -> None:
        """Remove the device file, unless this is a run with `--oneshot`."""
        await self._remove_replaced()
        if not self._settings.oneshot:
            await asyncio.to_thread(self._remove_last, self._settings.output)

    def reload(self) -> None:
        """Read the settings again, and describe the devices with them after the present run.

        Invalid settings change nothing. The file of the earlier settings stays until a new one is written, so the agent
        never sees a node without devices meanwhile.
        """
        try:
            settings = self._load()
        except ValueError as error:
            _log.error("settings_refused", error=str(error))
            return
        self._next = settings
        _log.info("settings_loaded", settings=settings.shown())
        self._woken.set()

    def _adopt(self) -> None:
        """Take the settings that were read again, and note that the file of the earlier ones is to be removed."""
        if self._next is None:
            return
        if self._settings.output is not None:
            self._replaced.append(self._settings.output)
        self._settings, self._next = self._next, None

    async def _remove_replaced(self) -> None:
        """A file that cannot be removed is logged and given up."""
        replaced, self._replaced = self._replaced, []
        for path in replaced:
            remove = remove_leftovers if path == self._settings.output else remove_devices
            try:
                await asyncio.to_thread(remove, path)
            except OSError as error:
                _log.error("device_file_not_removed", path=str(path), error=str(error))

    def _write(self, output: Path | None, devices: Sequence[Xpu]) -> None:
        """No-op once the last file is removed: a thread goes on when its task is cancelled at the end."""
        with self._file_lock:
            if not self._is_over:
                write_devices(output, devices)

    def _remove_last(self, output: Path | None) -> None:
        """Remove the file after a write that is still in progress, and allow no other write."""
        with self._file_lock:
            self._is_over = True
            remove_devices(output)

    async def _look_safely(self) -> None:
        """Without `--oneshot`, an error that nobody expected is logged, and the next look comes as usual.

        The end of the process would remove the file, and the agent would see a node without devices.
        """
        try:
            await self._look()
        except Exception as error:
            if self._settings.oneshot:
                raise
            _log.error("look_failed", error=repr(error), exc_info=True)

    async def _look(self) -> None:
        oneshot, output = self._settings.oneshot, self._settings.output
        self._inventory = found = await asyncio.to_thread(take_inventory, self._inventory, self._machine_of)
        if self._stopping:  # its tools were interrupted
            return
        for what, why in found.errors.items():
            _log.error("discovery_failed", what=what, error=why)
        self._metrics.observe(found)
        try:
            await asyncio.to_thread(self._write, output, found.devices)
        except OSError as error:
            if oneshot:
                raise
            _log.error("device_file_not_written", path=str(output), error=str(error))
            return
        await self._remove_replaced()
        self._looked()
        if self._settings.v >= _VERBOSE or found.errors:
            _log.info("devices_written", path=str(output or "stdout"), devices=len(found.devices))
        if oneshot and found.errors:
            raise DiscoveryError("; ".join(f"{what}: {why}" for what, why in found.errors.items()))
