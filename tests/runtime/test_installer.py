"""The CRI proxy is installed, upgraded and removed on a host with a real systemd and a real containerd."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from koord_criproxy.installer.bundle import PROXY_SOCKET, UNIT, UNIT_FILE
from koord_criproxy.installer.host import Host
from koord_criproxy.sockets import open_channel
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.embedded.ports import free_ports
from koordcore.events import CATALOGUE
from koordcore.events.criproxy import HookServersChanged
from koordcore.runtime_api.proxy_facts import HOST_SOCKET
from koordctl.stack.containers import missing_program
from support.agent.cri import containerd
from support.criproxy import World, agent_for_facts, link_to
from support.host_systemd import CGROUPS, HIERARCHIES, HostSystemd, host_systemd, missing_systemd
from support.install_step import FOLDER, RUNTIME
from support.kubelet import Kubelet
from support.until import DEADLINE_SECONDS, until

LACKING = missing_program() or missing_systemd()
pytestmark = [
    pytest.mark.runtime,
    pytest.mark.root,
    pytest.mark.skipif(LACKING != "", reason=LACKING),
]


@asynccontextmanager
async def looking(host: HostSystemd, *flags: str) -> AsyncGenerator[None]:
    """Run the installer as its pod does, and enter when it is ready."""
    (port,) = free_ports(1)
    words = ("-m", "koord_criproxy.installer", f"--root={host.root}", f"--http-port={port}", "--node=node-a", *flags)
    process = await asyncio.create_subprocess_exec(*host.beside(sys.executable, *words), start_new_session=True)

    async def is_ready() -> bool:
        assert process.returncode is None, "the installer has ended"
        async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE_SECONDS) as client:
            with suppress(httpx.TransportError):
                return (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
        return False

    try:
        await until(is_ready, "the host is as it shall be", seconds=120)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # nsenter does not forward signals
        await process.wait()


async def step(host: HostSystemd, *words: str) -> str:
    """Do one step of the installer and return what it said."""
    command = host.beside(sys.executable, "-m", "support.install_step", str(host.root), *words)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=subprocess.PIPE)
    return (await process.communicate())[0].decode().strip()


def shown(host: HostSystemd, name: str) -> str:
    """Return a property of the proxy's unit."""
    return host.run("systemctl", "show", "--value", f"--property={name}", UNIT).strip()


def processes(host: HostSystemd, cgroups: int, group: str) -> list[str]:
    """Return the process ids in a control group of the host, in a hierarchy of version 1 or 2."""
    hierarchy = CGROUPS / "systemd" if cgroups == 1 else CGROUPS
    return host.run("cat", f"{hierarchy}{group}/cgroup.procs").split()


def kubelet(folder: Path, socket_file: Path) -> tuple[World, Kubelet]:
    """Return a kubelet that speaks to a socket."""
    world = World(folder)
    world.channel = open_channel(str(socket_file))
    return world, Kubelet(world)


@pytest.mark.parametrize("cgroups", HIERARCHIES)
async def test_a_host_gets_the_proxy_a_new_version_of_it_and_loses_it(tmp_path: Path, cgroups: int) -> None:
    files, hosts = tmp_path / "host", tmp_path / "runtime"
    files.mkdir()
    hosts.mkdir()
    with containerd(hosts), host_systemd(files, shared=hosts, inside=str(RUNTIME.parent), cgroups=cgroups) as machine:
        host = Host(machine.root, FOLDER)
        machine.run("systemctl", "start", "systemd-journald")

        # 1. installed by the process of the pod: the kubelet's link leads to a proxy that serves containerd, and the
        # agent gets its facts
        log, socket_file = MemoryLog(), host.at(Path("/run")) / HOST_SOCKET.relative_to("/var/run")
        async with agent_for_facts(socket_file, "node-a", link_to(log)), looking(machine):
            assert host.link("cri.sock") == str(PROXY_SOCKET)
            assert machine.run("systemctl", "is-enabled", UNIT).strip() == "enabled"
            await until(lambda: log.last_seq == 1, "the fact of the proxy's start")
            (told,) = log.between(0, 1, None, 1)
            assert (CATALOGUE.read(told), told.actor) == (HookServersChanged(), "criproxy/node-a")
        world, first = kubelet(tmp_path, host.at(PROXY_SOCKET))
        await first.run_sandbox()
        await first.create()
        await first.start()
        assert str(FOLDER) in machine.run("systemctl", "show", "--property=ExecStart", UNIT)
        assert shown(machine, "MainPID") in processes(machine, cgroups, shown(machine, "ControlGroup"))

        # 2. a version that does not start: the one before runs again
        installed = host.link("confirmed")
        assert f"Version {installed} runs again" in await step(machine, "broken", "broken")
        reason = "No module named koord_criproxy"
        await until(lambda: reason in machine.run("journalctl", "-u", "koord-criproxy"), "the journal has the reason")
        assert (host.link("current"), host.link("cri.sock")) == (installed, str(PROXY_SOCKET))

        # 3. a new version: the calls of the kubelet go on
        assert await step(machine, "install", "new") == "version new runs"
        assert [path.name for path in host.version("new").parent.iterdir()] == ["new"]
        await first.remove()
        await world.channel.close()

        # 4. a kubelet whose configuration names the proxy's socket keeps it; then the proxy goes
        assert (await step(machine, "remove")).startswith(f"StillUsed: {UNIT} has 1 connections")
        assert host.link("cri.sock") == str(RUNTIME)
        async with looking(machine, "--mode=remove", "--quiet-time=0"):
            assert not host.at(UNIT_FILE).exists()
            assert machine.run("systemctl", "is-active", UNIT).strip() == "inactive"
            assert list(host.version("new").parent.iterdir()) == []
            assert host.link("cri.sock") == str(RUNTIME)
