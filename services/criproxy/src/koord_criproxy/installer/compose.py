"""The composition root of the installer: it looks at the host again and again, and says so in readiness."""

import asyncio

from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell

from koord_criproxy.installer.bundle import Bundle, bundle, version_of
from koord_criproxy.installer.host import Host
from koord_criproxy.installer.settings import InstallerSettings
from koord_criproxy.installer.steps import Installer, NotStarted, StillUsed
from koord_criproxy.installer.systemd import SOCKET, Systemd, SystemdRefused


async def compose(shell: Shell[InstallerSettings]) -> None:
    """Add the loop that keeps the proxy installed, or removed."""
    settings = shell.settings
    host = Host(settings.root, settings.folder)
    installer = Installer(
        host,
        Systemd(host.at(SOCKET)),
        folder=settings.folder,
        runtime=settings.remote_runtime_service_endpoint,
        node=settings.node_name,
    )
    ready = shell.health.readiness_condition("host", "the host has not been looked at yet")
    found: Bundle = await asyncio.to_thread(bundle) if settings.mode == "install" else {}
    version = await asyncio.to_thread(version_of, found, installer.unit)

    def look() -> str:
        if settings.mode == "install":
            return installer.install(found, version)
        return installer.remove(settings.quiet_time)

    async def run() -> None:
        last = ""
        while True:
            try:
                now = await asyncio.to_thread(look)
            except (NotStarted, StillUsed, SystemdRefused, OSError) as error:
                now = str(error)
                ready.unmet(now)
            else:
                ready.met()
            if now != last:
                shell.log.info("host", mode=settings.mode, has=now)
                last = now
            await shell.clock.sleep(settings.check_interval)

    shell.service.add(Component(name="host", run=run))
