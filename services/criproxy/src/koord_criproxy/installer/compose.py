"""The composition root of the installer, with its settings: it looks at the host again and again."""

import asyncio
import re
import socket
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell
from koordcore.service.settings import Flag, Seconds, ServiceSettings
from koordcore.values.invalid import InvalidInput
from pydantic import AfterValidator, Field

from koord_criproxy.installer.bundle import Bundle, bundle, version_of
from koord_criproxy.installer.host import Host
from koord_criproxy.installer.steps import Installer, NotStarted, StillUsed
from koord_criproxy.installer.systemd import SOCKET, Systemd, SystemdRefused

_PLAIN: Final = re.compile(r"/[\w./-]+")


def _plain(path: Path) -> Path:
    if not _PLAIN.fullmatch(str(path)):
        raise InvalidInput("an absolute path of letters, digits and . _ - /", str(path))
    return path


HostPath = Annotated[Path, AfterValidator(_plain)]
"""A path that a unit file can name without quotes."""


class InstallerSettings(ServiceSettings):
    """Settings of the installer. Paths are those of the host. The installer does not use the log."""

    service: ClassVar[str] = "criproxy-installer"
    about: ClassVar[str] = (
        "Copies the CRI proxy to this host and lets systemd run it, because the kubelet needs the proxy before it can "
        "start any pod. --mode=remove leads the kubelet back to the runtime and removes the proxy."
    )

    mode: Literal["install", "remove"] = Field("install", description="Whether the host has the proxy.")
    root: Path = Field(Path("/"), description="Folder at which the file system of the host lies.")
    folder: HostPath = Field(Path("/opt/koordstream"), description="Folder of the installed versions and of cri.sock.")
    remote_runtime_service_endpoint: HostPath = Field(
        Path("/run/containerd/containerd.sock"), description="Socket of the container runtime."
    )
    node_name: Annotated[str, Flag("node")] = Field(
        default_factory=lambda: socket.gethostname().lower(),
        pattern=r"^[a-z0-9.-]+$",
        description="Name of this machine's node.",
    )
    check_interval: Seconds = Field(30.0, gt=0, description="Time between two looks at the host.")
    quiet_time: Seconds = Field(
        15.0, ge=0, description="Before a removal: time in which a kubelet that uses the proxy connects to it again."
    )


async def compose(shell: Shell[InstallerSettings]) -> None:
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
