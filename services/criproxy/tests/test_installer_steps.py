"""Installing and removing the proxy: an interruption after any step changes nothing about the end."""

from collections.abc import Callable
from pathlib import Path

import pytest
from koord_criproxy.installer.bundle import PROGRAM, PROXY_SOCKET, UNIT_FILE
from koord_criproxy.installer.host import Host
from koord_criproxy.installer.steps import NO_CLIENTS, Installer, NotStarted, StillUsed
from koord_criproxy.installer.systemd import UnitState

FOLDER = Path("/opt/koordstream")
RUNTIME = Path("/run/containerd/containerd.sock")
BROKEN = "broken"


class Interrupted(Exception):
    """The installer's process ends."""


class Units:
    """A systemd that remembers which version it started. It ends the installer at one of its calls."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.running: str | None = None
        self.enabled = False
        self.status = NO_CLIENTS
        self.calls_left = 1_000

    def _count(self, effect: Callable[[], None]) -> None:
        """Do the effect; the process ends before the last call that is left, or after it."""
        self.calls_left -= 1
        if self.calls_left == 0:
            raise Interrupted
        effect()
        if self.calls_left == 1:
            self.calls_left = 0
            raise Interrupted

    def reload(self) -> None:
        self._count(lambda: None)

    def enable(self, unit: str) -> None:
        self._count(lambda: setattr(self, "enabled", True))

    def disable(self, unit: str) -> None:
        self._count(lambda: setattr(self, "enabled", False))

    def restart(self, unit: str) -> UnitState:
        self._count(lambda: setattr(self, "running", self.host.link("current")))
        return self.state(unit)

    def stop(self, unit: str) -> None:
        self._count(lambda: setattr(self, "running", None))

    def state(self, unit: str) -> UnitState:
        is_active = self.running not in (None, BROKEN)
        return UnitState("active" if is_active else "failed", self.status if is_active else "")


class Machine:
    """A host in a folder, with the files of a proxy."""

    def __init__(self, root: Path) -> None:
        self.host = Host(root, FOLDER)
        self.host.at(UNIT_FILE).parent.mkdir(parents=True)
        file = root / "file"
        file.touch()
        self.files = {"python/bin/python3": file}
        self.units = Units(self.host)

    def installer(self, runtime: Path = RUNTIME) -> Installer:
        """Return an installer as its process begins."""
        return Installer(self.host, self.units, folder=FOLDER, runtime=runtime, node="node-a")

    def install(self, version: str, runtime: Path = RUNTIME) -> None:
        self.installer(runtime).install(self.files, version)

    def remove(self) -> None:
        self.installer().remove(0, lambda _: None)

    def interrupted(self, action: Callable[[], None], calls: int) -> bool:
        """Whether an action was interrupted after so many calls of systemd; then it is repeated."""
        self.units.calls_left = calls
        try:
            action()
        except Interrupted:
            self.units.calls_left = 1_000
            action()
            return True
        return False

    @property
    def seen(self) -> tuple[str | None, str | None, str | None, str | None, bool, list[str]]:
        """What runs, what the links say, whether the unit is enabled, and the installed versions."""
        links = [self.host.link(name) for name in ("current", "confirmed", "cri.sock")]
        versions = [path.name for path in self.host.version("x").parent.glob("*") if (path / PROGRAM).exists()]
        return self.units.running, links[0], links[1], links[2], self.units.enabled, versions


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A host without a proxy."""
    return Machine(tmp_path)


@pytest.mark.parametrize("calls", range(1, 8))
def test_an_interrupted_installation_and_upgrade_end_as_without_interruption(machine: Machine, calls: int) -> None:
    for version in ("one", "two"):
        machine.interrupted(lambda version=version: machine.install(version), calls)

        assert machine.seen == (version, version, version, str(PROXY_SOCKET), True, [version])


@pytest.mark.parametrize("calls", range(1, 8))
def test_an_interrupted_removal_ends_without_the_proxy(machine: Machine, calls: int) -> None:
    machine.install("one")

    machine.interrupted(machine.remove, calls)

    assert machine.seen == (None, None, None, str(RUNTIME), False, [])
    assert not machine.host.at(UNIT_FILE).exists()


def test_the_interruptions_reach_every_call(machine: Machine) -> None:
    assert machine.interrupted(lambda: machine.install("one"), 4)
    assert machine.interrupted(machine.remove, 5)
    assert not machine.interrupted(machine.remove, 6)


def test_an_installed_version_is_not_started_again(machine: Machine) -> None:
    machine.install("one")
    machine.units.running = "as it was"

    machine.install("one")

    assert machine.units.running == "as it was"


@pytest.mark.parametrize("calls", range(1, 8))
def test_an_installed_version_is_started_again_if_its_unit_has_changed(machine: Machine, calls: int) -> None:
    machine.install("one")
    machine.units.running = "with the unit before"
    crio = Path("/run/crio/crio.sock")

    machine.interrupted(lambda: machine.install("one", crio), calls)

    assert str(crio) in machine.host.at(UNIT_FILE).read_text()
    assert machine.seen == ("one", "one", "one", str(PROXY_SOCKET), True, ["one"])


def test_a_version_that_does_not_start_gives_way_to_the_one_before_and_is_not_tried_again(machine: Machine) -> None:
    machine.install("one")
    installer = machine.installer()
    with pytest.raises(NotStarted, match="Version one runs again"):
        installer.install(machine.files, BROKEN)
    machine.units.running = "as it was"

    with pytest.raises(NotStarted, match="version one runs"):
        installer.install(machine.files, BROKEN)

    assert machine.units.running == "as it was"
    assert (machine.host.link("current"), machine.host.link("cri.sock")) == ("one", str(PROXY_SOCKET))


def test_a_first_version_that_does_not_start_leaves_the_kubelet_at_the_runtime(machine: Machine) -> None:
    with pytest.raises(NotStarted, match=r"cri\.sock leads to the runtime"):
        machine.install(BROKEN)

    assert machine.host.link("cri.sock") == str(RUNTIME)


@pytest.mark.parametrize("status", ["1 connections", ""])
def test_a_proxy_with_clients_or_of_unknown_use_stays(machine: Machine, status: str) -> None:
    machine.install("one")
    machine.units.status = status

    with pytest.raises(StillUsed, match=r"let the kubelet use /run/containerd/containerd\.sock"):
        machine.remove()

    assert (machine.units.running, machine.host.at(UNIT_FILE).exists()) == ("one", True)
