"""A server that knows the users of the log, with all streams made by the bootstrap job."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, bus_on
from koordcore.bus.names import BusNames
from koordcore.bus.read.log_size import LogRoom
from koordcore.bus.refusals import Refusals
from koordcore.bus.setup.bootstrap import bootstrap, bootstrap_consumers, consumers
from koordcore.bus.setup.manifest import BOOTSTRAP, ServiceManifest
from koordcore.bus.setup.principals import nats_users, seed_file, shares
from koordcore.bus.setup.streams import StreamSizes, streams
from koordcore.bus.work.node_facts import NodeFactRelay
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig, NatsUser, ensure_user_key, render
from koordcore.service.clock import SystemClock
from koordcore.values.override import override
from support.bus.bus_worlds import SMALL
from support.bus.log_worlds import FAST
from support.bus.nats_cluster import NatsCluster
from support.until import DEADLINE_SECONDS

JUDGE = "judge"
"""A user of the tests alone, in the account of the streams, who may do everything."""


@asynccontextmanager
async def relaying(manager: BusConnection, names: BusNames) -> AsyncGenerator[None]:
    """Append the facts of nodes meanwhile, over a connection of the user of managers."""
    running = asyncio.create_task(NodeFactRelay(manager, names, SystemClock(), LogRoom(), Refusals("test")).run())
    await manager.client.flush()
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait((running,))


class Guarded:
    """A server with the users of some manifests, with all streams and consumers made by the bootstrap job."""

    replicas = 1

    def __init__(self, directory: Path, names: BusNames, manifests: Iterable[ServiceManifest]) -> None:
        self.names = names
        self.keys = directory / "keys"
        judge = NatsUser(name=JUDGE, public_key=ensure_user_key(seed_file(directory, JUDGE)).public_key)
        self._judge_seed = seed_file(directory, JUDGE)
        users = (*nats_users(names, self.keys, manifests), judge)
        config = NatsServerConfig(directory=directory / "nats", sync_interval="1s", users=users, shares=shares(names))
        self.server = NatsServer(config)

    async def start(self, sizes: StreamSizes = SMALL) -> None:
        """Start the server and create the streams."""
        await self._launch()
        async with self.connected(BOOTSTRAP.name) as connection:
            await bootstrap(connection, streams(self.names, replicas=self.replicas, sizes=sizes))
            await bootstrap_consumers(connection, consumers(self.names))

    async def _launch(self) -> None:
        await self.server.start()

    async def kill(self) -> None:
        """End the server."""
        await self.server.kill()

    @property
    def url(self) -> str:
        """Address of the server."""
        return self.server.url

    def reload(self, config: NatsServerConfig) -> None:
        """Let the running server read another configuration."""
        self.server.config = config
        (config.directory / f"{config.name}.conf").write_text(render(config))
        assert self.server.pid is not None
        os.kill(self.server.pid, signal.SIGHUP)

    @asynccontextmanager
    async def connected(self, user: str) -> AsyncGenerator[BusConnection]:
        """A connection of one user."""
        connection = await connect(self.settings(user))
        try:
            yield connection
        finally:
            await connection.drain_and_close()

    def settings(self, user: str) -> ConnectionSettings:
        """Address of the server, and the key of one user."""
        return ConnectionSettings(
            urls=(self.url,),
            user=user,
            nkey_seed_file=self._judge_seed if user == JUDGE else seed_file(self.keys, user),
            reconnect_wait_seconds=0.05,
            connect_seconds=DEADLINE_SECONDS,
        )

    @asynccontextmanager
    async def relaying(self) -> AsyncGenerator[None]:
        """Append the facts of nodes meanwhile, as each manager does."""
        async with self.connected("manager") as connection, relaying(connection, self.names):
            yield

    @asynccontextmanager
    async def bus(self, user: str) -> AsyncGenerator[Bus]:
        """The adapters over a connection of one user."""
        async with self.connected(user) as connection:
            yield bus_on(connection, self.names, follower=FAST)


class GuardedCluster(Guarded):
    """Three servers with the same users. Clients connect to the server number `at`."""

    replicas = 3

    def __init__(self, directory: Path, names: BusNames, manifests: Iterable[ServiceManifest]) -> None:
        super().__init__(directory, names, manifests)
        config = self.server.config
        self.at = 0
        self._cluster = NatsCluster(directory, users=config.users, shares=config.shares, sync_interval="1s")

    @override
    async def _launch(self) -> None:
        await self._cluster.start()

    @override
    async def kill(self) -> None:
        await self._cluster.kill()

    @property
    @override
    def url(self) -> str:
        return self._cluster.urls[self.at]
