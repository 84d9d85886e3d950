"""The loop of the daemon when it is stopped in a look, and when a look fails."""

import asyncio
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from koord_devicediscovery import cycle
from koord_devicediscovery.cycle import Discovery
from koord_devicediscovery.host import HostFolders, HostMachine, ToolRunner, write_devices
from koord_devicediscovery.inventory import take_inventory
from koord_devicediscovery.metrics import DiscoveryMetrics
from koord_devicediscovery.settings import DiscoverySettings
from koord_devicediscovery.vendors.vendor import Vendor, Xpu
from koordcore.service.health import Health
from koordcore.service.telemetry.metrics import Metrics
from support.until import DEADLINE_SECONDS, until


def discovery_of(folder: Path, *flags: str) -> Discovery:
    """Return the loop on a machine without cards."""

    tools = ToolRunner()

    def machine_of(vendor: Vendor) -> HostMachine:
        return HostMachine(HostFolders(root=folder / "none", sys=folder, dev=folder), vendor.commands, tools)

    settings = DiscoverySettings.load(flags, {})
    return Discovery(
        settings,
        lambda: settings,
        machine_of,
        metrics=DiscoveryMetrics(Metrics("devicediscovery")),
        looked=lambda: None,
        interrupt=tools.kill,
        watch=Health().watch_work("look", settings.sleep_interval),
    )


async def test_a_write_that_is_cut_off_does_not_bring_the_file_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on, written = threading.Event(), threading.Event(), threading.Event()

    def slow(path: Path | None, devices: Sequence[Xpu]) -> None:
        began.set()
        go_on.wait(DEADLINE_SECONDS)
        write_devices(path, devices)
        written.set()

    monkeypatch.setattr(cycle, "write_devices", slow)
    file = tmp_path / "ic-device"
    discovery = discovery_of(tmp_path, f"--prints-output-file={file}")
    looking = asyncio.create_task(discovery.run())
    await until(began.is_set)
    looking.cancel()
    await asyncio.wait((looking,))
    closing = asyncio.create_task(discovery.close())

    def is_waiting() -> bool:
        assert not closing.done(), "the removal ended before the write"
        frames = sys._current_frames().values()  # pyright: ignore[reportPrivateUsage]
        return any(frame.f_code.co_name == "_remove_last" for frame in frames)

    await until(is_waiting, "the removal waits for the write")
    go_on.set()
    await closing
    await until(written.is_set)
    assert not file.exists()


async def test_a_look_that_fails_ends_the_loop_only_with_oneshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        monkeypatch.setattr(cycle, "take_inventory", take_inventory)
        raise RuntimeError("can't start new thread")

    file = tmp_path / "ic-device"
    monkeypatch.setattr(cycle, "take_inventory", no_room)
    discovery = discovery_of(tmp_path, f"--prints-output-file={file}", "--sleep-interval=1ms")
    looking = asyncio.create_task(discovery.run())
    await until(file.exists, check=lambda: looking.done() and looking.result())
    await discovery.stop()
    await looking
    await discovery.close()
    monkeypatch.setattr(cycle, "take_inventory", no_room)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await discovery_of(tmp_path, f"--prints-output-file={file}", "--oneshot").run()
