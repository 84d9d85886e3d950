"""The composition root of device discovery: the loop, its signals, and its readiness."""

import asyncio
import os
import signal
import sys

from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell

from koord_devicediscovery.cycle import Discovery
from koord_devicediscovery.host import HostFolders, HostMachine, ToolRunner
from koord_devicediscovery.metrics import DiscoveryMetrics
from koord_devicediscovery.settings import DiscoverySettings
from koord_devicediscovery.vendors.vendor import Vendor


async def compose(shell: Shell[DiscoverySettings]) -> None:
    """SIGHUP reads the settings again, SIGQUIT ends the service."""
    settings = shell.settings
    folders = HostFolders(root=settings.host_root, sys=settings.sys_dir, dev=settings.dev_dir)
    tools = ToolRunner()
    ready = shell.health.readiness_condition("devices", "no look has ended yet")

    def machine_of(vendor: Vendor) -> HostMachine:
        return HostMachine(folders, vendor.commands, tools)

    def load() -> DiscoverySettings:
        return DiscoverySettings.load(sys.argv[1:], os.environ)

    discovery = Discovery(
        settings,
        load,
        machine_of,
        metrics=DiscoveryMetrics(shell.metrics),
        looked=ready.met,
        interrupt=tools.kill,
        watch=shell.health.watch_work("look", settings.sleep_interval),
    )

    async def run() -> None:
        await discovery.run()
        shell.service.stop("one look was asked for" if settings.oneshot else "discovery has ended")

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, discovery.reload)
    loop.add_signal_handler(signal.SIGQUIT, shell.service.stop, "SIGQUIT")
    shell.service.add(
        Component(name="discovery", run=run, stop=discovery.stop, close=discovery.close, finite=settings.oneshot)
    )
