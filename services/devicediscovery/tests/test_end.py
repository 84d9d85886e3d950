"""The end of the daemon while a look is in progress."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from koord_devicediscovery import cycle
from koord_devicediscovery.cycle import Discovery
from koord_devicediscovery.domain.vendors.vendor import Vendor
from koord_devicediscovery.domain.xpu import Xpu
from koord_devicediscovery.settings import DiscoverySettings
from koord_devicediscovery.shell.device_file import write_devices
from koord_devicediscovery.shell.host_machine import HostFolders, HostMachine
from koord_devicediscovery.shell.metrics import DiscoveryMetrics
from koordcore.service.health import Health
from koordcore.service.telemetry.metrics import Metrics
from support.until import until


async def test_a_write_that_is_cut_off_does_not_bring_the_file_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on, written = threading.Event(), threading.Event(), threading.Event()

    def slow(path: Path | None, devices: Sequence[Xpu]) -> None:
        began.set()
        go_on.wait(60)
        write_devices(path, devices)
        written.set()

    def machine_of(vendor: Vendor) -> HostMachine:
        return HostMachine(HostFolders(root=tmp_path / "none", sys=tmp_path, dev=tmp_path), vendor.commands)

    monkeypatch.setattr(cycle, "write_devices", slow)
    file = tmp_path / "ic-device"
    settings = DiscoverySettings.load([f"--prints-output-file={file}"], {})
    discovery = Discovery(
        settings,
        lambda: settings,
        machine_of,
        metrics=DiscoveryMetrics(Metrics("devicediscovery")),
        looked=lambda: None,
        watch=Health().watch_work("look", settings.sleep_interval),
    )
    looking = asyncio.create_task(discovery.run())
    await until(began.is_set)
    looking.cancel()
    await asyncio.wait((looking,))
    closing = asyncio.create_task(discovery.close())
    await asyncio.wait((closing,), timeout=0.1)
    go_on.set()
    await closing
    await until(written.is_set)
    assert not file.exists()
