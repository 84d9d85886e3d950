"""Run the containers of pods as processes of this machine, each with an own view of its files and network.

A container is a process in a mount namespace. Its root is an overlay of this machine's root, so the programs of this
machine stand in for the images. Its volumes are mounted where the manifest says. A pod has a network namespace and an
address on a bridge. Must run as root, in namespaces of its own (`measure_installation`).
"""

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from koordcore.embedded.server import nats_server_binary

Json = dict[str, Any]

GATEWAY: Final = "10.77.0.1"
"""Address of this machine, and so of the API server, on the bridge."""
_BRIDGE: Final = "koord0"
POSTGRES_PROGRAMS: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
"""Debian's packages of Postgres: that of the wheel has no TLS."""
_PROGRAMS: Final = (Path(sys.executable).parent, nats_server_binary().parent, *POSTGRES_PROGRAMS[-1:])
_PATH: Final = ":".join((*map(str, _PROGRAMS), "/usr/sbin", "/usr/bin", "/sbin", "/bin"))
POSTGRES: Final = """\
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb -D "$PGDATA" -U postgres -A trust -E UTF8 --locale=C >/dev/null
  printf '%s\\n' "CREATE ROLE $POSTGRES_USER LOGIN SUPERUSER PASSWORD '$POSTGRES_PASSWORD';" \
    "CREATE DATABASE $POSTGRES_DB OWNER $POSTGRES_USER;" | postgres --single -D "$PGDATA" postgres >/dev/null
fi
exec postgres -D "$PGDATA" -c listen_addresses='*' "$@"
"""
"""What the entry point of the image does with its arguments, in few lines."""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def make_bridge() -> None:
    """Make the network of the pods. Its names live in this mount namespace only."""
    _run("mount", "-t", "tmpfs", "run", "/run")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", _BRIDGE, "type", "bridge")
    _run("ip", "address", "add", f"{GATEWAY}/24", "dev", _BRIDGE)
    _run("ip", "link", "set", _BRIDGE, "up")


def make_network(number: int) -> str:
    """Make the network namespace `pod<number>` and return its address."""
    name, address = f"pod{number}", f"10.77.0.{number}"
    _run("ip", "netns", "add", name)
    _run("ip", "link", "add", f"veth{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
    _run("ip", "link", "set", f"veth{number}", "master", _BRIDGE, "up")
    for words in (("link", "set", "lo", "up"), ("address", "add", f"{address}/24", "dev", "eth0")):
        _run("ip", "-n", name, *words)
    _run("ip", "-n", name, "link", "set", "eth0", "up")
    return address


@dataclass(kw_only=True)
class Container:
    """One container of a pod.

    Attributes:
        spec: Its part of the pod's specification.
        network: Name of the pod's network namespace.
        folder: Folder of its files and its log.
        mounts: Path in the container -> folder or file on this machine.
        env: Environment, complete.
        user: Its user where this machine's programs need one, or None for root.
    """

    spec: Json
    network: str
    folder: Path
    mounts: Mapping[str, Path]
    env: Mapping[str, str]
    user: int | None = None
    process: asyncio.subprocess.Process | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """Name of the container."""
        return str(self.spec["name"])

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.returncode is None

    def _argv(self) -> list[str]:
        words = [*self.spec.get("command", ()), *self.spec.get("args", ())]
        if self.spec["image"].startswith("postgres:"):
            words[-1] = words[-1].replace(" -o postgres", "").replace("exec docker-entrypoint.sh postgres", "set --")
            words[-1] = words[-1].replace("$$", "$") + POSTGRES  # the kubelet also reads $$ as $
        for name, value in self.env.items():
            words = [word.replace(f"$({name})", value) for word in words]
        return words if self.user is None else ["setpriv", f"--reuid={self.user}", "--clear-groups", *words]

    def _script(self) -> str:
        root = self.folder / "root"
        lines = [
            "set -e",
            f"mount -t overlay overlay -o lowerdir=/,upperdir={self.folder}/upper,workdir={self.folder}/work {root}",
            *(f"mount --rbind /{name} {root}/{name}" for name in ("proc", "dev", "sys")),
        ]
        for place, source in self.mounts.items():
            make = "mkdir -p" if source.is_dir() else "touch"
            # The path may lead through absolute links such as /var/run, so it is resolved inside of the new root.
            lines += [
                f"place=$(chroot {root} sh -c '{make} {place} && realpath {place}')",
                f"mount --bind {source} {root}$place",
            ]
        variables = shlex.join(f"{name}={value}" for name, value in self.env.items())
        return "\n".join([*lines, f"exec chroot {root} env -i {variables} {shlex.join(self._argv())}"])

    async def start(self) -> None:
        """Start its process."""
        for name in ("root", "upper", "work"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        command = ("ip", "netns", "exec", self.network, "unshare", "--mount", "sh", "-c", self._script())
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, start_new_session=True
            )

    async def ended(self) -> int:
        """Wait for the end of its process and return the exit status."""
        assert self.process is not None
        return await self.process.wait()

    async def executes(self, command: Sequence[str]) -> bool:
        """Whether a command inside of the container succeeds."""
        assert self.process is not None
        target = ("nsenter", f"--target={self.process.pid}", "--mount", "--net", "--root", "--wd=/")
        environment = {**os.environ, "PATH": _PATH}
        quiet = asyncio.subprocess.DEVNULL
        done = await asyncio.create_subprocess_exec(*target, *command, env=environment, stdout=quiet, stderr=quiet)
        return await done.wait() == 0

    def kill(self) -> None:
        """Kill its process, if it runs."""
        if self.is_running:
            assert self.process is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


def environment(pairs: Mapping[str, str], server_port: int) -> dict[str, str]:
    """Return the environment of a container.

    Args:
        pairs: Variables of the manifest.
        server_port: Port of the API server.
    """
    api = {"KUBERNETES_SERVICE_HOST": GATEWAY, "KUBERNETES_SERVICE_PORT": str(server_port)}
    return {"PATH": _PATH, "HOME": "/tmp", **api, **pairs}
