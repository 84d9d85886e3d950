"""The keys of an installation as `koord keys` makes them, and the server that they are for."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from koordcore.bus.client.connection import (
    BusConnection,
    ConnectionSettings,
    ConnectRefused,
    NotConnected,
    TlsClientFiles,
)
from koordcore.bus.client.opening import connect
from koordcore.bus.names import BusNames
from koordcore.bus.setup.issuing import NodeTokens
from koordcore.embedded.ports import LOOPBACK, free_ports
from koordcore.embedded.server import nats_server_binary
from support.until import DEADLINE_SECONDS, until

NAMES = BusNames("prod")


def koord(*words: str, env: dict[str, str] | None = None, status: int = 0) -> str:
    """Run a command, which has to end with this status, and return what it writes."""
    done = subprocess.run(
        [sys.executable, "-m", "koordctl", *words],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stdout


async def told(url: str, cluster: str, *words: str) -> tuple[int, str]:
    """Run `koord` on a server, and return its exit status and what it printed, in one line."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "koordctl", *words],
        env={**os.environ, "KOORD_NATS": url, "KOORD_CLUSTER": cluster},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    return done.returncode, " ".join(done.stdout.split())


class Site:
    """The keys of an installation, and the server that they are for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.monitor = free_ports(2)
        self.server: subprocess.Popen[bytes] | None = None

    def create(self, *words: str) -> None:
        koord("keys", "create", str(self.folder), "--cluster", NAMES.cluster, *words)
        self.place_files()

    def place_files(self) -> None:
        """Let the configuration of the server name the folders of this machine.

        A server that reloads just now reads a whole file.
        """
        # In a container the files are mounted at /etc/nats, and the streams are in /data.
        file = self.folder / "nats" / "nats-0.conf"
        text = file.read_text().replace('"/etc/nats/', f'"{self.folder}/nats/')
        placed = file.with_suffix(".placed")
        placed.write_text(text.replace('"/data', f'"{self.folder}/data'))
        placed.replace(file)

    def start(self) -> None:
        config = str(self.folder / "nats" / "nats-0.conf")
        words = ["-c", config, "-a", LOOPBACK, "-p", str(self.port), "-m", str(self.monitor)]
        self.server = subprocess.Popen([str(nats_server_binary()), *words], stderr=subprocess.DEVNULL)

    def reload(self) -> None:
        assert self.server is not None
        self.server.send_signal(signal.SIGHUP)

    def seed(self, user: str) -> Path:
        return self.folder / user / "nats.seed"

    def settings(self, user: str, *, seed: Path | None = None) -> ConnectionSettings:
        return ConnectionSettings(
            urls=(f"tls://localhost:{self.port}",),
            user=user,
            nkey_seed_file=seed or self.seed(user),
            tls=TlsClientFiles(ca=self.folder / "nats" / "ca.crt"),
            connect_seconds=DEADLINE_SECONDS,
        )

    @asynccontextmanager
    async def connected(self, user: str, *, seed: Path | None = None) -> AsyncGenerator[BusConnection]:
        connection = await connect(self.settings(user, seed=seed))
        try:
            yield connection
        finally:
            await connection.drain_and_close()

    async def is_refused(self, user: str, seed: Path) -> bool:
        """Whether the server refuses a user with this seed. Return False if the server does not answer."""
        try:
            async with self.connected(user, seed=seed):
                return False
        except ConnectRefused:
            return True
        except NotConnected:
            return False

    def kill(self) -> None:
        """End the server."""
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"tls://localhost:{self.port}"

    def bootstrap_environment(self) -> dict[str, str]:
        """Return the environment of `koord bus bootstrap`."""
        return {
            "KOORD_CLUSTER": NAMES.cluster,
            "KOORD_NATS": self.url,
            "KOORD_NATS_SEED": str(self.seed("bootstrap")),
            "KOORD_NATS_CA": str(self.folder / "bootstrap" / "ca.crt"),
        }


class IssuingSite(Site):
    """A server with the configuration of `koord keys create --issuer`."""

    @property
    def tokens(self) -> NodeTokens:
        """What makes and checks tokens of nodes."""
        return NodeTokens(self.folder / "issuer", NAMES.cluster)

    @asynccontextmanager
    async def as_agent(self, node: str, token: str | Callable[[], str]) -> AsyncGenerator[BusConnection]:
        """A connection of the agent of a node with a token, which lies in the file `<node>.token`.

        If the issuer does not answer the server in time, the server refuses the agent. So the agent tries again.

        Args:
            node: Name of the node.
            token: The token, or a function that returns a new one for each attempt.
        """

        async def admitted() -> BusConnection | None:
            try:
                return await self._connect_agent(node, token if isinstance(token, str) else token())
            except (ConnectRefused, NotConnected):
                return None

        connection = await until(admitted, every=0.1)
        try:
            yield connection
        finally:
            await connection.drain_and_close()

    async def refuses(self, node: str, token: str) -> bool:
        """Whether the server refuses an agent with this token. Return False if the server does not answer."""
        try:
            connection = await self._connect_agent(node, token)
        except ConnectRefused:
            return True
        except NotConnected:
            return False
        await connection.drain_and_close()
        return False

    async def admits(self, node: str, token: str) -> bool:
        """Whether the server admits an agent with this token. Return False if the server does not answer."""
        try:
            connection = await self._connect_agent(node, token)
        except (ConnectRefused, NotConnected):
            return False
        await connection.drain_and_close()
        return True

    async def _connect_agent(self, node: str, token: str) -> BusConnection:
        file = self.folder / f"{node}.token"
        file.write_text(token)
        plain = self.settings(f"agent-{node}", seed=file)
        return await connect(replace(plain, nkey_seed_file=None, token_file=file))
