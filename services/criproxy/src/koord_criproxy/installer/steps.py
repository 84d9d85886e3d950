"""The steps of an installation and of a removal. Each step may be interrupted and repeated, with the same result.

Install: copy the version, write the unit, point the link `current` to the version, and start it. When it has started,
point the kubelet's link to it. If it does not start, start the version before again.

Remove: point the kubelet's link to the runtime, and end the kubelet's connections. If nobody connects to the proxy any
more, stop and delete it. A kubelet whose configuration names the proxy's own socket would lose its runtime; then the
proxy stays.
"""

import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Final, Protocol

from koord_criproxy.installer import bundle
from koord_criproxy.installer.bundle import PROXY_SOCKET, UNIT, UNIT_FILE, installed_unit
from koord_criproxy.installer.host import Host
from koord_criproxy.installer.systemd import UnitState

NO_CLIENTS: Final = "0 connections"
"""Status of a proxy that nobody uses (`koord_criproxy.cri.server`)."""


class Units(Protocol):
    """Operations on systemd units. If systemd does not answer, they raise SystemdRefused. `Systemd` implements it."""

    def reload(self) -> None:
        """Read the unit files again."""
        ...

    def enable(self, unit: str) -> None:
        """Let systemd start a unit at each start of the host."""
        ...

    def disable(self, unit: str) -> None:
        """Stop systemd from starting a unit at the start of the host."""
        ...

    def restart(self, unit: str) -> UnitState:
        """Start a unit, or start it again, and return its state when it has started or failed."""
        ...

    def stop(self, unit: str) -> None:
        """Stop a unit and wait until it has ended."""
        ...

    def state(self, unit: str) -> UnitState:
        """Return the state of a unit."""
        ...


class NotStarted(Exception):
    """The proxy does not start. The message tells what runs instead: the version before, or the runtime."""


class StillUsed(Exception):
    """The kubelet still uses the proxy's own socket, so the proxy cannot be removed."""


class Installer:
    """Installs and removes the proxy on one host. Paths are those of the host.

    `install` and `remove` raise SystemdRefused if systemd does not answer, and OSError if a file cannot be written.
    """

    def __init__(self, host: Host, units: Units, *, folder: Path, runtime: Path, node: str) -> None:
        self._host, self._units = host, units
        self._runtime = runtime
        shipped = files("koord_criproxy.installer").joinpath(UNIT).read_text(encoding="utf-8")
        self.unit = installed_unit(shipped, folder=folder, runtime=runtime, node=node)  # Text of the unit
        self._refused: str | None = None

    def install(self, found: bundle.Bundle, version: str) -> str:
        """Install a version unless it runs with the present unit, and return what the host has now.

        Raises:
            NotStarted: The version does not start. If an earlier version runs instead, this process does not try the
                new one again.
        """
        host, units = self._host, self._units
        before = host.link("confirmed")
        if version == self._refused:
            raise NotStarted(f"version {version} did not start; version {before} runs")
        if not host.version(version).exists():
            bundle.copy(found, host.version(version))
        if before == version and not host.has(UNIT_FILE, self.unit):
            host.unlink("confirmed")  # so that an interrupted installation starts it with the new unit, too
            before = None
        if host.write(UNIT_FILE, self.unit) or before != version:
            units.reload()
        units.enable(UNIT)
        host.lead("current", version)
        if before != version or units.state(UNIT).active != "active":
            state = units.restart(UNIT)
            if state.active != "active":
                self._back(version, before)
        host.lead("confirmed", version)
        host.lead("cri.sock", PROXY_SOCKET)
        host.forget_versions(version)
        return f"version {version} runs"

    def _back(self, version: str, before: str | None) -> None:
        """Let the version before run again, or the runtime serve the kubelet."""
        if before is None or before == version:
            self._host.lead("cri.sock", self._runtime)
            raise NotStarted(f"version {version} does not start: journalctl -u {UNIT}. cri.sock leads to the runtime")
        self._refused = version
        self._host.lead("current", before)
        self._units.restart(UNIT)
        raise NotStarted(f"version {version} does not start: journalctl -u {UNIT}. Version {before} runs again")

    def remove(self, quiet_seconds: float, pause: Callable[[float], None] = time.sleep) -> str:
        """Remove the proxy if the kubelet does not use it any more, and return what the host has now.

        `quiet_seconds`: time in which a kubelet that uses the proxy connects to it again.

        Raises:
            StillUsed: Somebody is connected to the proxy's own socket.
        """
        host, units = self._host, self._units
        host.lead("cri.sock", self._runtime)
        if not host.at(UNIT_FILE).exists():
            host.forget_versions()
            return "no proxy"
        state = units.state(UNIT)
        if state.active == "active":
            if host.link("confirmed") is not None:
                units.restart(UNIT)  # connections through the link end, and begin again at the runtime
                host.unlink("confirmed")
            pause(quiet_seconds)
            state = units.state(UNIT)
            if state.active == "active" and state.status != NO_CLIENTS:
                raise StillUsed(
                    f"{UNIT} has {state.status or 'no count of its connections'}: let the kubelet use {self._runtime}, "
                    "and restart it"
                )
        units.stop(UNIT)
        units.disable(UNIT)
        host.at(UNIT_FILE).unlink()
        units.reload()
        host.forget_versions()
        return "no proxy"
