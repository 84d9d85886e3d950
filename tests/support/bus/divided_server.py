"""A NATS server on which agents have an account of their own, and their facts reach the intake of the manager."""

import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, bus_on
from koordcore.bus.names import BusNames
from koordcore.bus.setup.bootstrap import bootstrap
from koordcore.bus.setup.manifest import BOOTSTRAP, MANAGER, OPERATOR, agent
from koordcore.bus.setup.principals import nats_users, seed_file
from koordcore.bus.setup.streams import StreamSizes, streams
from koordcore.embedded.nats_config import ACCOUNT, NatsServerConfig, render
from koordcore.embedded.ports import LOOPBACK, free_ports
from koordcore.embedded.server import nats_server_binary
from support.bus.log_worlds import FAST
from support.until import DEADLINE_SECONDS

AGENTS = "AGENTS"


class DividedServer:
    """The server with users for the manager, the operator, and the agents of some nodes.

    Args:
        nodes: Subject tokens of the nodes.
    """

    def __init__(self, directory: Path, names: BusNames, nodes: tuple[str, ...]) -> None:
        self.names, self.keys = names, directory / "keys"
        self._directory = directory
        self._agents = tuple(agent(node, name=f"agent-{node}", for_proxy=True) for node in nodes)
        self.port, self._monitor = free_ports(2)
        self.url = f"nats://{LOOPBACK}:{self.port}"
        self._server: subprocess.Popen[bytes] | None = None

    async def start(self, sizes: StreamSizes) -> None:
        self._launch()
        async with self.connected(BOOTSTRAP.name) as connection:
            await bootstrap(connection, streams(self.names, replicas=1, sizes=sizes))

    def _launch(self) -> None:
        file = self._directory / "nats.conf"
        file.write_text(json.dumps(self._configuration()))
        self._server = subprocess.Popen([str(nats_server_binary()), "-c", str(file)], stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    @asynccontextmanager
    async def connected(self, user: str) -> AsyncGenerator[BusConnection]:
        connection = await connect(self.settings(user))
        try:
            yield connection
        finally:
            await connection.drain_and_close()

    @asynccontextmanager
    async def bus(self, user: str) -> AsyncGenerator[Bus]:
        async with self.connected(user) as connection:
            yield bus_on(connection, self.names, follower=FAST)

    def settings(self, user: str) -> ConnectionSettings:
        return ConnectionSettings(
            urls=(self.url,),
            user=user,
            nkey_seed_file=seed_file(self.keys, user),
            reconnect_wait_seconds=0.05,
            connect_seconds=DEADLINE_SECONDS,
        )

    def _configuration(self) -> dict[str, Any]:
        users = nats_users(self.names, self.keys, (BOOTSTRAP, MANAGER, OPERATOR, *self._agents))
        config = NatsServerConfig(
            directory=self._directory, port=self.port, monitor_port=self._monitor, sync_interval="1s", users=users
        )
        document: dict[str, Any] = json.loads(render(config))
        own = document["accounts"][ACCOUNT]
        of_agents = {user.public_key for user in users if user.name.startswith("agent-")}
        moved = [user for user in own["users"] if user["nkey"] in of_agents]
        own["users"] = [user for user in own["users"] if user["nkey"] not in of_agents]
        prefix, names = f"koord.{self.names.cluster}.", self.names
        renamed = {f"{prefix}intake.{kind}.*": f"{prefix}ev.{kind}.*" for kind in ("nodestate", "criproxy")}
        kept = [f"{prefix}obs.node.*"]
        kept += [f"$JS.API.DIRECT.GET.{names.ev}.{prefix}ev.{kind}.*" for kind in ("nodestate", "criproxy", "node")]
        kept += [f"$JS.API.DIRECT.GET.{names.desired}.>"]
        services = renamed | {subject: subject for subject in kept}
        own["exports"] = [{"service": subject, "accounts": [AGENTS]} for subject in services]
        imports = [
            {"service": {"account": ACCOUNT, "subject": subject}, "to": local} for subject, local in services.items()
        ]
        document["accounts"][AGENTS] = {"users": moved, "imports": imports}
        return document
