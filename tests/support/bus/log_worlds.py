"""The places in which the contract of `EventLog` is tested: in memory, on one server, on three servers.

A world hands out handles (each with a connection of its own, as services have) and can do to the stream what an
operator or an accident does.
"""

import itertools
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from koordcore.bus.adapters.logs import JetStreamEventLog
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog
from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.names import BusNames
from koordcore.bus.read.feed import FollowerSettings
from koordcore.bus.read.stream_reader import patient_api
from koordcore.bus.setup.bootstrap import bootstrap
from koordcore.bus.setup.streams import MIB, StreamSizes, StreamSpec, streams
from koordcore.embedded.nats import NatsServer
from koordcore.ports.eventlog import EventLog
from support.bus.lossy_proxy import LossyProxy
from support.bus.nats_cluster import NatsCluster
from support.until import DEADLINE_SECONDS

_clusters = itertools.count(1)
FAST = FollowerSettings(silence_seconds=0.6, went_back_seconds=DEADLINE_SECONDS, idle_seconds=1.0)
"""Who hears nothing asks again soon. A new leader that is behind is waited for."""


class LogWorld(Protocol):
    """One empty log."""

    @property
    def has_server(self) -> bool: ...

    async def handle(self, *, follower: FollowerSettings = FAST) -> EventLog: ...

    async def trim(self, upto: int) -> None: ...

    async def make_full(self) -> None:
        """From now on the log has room for a few more events only."""
        ...

    async def close(self) -> None: ...


class MemoryWorld:
    """The log in memory."""

    has_server = False

    def __init__(self) -> None:
        self.log = MemoryLog()

    async def handle(self, *, follower: FollowerSettings = FAST) -> EventLog:
        return MemoryEventLog(self.log)

    async def trim(self, upto: int) -> None:
        self.log.trim(upto)

    async def make_full(self) -> None:
        self.log.max_events = self.log.last_seq + 3

    async def close(self) -> None:
        return


class ServerWorld:
    """A stream of its own on one or three running servers."""

    has_server = True

    def __init__(self, server: NatsServer | NatsCluster) -> None:
        self.server = server
        self.replicas = 3 if isinstance(server, NatsCluster) else 1
        self.urls = server.urls if isinstance(server, NatsCluster) else (server.url,)
        self.names = BusNames(f"t{os.getpid()}-{next(_clusters)}")
        self._connections: list[BusConnection] = []
        self._proxies: list[LossyProxy] = []
        self.admin: BusConnection | None = None

    def spec(self, *, ev_bytes: int = 64 * MIB) -> StreamSpec:
        """The facts stream of this world."""
        every = streams(self.names, replicas=self.replicas, sizes=StreamSizes(ev=ev_bytes))
        return next(spec for spec in every if spec.name == self.names.ev)

    async def open(self) -> None:
        """Make the stream."""
        self.admin = await self.connection()
        await bootstrap(self.admin, [self.spec()])
        info = await self.call(f"$JS.API.STREAM.INFO.{self.names.ev}")
        assert info["config"]["num_replicas"] == self.replicas

    async def connection(self, urls: tuple[str, ...] | None = None) -> BusConnection:
        """One more connection."""
        connection = await connect(
            ConnectionSettings(
                urls=urls or self.urls, user="test", reconnect_wait_seconds=0.05, connect_seconds=DEADLINE_SECONDS
            )
        )
        self._connections.append(connection)
        return connection

    async def handle(self, *, follower: FollowerSettings = FAST) -> JetStreamEventLog:
        # A cluster can lose a message with the leader that it was for. A single server answers each, however late.
        publish_seconds = 1.0 if isinstance(self.server, NatsCluster) else DEADLINE_SECONDS
        return JetStreamEventLog(
            await self.connection(), self.names, follower=follower, publish_seconds=publish_seconds
        )

    async def lossy_handle(self) -> tuple[JetStreamEventLog, LossyProxy]:
        """A handle whose server can be made unheard."""
        proxy = LossyProxy(self.urls[0])
        await proxy.start()
        self._proxies.append(proxy)
        connection = await self.connection((proxy.url,))
        return JetStreamEventLog(connection, self.names, follower=FAST, publish_seconds=0.2), proxy

    async def trim(self, upto: int) -> None:
        await self.call(f"$JS.API.STREAM.PURGE.{self.names.ev}", {"seq": upto + 1})

    async def make_full(self) -> None:
        """Make the stream smaller, which the bootstrap never does."""
        info = await self.call(f"$JS.API.STREAM.INFO.{self.names.ev}")
        smaller = {**info["config"], **self.spec(ev_bytes=3000).config()}
        await self.call(f"$JS.API.STREAM.UPDATE.{self.names.ev}", smaller)

    async def call(self, subject: str, body: object = None) -> dict[str, Any]:
        """One request of an administrator."""
        assert self.admin is not None
        payload = json.dumps(body).encode() if body is not None else b""
        return json.loads(await patient_api(self.admin, subject, payload))

    async def consumers(self) -> list[str]:
        """Consumers of the facts stream."""
        found = await self.call(f"$JS.API.CONSUMER.NAMES.{self.names.ev}")
        return found["consumers"] or []

    async def crash(self) -> Callable[[], Awaitable[None]]:
        """kill -9 the server that leads the stream; gives the function that starts it again."""
        server = await self._leading_server()
        await server.kill()

        async def again() -> None:
            await server.start()
            if isinstance(self.server, NatsCluster):
                await self.server.wait_ready()

        return again

    async def close(self) -> None:
        for proxy in self._proxies:
            proxy.swallow = False
        if self.admin is not None and not self.admin.is_closed:
            await self.call(f"$JS.API.STREAM.DELETE.{self.names.ev}")
        for connection in self._connections:
            await connection.drain_and_close()
        for proxy in self._proxies:
            await proxy.stop()

    async def _leading_server(self) -> NatsServer:
        if isinstance(self.server, NatsServer):
            return self.server
        info = await self.call(f"$JS.API.STREAM.INFO.{self.names.ev}")
        return next(s for s in self.server.servers if s.config.name == info["cluster"]["leader"])
